"""Which GPUs of one host the job uses: ticked singly, by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Button, OptionList, Static

from dttui.i18n import _, ngettext
from dttui.planning import Choice
from dttui.tui.commands import N_
from dttui.tui.gpu_lines import KnownGpu, known_gpus, tick_head, tick_line, tick_mark
from dttui.tui.resting import every
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.prose import Prose
from dttui.tui.widgets.tick_list import TickList

if TYPE_CHECKING:
    from dttui.app import EnvironmentStatus

REFRESH_S = 1.0


def gpus_to_choose(status: EnvironmentStatus) -> list[KnownGpu]:
    """Return the GPUs of a host that can be named; what the inventory says of it counts until its agent has told."""
    if status.environment.simulated:
        return []
    declared = Choice(status.environment, status.facts)
    kinds = dict(enumerate(declared.gpu_types))
    count = declared.gpu_count or 0
    return known_gpus(status) or [KnownGpu(index, kind=kinds.get(index, "")) for index in range(count)]


def why_none(status: EnvironmentStatus) -> str:
    """Return why none can be named."""
    if status.environment.simulated:
        return _("Simulated GPUs have no numbers: + and - say how many are used.")
    if status.facts is not None:
        return _("{name} has no GPU.").format(name=status.environment.name)
    return _("Nothing is known of the GPUs of {name} yet.").format(name=status.environment.name)


class GpuDialog(Dialog[tuple[int, ...]]):
    """Asks which GPUs of a host the job uses: none means any of them, and no answer that nothing is changed."""

    KEEPS_TYPED: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "free", N_("tick free"), id="gpus.free", tooltip=N_("Tick the GPUs that nobody uses")),
        Binding("n", "none", N_("any"), id="gpus.none", tooltip=N_("Tick none: any GPUs that are free are used")),
    ]

    def __init__(self, name: str, look: Callable[[], EnvironmentStatus], chosen: Sequence[int]) -> None:
        """Ask.

        Args:
            name: of the host.
            look: tells how it is now.
            chosen: GPUs that the job names, in its order.
        """
        super().__init__()
        self._name_of_host = name
        self._look = look
        self._chosen = tuple(chosen)
        self._ticked = {*chosen}
        self._gpus: list[KnownGpu] = []
        self._shown: list[Content] = []

    def compose(self) -> ComposeResult:
        """Lay out the GPUs, a line each."""
        subtitle = _("space ticks · a those that are free · n any · enter uses them")
        with self.box(_("GPUs of {name}").format(name=self._name_of_host), "-wide", subtitle=subtitle):
            note = _(
                "Those that are ticked are used, and no others; with none ticked, as many as now, any that are free."
            )
            yield Prose(Content(note), classes="dialog-note")
            yield Static(id="gpu-head")
            yield GpuList(id="gpu-list", compact=True)
            yield from self.ok_or_cancel(_("Use any"))

    def on_mount(self) -> None:
        """Show how they are, and follow that."""
        self._fill()
        self.query_one(GpuList).focus()
        every(self, REFRESH_S, self._fill)

    def action_free(self) -> None:
        """Tick those that nobody uses; where just those are, none."""
        free = {gpu.index for gpu in self._gpus if not gpu.user}
        self._tick(free if self._ticked != free else set())

    def action_none(self) -> None:
        """Tick none."""
        self._tick(set())

    def action_take(self) -> None:
        """Use what is ticked; where nothing was changed, all stays as it is, the order too."""
        is_same = {*self._chosen} == self._ticked
        self.dismiss(None if is_same else tuple(sorted(self._ticked)))

    @on(OptionList.OptionSelected)
    def _toggled(self, event: OptionList.OptionSelected) -> None:
        self._tick(self._ticked ^ {self._gpus[event.option_index].index})

    @on(Button.Pressed, "#ok")
    def _done(self) -> None:
        self.action_take()

    def _tick(self, ticked: set[int]) -> None:
        self._ticked = ticked
        self._fill()

    def _fill(self) -> None:
        there = gpus_to_choose(self._look())
        known = {gpu.index for gpu in there}
        lacking = [KnownGpu(index) for index in {*self._chosen, *self._ticked} - known]
        self._gpus = sorted([*there, *lacking], key=lambda gpu: gpu.index)
        names = len({gpu.kind for gpu in there}) > 1
        self.query_one("#gpu-head", Static).update(tick_head(names=names))
        lines = [self._line(gpu, names=names, is_there=gpu.index in known) for gpu in self._gpus]
        listed = self.query_one(GpuList)
        if len(lines) != len(self._shown):
            listed.set_options(lines)
            listed.highlighted = 0
        else:
            for place, (line, before) in enumerate(zip(lines, self._shown, strict=True)):
                if not line.is_same(before):
                    listed.replace_option_prompt_at_index(place, line)
        self._shown = lines
        count = len(self._ticked)
        used = ngettext("Use {count} GPU", "Use {count} GPUs", count).format(count=count) if count else _("Use any")
        self.query_one("#ok", Button).label = Content(used)

    def _line(self, gpu: KnownGpu, *, names: bool, is_there: bool) -> Content:
        is_ticked = gpu.index in self._ticked
        if is_there:
            return tick_line(gpu, is_ticked=is_ticked, names=names)
        told = (_("the host has no such GPU"), "$finding-error")
        return Content.assemble(tick_mark(is_ticked), f"{gpu.index:>3} ", told)


class GpuList(TickList):
    """The GPUs, each of which can be ticked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "tick", N_("tick"), id="gpus.tick", tooltip=N_("Tick the GPU, or untick it")),
        Binding("enter", "screen.take", N_("use"), id="gpus.take", tooltip=N_("Use the ticked GPUs")),
    ]
