"""What the ticked environments add up to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rich.cells import cell_len
from textual.content import Content

from dttui.i18n import _, in_a_row, ngettext
from dttui.planning import Aggregate
from dttui.sanitize import clean
from dttui.tui.widgets.cells import fit, labelled
from dttui.tui.widgets.prose import Prose
from dttui.words import gigabytes

MOST_NAMES, FEW_NAMES = 12, 4
"""Names listed, and those where the model is to have room below them; of the rest only the number is."""


@dataclass(frozen=True)
class Chosen:
    """One ticked environment."""

    name: str
    gpus: str
    is_master: bool
    simulated: bool


class Summary(Prose):
    """Follows every tick."""

    hangs = True

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.border_title = _("Summary")
        self._told: Callable[[], None] = lambda: None

    def on_resize(self) -> None:
        """Name as many hosts as there is room for by now."""
        self._told()

    def follow(
        self,
        aggregate: Aggregate | None,
        ranks: int,
        start: str,
        chosen: Sequence[Chosen],
        cost: Sequence[tuple[str, Content]],
        note: Content | None,
    ) -> None:
        """Show what is ticked.

        Args:
            aggregate: what it adds up to; `None` for nothing.
            ranks: processes.
            start: how the job is started.
            chosen: the ticked environments.
            cost: what it costs, as label and value.
            note: why that is not known.
        """
        self._told = partial(self.follow, aggregate, ranks, start, chosen, cost, note)
        if aggregate is None:
            self.show(Content.styled(_("Tick the environments to train on; the first is the master."), "$muted"))
            return
        distributed = aggregate.is_distributed
        lines = [
            Content.assemble(("⇄ " if distributed else "✓ ", "$ticked"), (_headline(aggregate), "bold")),
            *labelled([*_figures(aggregate, ranks), *cost]),
            *([note] if note is not None else []),
            Content.styled(start, "$muted"),
            *_names(chosen, FEW_NAMES if self.screen.has_class("-wide") else MOST_NAMES),
        ]
        self.show(Content("\n").join(lines))


def _headline(aggregate: Aggregate) -> str:
    return _("Distributed training") if aggregate.is_distributed else _("Single-machine training")


def _figures(aggregate: Aggregate, ranks: int) -> list[tuple[str, Content]]:
    types = ", ".join(clean(name) for name in aggregate.gpu_types)
    sim = ""
    if aggregate.simulated_gpu_count:
        every = aggregate.simulated_gpu_count == aggregate.gpu_count
        sim = _("simulated") if every else _("{count} simulated").format(count=aggregate.simulated_gpu_count)
    is_known = aggregate.gpus_known or aggregate.gpu_count
    gpus = _("{gpus_in_all}").format(gpus_in_all=aggregate.gpu_count) if is_known else "?"
    if aggregate.leaves_gpus:
        gpus = _("{used} of {gpus}").format(used=aggregate.gpu_count, gpus=aggregate.gpus_there)
    if types:
        gpus = f"{gpus} ({types})"
    figures: list[tuple[str, Content]] = []
    if aggregate.is_distributed:
        figures.append((_("nodes"), Content(_("{nodes_in_all}").format(nodes_in_all=aggregate.node_count))))
    figures.append((_("GPUs"), Content.assemble(gpus, (f"  {sim}" if sim else "", "$simulated"))))
    if ranks != aggregate.gpu_count:
        figures.append((_("ranks"), Content(str(ranks))))
    if aggregate.gpu_memory_bytes is not None:
        figures.append((_("GPU memory"), Content(gigabytes(aggregate.gpu_memory_bytes))))
    cpus = _("{cores_in_all}").format(cores_in_all=aggregate.cpu_count) if aggregate.cpu_count else "?"
    figures.append((_("CPUs"), Content(cpus)))
    figures.append((_("memory"), Content(gigabytes(aggregate.memory_bytes) if aggregate.memory_bytes else "?")))
    if aggregate.zones:
        figures.append((ngettext("zone", "zones", len(aggregate.zones)), _zones(aggregate)))
    return figures


def _zones(aggregate: Aggregate) -> Content:
    names = in_a_row(clean(zone) for zone in aggregate.zones)
    if len(aggregate.zones) == 1:
        return Content(names)
    return Content.assemble((f"{len(aggregate.zones)} ⚠ ", "bold $warning"), names)


def _names(chosen: Sequence[Chosen], most: int) -> list[Content]:
    shown = chosen[:most]
    width = min(max(cell_len(item.name) for item in shown), 30) if shown else 0
    lines = [
        Content.assemble(
            ("★ " if item.is_master else "  ", "$master"),
            fit(item.name, width),
            "  ",
            item.gpus,
            (" " + _("sim") if item.simulated else "", "italic $simulated"),
        )
        for item in shown
    ]
    if len(chosen) > most:
        rest = _("… and {count} more").format(count=len(chosen) - most)
        lines.append(Content.styled(f"  {rest}", "$muted"))
    return lines
