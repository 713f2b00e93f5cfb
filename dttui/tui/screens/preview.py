"""What would run, node by node: the plan, before anything is started."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from dttui.frameworks import reason
from dttui.i18n import _, ngettext
from dttui.planning import Plan, PlannedNode, PlannedProcess
from dttui.planning.cost_text import Shrinking
from dttui.sanitize import clean
from dttui.spec import Finding, format_bytes
from dttui.tui.commands import N_
from dttui.tui.screens.estimate import EstimateScreen
from dttui.tui.widgets.finding_list import FindingList
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.title_bar import TitleBar
from dttui.words import process_name

_HOLE = re.compile(r"\$\{[A-Z_]+\}")


class PreviewScreen(Screen[None]):
    """Shows one node of the plan at a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,p", "app.pop_screen", N_("back"), id="preview.back", tooltip=N_("Go back to the job")),
        Binding("e", "estimate", N_("estimate"), id="preview.estimate", tooltip=N_("Show what the job costs, and why")),
    ]

    def __init__(self, plan: Plan, findings: tuple[Finding, ...], shrinking: Callable[[], Shrinking]) -> None:
        """Show a plan with findings; `shrinking` says what would shrink the largest parts of its estimate."""
        super().__init__()
        self._shrinking = shrinking
        self._plan = plan
        self._findings = findings

    def compose(self) -> ComposeResult:
        """Lay out the nodes and what runs on the one chosen."""
        plan = self._plan
        left = Content.assemble(("dttui ", "bold"), (_("plan"), "bold $primary"), "  ", clean(plan.job_name))
        right = Content(
            _("{framework} · {backend} · world size {size}").format(
                framework=plan.framework, backend=plan.backend, size=plan.world_size
            )
        )
        yield TitleBar(left, right)
        with Horizontal(id="preview-body"):
            yield OptionList(*(Option(_node_label(node)) for node in plan.nodes), id="preview-nodes", compact=True)
            with VerticalScroll(id="preview-scroll"):
                yield Static(id="preview-text")
        yield FindingList()
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the master."""
        self.query_one(FindingList).show(self._findings)
        nodes = self.query_one(OptionList)
        nodes.border_title = Content(_("Nodes"))
        nodes.focus()
        if self._plan.nodes:
            nodes.highlighted = 0

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the estimate only where there is one."""
        return action != "estimate" or self._plan.estimate is not None

    def action_estimate(self) -> None:
        """Show what the job costs."""
        if self._plan.estimate is not None:
            self.app.push_screen(EstimateScreen(self._plan, self._plan.estimate, self._shrinking()))

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        node = self._plan.nodes[event.option_index]
        self.query_one("#preview-text", Static).update(_node_text(self._plan, node))
        self.query_one("#preview-scroll").scroll_home(animate=False)


def _node_label(node: PlannedNode) -> Content:
    return Content.assemble(("★ " if node.node_rank == 0 else "  ", "$master"), clean(node.name))


def _node_text(plan: Plan, node: PlannedNode) -> Content:
    ranks = f"{node.ranks[0]}–{node.ranks[-1]}" if len(node.ranks) > 1 else ", ".join(map(str, node.ranks))
    slots = ngettext("{count} process", "{count} processes", len(node.ranks)).format(count=len(node.ranks))
    facts = [
        (_("node rank"), " · ".join([str(node.node_rank), *([_("master")] if node.node_rank == 0 else [])])),
        (_("ranks"), " · ".join([ranks, slots, *([_("simulated GPUs")] if node.simulated else [])])),
        (_("address"), node.address),
        (_("zone"), node.zone or "–"),
        (_("Python"), node.python),
        (_("sent with it"), plan.upload or _("nothing")),
        (_("rendezvous"), _("within {seconds:g} s").format(seconds=plan.rendezvous_timeout_s)),
        (_("kept of each log"), _("at most {size}").format(size=format_bytes(plan.log_cap_bytes))),
    ]
    if node.required_paths:
        facts.append((_("must be there"), ", ".join(node.required_paths)))
    lines = [Content.assemble((f"{name}: ", "$muted"), clean(value)) for name, value in facts]
    for process in node.processes:
        lines += _process_lines(process, plan.own_variables)
    for file in node.files:
        lines += [
            Content(""),
            _heading(_("file {path}").format(path=clean(file.path))),
            Content(clean(file.text).rstrip()),
        ]
    if not node.processes:
        lines += [Content(""), Content.styled(_("The errors below keep the rest from being planned."), "$warning")]
    return Content("\n").join(lines)


def _process_lines(process: PlannedProcess, given: tuple[str, ...]) -> list[Content]:
    lines = [
        Content(""),
        _heading(_("command {name}").format(name=clean(process_name(process.name)))),
        Content.assemble(("$ ", "$muted"), clean(_readable(process.argv))),
        Content.assemble((_("working directory") + ": ", "$muted"), clean(process.cwd)),
        Content(""),
        _heading(_("environment")),
    ]
    lines += [_variable(name, value, reason(name, value, given)) for name, value in process.env.items()]
    return lines


def _variable(name: str, value: str, why: str) -> Content:
    return Content.assemble((f"{clean(name)}=", "$muted"), clean(value), (f"  # {why}" if why else "", "$muted"))


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $primary")


def _readable(argv: tuple[str, ...]) -> str:
    """Return a command line with its holes as they are, which quoting would hide."""
    return " ".join(word if _is_plain(_HOLE.sub("", word)) else shlex.quote(word) for word in argv)


def _is_plain(word: str) -> bool:
    return not word or shlex.quote(word) == word
