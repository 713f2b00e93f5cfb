"""What a job costs in full: the parts of memory and time, what they rest on, scaling, failures, axioms."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content

from dttui.i18n import _
from dttui.planning import Estimate, Plan
from dttui.planning.cost_text import Shrinking
from dttui.sanitize import clean
from dttui.tui import estimate_sections as sections
from dttui.tui.commands import N_
from dttui.tui.screens.page import Page
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.prose import Prose
from dttui.tui.widgets.title_bar import TitleBar

Renew = Callable[[], Awaitable[tuple[Plan, Shrinking] | None]]


class EstimateSection(Prose):
    """A titled part of the page."""

    hangs = True

    def __init__(self, title: str, text: Content) -> None:
        super().__init__(text, classes="section")
        self.border_title = title


class EstimateScreen(Page[None]):
    """Shows the estimate of a plan; it does not follow the job."""

    AUTO_FOCUS = "#estimate-scroll"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,e", "app.pop_screen", N_("back"), id="estimate.back", tooltip=N_("Go back to the job")),
    ]

    def __init__(self, plan: Plan, estimate: Estimate, shrinking: Shrinking, renew: Renew | None = None) -> None:
        """Show a plan, what it costs, and what would shrink the largest parts of that.

        Args:
            plan: of the job.
            estimate: of it.
            shrinking: what would shrink the largest parts.
            renew: plans it once more, for another language.
        """
        super().__init__()
        self._renew = renew
        self._plan = plan
        self._estimate = estimate
        self._shrinking = shrinking

    def compose(self) -> ComposeResult:
        """Lay out the sections, in two columns where there is room."""
        plan, estimate = self._plan, self._estimate
        left = Content.assemble(("dttui ", "bold"), (_("estimate"), "bold $primary"), "  ", clean(plan.job_name))
        yield TitleBar(left, sections.headline(estimate))
        with VerticalScroll(id="estimate-scroll"):
            yield EstimateSection(_("What it is of"), sections.subject(estimate))
            with Horizontal(id="estimate-columns"):
                with Vertical():
                    yield EstimateSection(_("Memory of the fullest GPU"), sections.memory(estimate, self._shrinking))
                    rules = sections.rules_of_thumb(plan, estimate)
                    yield EstimateSection(_("Rules of thumb, no part of the estimate"), rules)
                with Vertical():
                    yield EstimateSection(_("Time of a step"), sections.time(estimate, self._shrinking))
                    yield EstimateSection(_("More nodes, same global batch"), sections.scaling(estimate))
                    yield EstimateSection(_("Failures and checkpoints"), sections.failures(estimate))
            yield EstimateSection(_("In formal terms"), sections.formal(plan))
            yield EstimateSection(_("The four axioms"), sections.axioms(plan))
            yield EstimateSection(_("What it rests on"), sections.inputs(estimate, time.time()))
        yield KeyBar()

    @work
    async def fill(self) -> None:
        """Tell it in the language chosen now."""
        found = await self._renew() if self._renew is not None else None
        if found is not None and found[0].estimate is not None:
            (self._plan, self._shrinking), self._estimate = found, found[0].estimate
            await self.recompose()
            self.query_one("#estimate-scroll").focus()
