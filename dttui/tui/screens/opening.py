"""What is shown until a job can be composed: the environments. Nothing that plans is imported for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal

from dttui.tui.environment_pane import EnvironmentPane
from dttui.tui.screens.page import Page
from dttui.tui.title_lines import title_line
from dttui.tui.widgets.empty_inventory import EmptyInventory
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.title_bar import TitleBar

if TYPE_CHECKING:
    from dttui.app import Fleet


class OpeningScreen(Page[None]):
    """Lists the environments where the compose screen will, as they were known last."""

    AUTO_FOCUS = "#environments, EmptyInventory Button"

    def __init__(self, fleet: Fleet, inventory_path: Path | None, *, demo: bool) -> None:
        super().__init__(classes="page-environments-on")
        self._fleet = fleet
        self._inventory_path = inventory_path
        self._demo = demo

    def compose(self) -> ComposeResult:
        """Lay out the list."""
        yield TitleBar(title_line(demo=self._demo))
        with Horizontal(id="compose-body"):
            if self._fleet.statuses:
                yield EnvironmentPane(self._fleet, id="compose-left")
            else:
                path = self._inventory_path
                yield EmptyInventory(str(path) if path is not None else None, id="compose-left")
        yield KeyBar()
