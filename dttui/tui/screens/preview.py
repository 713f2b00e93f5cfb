"""What would run, node by node, and what of it is new since the last launch: the plan, before anything is started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Static, Tree

from dttui.compose import LaunchChanges
from dttui.i18n import _
from dttui.planning import Plan
from dttui.planning.cost_text import Shrinking
from dttui.sanitize import clean
from dttui.spec import Finding
from dttui.tui.code_text import highlighted
from dttui.tui.commands import N_
from dttui.tui.plan_parts import PlanPart, changes_note, changes_text, plan_parts
from dttui.tui.screens.estimate import EstimateScreen
from dttui.tui.screens.page import Page
from dttui.tui.widgets.finding_list import FindingList
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.plan_tree import PlanTree
from dttui.tui.widgets.title_bar import TitleBar

EDIT = "edit"
"""What the screen is left with where the job is to be edited as text."""


class PreviewScreen(Page[str]):
    """Shows the part of the plan that is under the cursor of its tree."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,p", "leave", N_("back"), id="preview.back", tooltip=N_("Go back to the job")),
        Binding(
            "c", "changes", N_("changes"), id="preview.changes", tooltip=N_("Show what is new since the last launch")
        ),
        Binding("y", "edit", N_("YAML"), id="preview.edit", tooltip=N_("Edit the job as text")),
        Binding("e", "estimate", N_("estimate"), id="preview.estimate", tooltip=N_("Show what the job costs, and why")),
    ]

    def __init__(
        self,
        plan: Plan,
        findings: tuple[Finding, ...],
        text: str,
        *,
        changes: Callable[[], LaunchChanges | None],
        shrinking: Callable[[], Shrinking],
    ) -> None:
        """Show a plan.

        Args:
            plan: the plan.
            findings: what there is to say of it.
            text: the job file.
            changes: finds what differs from the last launch, in a thread.
            shrinking: says what would shrink the largest parts of its estimate.
        """
        super().__init__()
        self._plan = plan
        self._findings = findings
        self._text = text
        self._changes = changes
        self._shrinking = shrinking

    def compose(self) -> ComposeResult:
        """Lay out the tree, and what there is to read of the part under its cursor."""
        plan = self._plan
        left = Content.assemble(("dttui ", "bold"), (_("plan"), "bold $primary"), "  ", clean(plan.job_name))
        right = Content(
            _("{framework} · {backend} · world size {size}").format(
                framework=plan.framework, backend=plan.backend, size=plan.world_size
            )
        )
        yield TitleBar(left, right)
        with Horizontal(id="preview-body"):
            yield PlanTree(id="preview-tree")
            with VerticalScroll(id="preview-scroll"):
                yield Static(id="preview-text")
        yield FindingList()
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the master, and look for the last launch."""
        self.fill()
        self.query_one(PlanTree).focus()

    def fill(self) -> None:
        """Show findings and tree, and look for the last launch."""
        self.query_one(FindingList).show(self._findings)
        looking = PlanPart(_("changes"), lambda: Content.styled(_("looking for the last launch …"), "$muted"), "…")
        job = PlanPart(_("job file"), lambda: highlighted(self._text, "yaml"), "YAML")
        self.query_one(PlanTree).fill([looking, job, *plan_parts(self._plan)])
        self._look_for_changes()

    @work(group="look-ahead", exclusive=True)
    async def _look_for_changes(self) -> None:
        changes = await asyncio.to_thread(self._changes)
        if self not in self.app.screen_stack:
            return
        text = partial(changes_text, changes, self._plan.job_name)
        self.query_one(PlanTree).put(_("changes"), PlanPart(_("changes"), text, changes_note(changes)))
        self._show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the estimate only where there is one."""
        return action != "estimate" or self._plan.estimate is not None

    def action_leave(self) -> None:
        """Go back to the job."""
        self.dismiss(None)

    def action_edit(self) -> None:
        """Edit the job as text."""
        self.dismiss(EDIT)

    def action_changes(self) -> None:
        """Show what is new since the last launch."""
        tree = self.query_one(PlanTree)
        tree.move_cursor(tree.root.children[0])
        tree.focus()

    def action_estimate(self) -> None:
        """Show what the job costs."""
        if self._plan.estimate is not None:
            self.app.push_screen(EstimateScreen(self._plan, self._plan.estimate, self._shrinking()))

    @on(Tree.NodeHighlighted)
    def _highlighted(self) -> None:
        self._show()
        self.query_one("#preview-scroll").scroll_home(animate=False)

    def _show(self) -> None:
        node = self.query_one(PlanTree).cursor_node
        if node is not None and node.data is not None:
            self.query_one("#preview-text", Static).update(node.data.text())
