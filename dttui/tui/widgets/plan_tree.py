"""The tree of a plan: nodes, and below each what runs there; opened by arrows, enter or a click."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from dttui.tui.commands import N_
from dttui.tui.plan_parts import PlanPart

MOST_OPEN = 4
"""Nodes up to which all of them are open to begin with."""


class PlanTree(Tree[PlanPart]):
    """Its lines are made as they are opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "open", N_("open"), show=False, id="plan.open", tooltip=N_("Show what is below it")),
        Binding("left", "close", N_("close"), show=False, id="plan.close", tooltip=N_("Hide what is below it")),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__("", id=id)
        self.show_root = False
        self.show_guides = False
        self.guide_depth = 2

    def fill(self, parts: Sequence[PlanPart]) -> None:
        """Show these, with the cursor on the master."""
        for part in parts:
            node = self.root.add(Text(part.name), part, allow_expand=bool(part.parts()))
            if part.is_master or len(parts) <= MOST_OPEN:
                self._make(node)
                node.expand()
        self.root.expand()
        self.call_after_refresh(self._begin)

    def put(self, name: str, part: PlanPart) -> None:
        """Exchange the line at the top that is so called."""
        for node in self.root.children:
            if node.data is not None and node.data.name == name:
                node.data = part
                node.refresh()

    def render_label(self, node: TreeNode[PlanPart], base_style: Style, style: Style) -> Text:
        """Return a line in the colours of the theme."""
        part = node.data
        if part is None:
            return Text("")
        colours = self.app.theme_variables
        mark = "▾ " if node.is_expanded else "▸ "
        return Text.assemble(
            (mark if node.allow_expand else "  ", base_style),
            ("★ " if part.is_master else "", colours["master"]),
            (part.name, style),
            (f"  {part.note}" if part.note else "", colours["muted"]),
        )

    def action_open(self) -> None:
        """Open the line, or go to the first below it."""
        node = self.cursor_node
        if node is not None and node.allow_expand:
            if node.is_expanded:
                self.action_cursor_down()
            else:
                node.expand()

    def action_close(self) -> None:
        """Close the line, or go to the one above it."""
        node = self.cursor_node
        if node is not None and node.is_expanded:
            node.collapse()
        elif node is not None and node.parent is not None and node.parent is not self.root:
            self.move_cursor(node.parent)

    @on(Tree.NodeExpanded)
    def _opened(self, event: Tree.NodeExpanded[PlanPart]) -> None:
        self._make(event.node)

    def _make(self, node: TreeNode[PlanPart]) -> None:
        if node.data is not None and not node.children:
            for part in node.data.parts():
                node.add_leaf(Text(part.name), part)

    def _begin(self) -> None:
        master = next((node for node in self.root.children if node.data is not None and node.data.is_master), None)
        self.move_cursor(master or next(iter(self.root.children), None))
