"""Where one goes on the compose screen: its pages, of which a narrow screen shows one, and what is on each."""

from __future__ import annotations

from textual import on
from textual.widgets import Tabs

from dttui.tui.environment_pane import EnvironmentPane
from dttui.tui.screens.page import Page
from dttui.tui.widgets.finding_list import FindingList
from dttui.tui.widgets.section_rows import SectionRows


class ComposePages(Page[None]):
    """Puts the focus where a key leads, on the page that it is on."""

    @on(Tabs.TabActivated, "#pages")
    def _page_chosen(self, event: Tabs.TabActivated) -> None:
        page = event.tab.id
        if page is None or self.has_class(page.replace("page", "-on")):
            return
        was_on_list = self.focused is not None and self.focused.id == "environments"
        self.show_page(page)
        if page == "page-job" and was_on_list:
            self.call_after_refresh(self.query_one("#task-name").focus)

    def action_filter(self) -> None:
        """Go to the filter."""
        self.show_page("page-environments")
        self.query_one(EnvironmentPane).begin_filter()

    def action_sort(self) -> None:
        """Sort in the next way."""
        self.query_one(EnvironmentPane).sort_otherwise()

    def action_show_all(self) -> None:
        """Drop the filter."""
        self.query_one(EnvironmentPane).action_show_all()

    def action_view(self) -> None:
        """Go from the list to the fields of the job, or back; a narrow screen shows one of them."""
        if not self.has_class("-narrow"):
            at_list = self.focused is not None and self.focused.id == "environments"
            self.go_to("#task-name" if at_list else "#environments")
            return
        tabs = self.query_one(Tabs)
        tabs.active = "page-job" if tabs.active == "page-environments" else "page-environments"

    def action_leave(self) -> None:
        """Go back to the list."""
        self.show_page("page-environments")
        self.query_one(EnvironmentPane).focus_list()

    def action_framework(self) -> None:
        """Go to the choice of framework."""
        self.go_to("#framework")

    def action_fields(self) -> None:
        """Go to the sections that hold what has no field on the screen."""
        self.show_page("page-job")
        self.call_after_refresh(self.query_one("#sections", SectionRows).focus_first)

    def action_findings(self) -> None:
        """Go to what there is to mend."""
        self.query_one(FindingList).focus()

    def go_to(self, selector: str) -> None:
        """Show the page that a widget is on, and put the focus there."""
        for widget in self.query(selector):
            self.show_page("page-environments" if selector == "#environments" else "page-job")
            self.call_after_refresh(widget.focus)

    def show_page(self, page: str) -> None:
        """Choose the page of a narrow screen; a wide one shows both."""
        self.set_class(page == "page-job", "-on-job")
        self.query_one(Tabs).active = page
