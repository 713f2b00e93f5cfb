"""The start screen: tick environments, see what they add up to, fill in the job, launch. Rules are elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import Button, Static, Tab, Tabs

from dttui.app import Drafts, Fleet
from dttui.compose import DraftPreview
from dttui.errors import DttuiError, UsageError
from dttui.i18n import _
from dttui.inventory import Inventory
from dttui.jobs import Board, Changed, JobDirectory
from dttui.planning import ComposeState, Plan, Submission, success_message
from dttui.planning.cost_text import Shrinking
from dttui.sanitize import clean
from dttui.spec import Finding, Job
from dttui.tui import symbols
from dttui.tui.compose_lines import readiness, ticked_line
from dttui.tui.draft_watch import DraftWatch
from dttui.tui.environment_pane import EnvironmentPane, EnvironmentsChanged
from dttui.tui.finding_places import FieldPlace, place_of
from dttui.tui.messages import FormEdited, FrameworkChosen, JobLaunched
from dttui.tui.screens import cost_dialogs, job_files, run_dialogs
from dttui.tui.screens.checks import ChecksScreen
from dttui.tui.screens.compose_keys import COMPOSE_KEYS
from dttui.tui.screens.compose_ticks import ComposeTicks
from dttui.tui.screens.estimate import EstimateScreen
from dttui.tui.screens.guide import GuideDialog
from dttui.tui.screens.job_files import JobFile
from dttui.tui.screens.job_pane import JobPane
from dttui.tui.screens.preview import EDIT, PreviewScreen
from dttui.tui.title_lines import title_line
from dttui.tui.widgets.cells import linked
from dttui.tui.widgets.empty_inventory import EmptyInventory
from dttui.tui.widgets.finding_list import FindingChosen, FindingList
from dttui.tui.widgets.job_form import JobForm
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.title_bar import TitleBar

LOOK_AHEAD_DELAY_S = 0.15
"""So that typing does not plan at every key."""

Launcher = Callable[[Submission, Plan], JobDirectory]
Checks = Callable[[Submission, Plan, Changed], Awaitable[Board]]
Bench = Callable[[Submission], object]


class ComposeScreen(ComposeTicks):
    """Holds one ComposeState; every change goes through `set_state`."""

    AUTO_FOCUS = "#environments, EmptyInventory Button"
    BINDINGS: ClassVar[list[BindingType]] = COMPOSE_KEYS

    def __init__(
        self,
        inventory: Inventory,
        fleet: Fleet,
        *,
        inventory_path: Path | None,
        demo: bool,
        draft: Job | None,
        file: JobFile,
        drafts: Drafts,
        launch: Launcher,
        check: Checks,
        bench: Bench,
        retry: Callable[[str], None],
    ) -> None:
        """Compose jobs on the environments of `inventory`, as `fleet` sees them.

        Args:
            inventory: environments and datasets.
            fleet: their live state.
            inventory_path: where it was read from; `None` for the embedded cluster.
            demo: whether this is the embedded cluster.
            draft: job to begin with.
            file: where the draft was read from.
            drafts: who tells what a draft would do and costs.
            launch: starts a planned job.
            check: runs a preflight of a planned job.
            bench: shows what measures the links between the nodes of a job.
            retry: tries an environment again, with its questions.
        """
        super().__init__()
        state = ComposeState.from_job(draft, inventory) if draft is not None else ComposeState()
        self.draft = DraftWatch(state, inventory, fleet, drafts, self._show_cost)
        self._kept = state
        self._inventory = inventory
        self._fleet = fleet
        self._drafts = drafts
        self._inventory_path = inventory_path
        self._demo = demo
        self._file = file
        self._launch = launch
        self._check = check
        self._bench = bench
        self._retry = retry
        self._was_refused = False

    @property
    def state(self) -> ComposeState:
        """The draft as it is now."""
        return self.draft.state

    @property
    def file(self) -> JobFile:
        """Where the job lies."""
        return self._file

    def take_up(self, state: ComposeState, file: JobFile) -> None:
        """Go on with a draft that was not saved."""
        self._file = file
        self.set_state(state)

    @property
    def has_edits(self) -> bool:
        """Whether the job is another than what was opened or saved last, or what there was to begin with."""
        return self.state != self._kept or self._file.has_edits

    # --- what is there ------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Lay out list, summary, form, findings and actions."""
        yield TitleBar(title_line(demo=self._demo))
        yield Tabs(Tab(_("Environments"), id="page-environments"), Tab(_("Job"), id="page-job"), id="pages")
        with Horizontal(id="compose-body"):
            if self._inventory.environments:
                yield EnvironmentPane(self._fleet, id="compose-left")
            else:
                path = self._inventory_path
                yield EmptyInventory(str(path) if path is not None else None, id="compose-left")
            yield JobPane(self.state.framework, self._drafts, self._inventory.datasets, id="compose-right")
        yield FindingList()
        with Horizontal(id="actions"):
            yield Static(id="readiness")
            yield Button(_("Preview"), id="preview", action="screen.preview", compact=True)
            yield Button(_("Launch"), id="launch", action="screen.launch", variant="primary", compact=True)
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the draft, and follow the fleet."""
        self.show_page("page-environments")
        self.fill()

    def fill(self) -> None:
        """Show the draft."""
        self.set_state(self.state)
        self.query_one(Tabs).can_focus = False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer list commands only with a list."""
        if action == "leave":
            is_elsewhere = self.focused is not None and self.focused.id != "environments"
            return is_elsewhere and bool(self._inventory.environments)
        if action in ("framework", "options"):
            return bool(self.state.selected)
        if action == "findings":
            return any(listed.focusable for listed in self.query(FindingList))
        if action in ("filter", "sort", "retry", "choose_gpus"):
            return bool(self._inventory.environments)
        return True

    # --- what a person does -------------------------------------------------------------------------------------------

    @on(FrameworkChosen)
    def _framework_chosen(self, event: FrameworkChosen) -> None:
        if event.name != self.state.framework:
            self.set_state(self.state.choose_framework(event.name))

    @on(FormEdited)
    def _form_edited(self) -> None:
        self.set_state(replace(self.state, **vars(self.query_one(JobForm).values)), from_form=True)

    @on(FindingChosen)
    def _finding_chosen(self, event: FindingChosen) -> None:
        if (place := place_of(event.finding, self.state)) is not None:
            self._go_to_place(place)

    @on(EnvironmentsChanged)
    def _environments_changed(self, event: EnvironmentsChanged) -> None:
        if any(key in self.state.selected for key in event.keys):
            self.set_state(self.state)

    def action_mend(self) -> None:
        """Go to the field that mends the first thing that keeps the job from being launched."""
        place = next(filter(None, (place_of(finding, self.state) for finding in self.draft.lacks)), None)
        if place is not None:
            self._go_to_place(place)

    def action_guide(self) -> None:
        """Show what is usual, and what to try on the hosts."""
        self.app.push_screen(GuideDialog(self.state, self._inventory, self.draft.total))

    def action_retry(self) -> None:
        """Try to reach the environment under the cursor."""
        pane = self.query_one(EnvironmentPane)
        if pane.highlighted is not None:
            self._retry(pane.highlighted)
            self.notify(_("Trying {name} again.").format(name=pane.name_of(pane.highlighted)), markup=False)

    @work
    async def action_preview(self) -> None:
        """Show what would run."""
        preview = await self._looked_ahead()
        if preview.plan is None or not preview.plan.nodes:
            self._refuse(self.state.validate() or preview.findings)
        else:
            plan, text = preview.plan, await self._file.text(self.state)
            screen = PreviewScreen(
                plan,
                (*self.state.validate(), *preview.findings),
                text,
                changes=lambda: self._drafts.changes(text, plan),
                shrinking=self._what_shrinks,
            )
            self.app.push_screen(screen, self._preview_left)

    def _preview_left(self, wanted: str | None) -> None:
        if wanted == EDIT:
            self.action_edit(self.action_preview)

    @work
    async def action_edit(self, then: Callable[[], object] = lambda: None) -> None:
        """Edit the job as text, and go on with something where what is left is a job."""

        def take(job: Job) -> None:
            self.set_state(ComposeState.from_job(job, self._inventory))

        await self._file.edit(self.app, self._drafts, lambda: self.state, take, self._save, then)

    @work(exclusive=True, group="check")
    async def action_check(self) -> None:
        """Check the hosts of the job, or say the first thing that keeps it from being launched."""
        plan = await self._launchable()
        if plan is None:
            return
        state = self.state

        def checker(ignored: frozenset[str], changed: Changed) -> Awaitable[Board]:
            return self._check(self._file.submission(state, self._inventory, ignored), plan, changed)

        def bench() -> object:
            return self._bench(self._file.submission(state, self._inventory))

        ignored = await self.app.push_screen_wait(ChecksScreen(plan, checker, self.draft.ignored, bench))
        self.draft.ignore(ignored, state)
        self.set_state(self.state)  # By what was measured meanwhile.

    async def _launchable(self) -> Plan | None:
        """Return the plan, or say the first thing that keeps it from being launched."""
        if missing := self.state.validate():
            self._refuse(missing)
            return None
        preview = await self._looked_ahead()
        if preview.plan is None or preview.plan.errors:
            self._refuse(preview.plan.errors if preview.plan is not None else preview.findings)
            return None
        return preview.plan

    def action_options(self, at: str = "") -> None:
        """Ask what the framework is told, beginning at a field."""
        self._take(run_dialogs.ask_for_options(self.app, self._drafts, self.state, at))

    def action_section(self, section: str, at: str = "") -> None:
        """Ask for a section of the job, beginning at a field."""
        self._take(run_dialogs.ask_for_section(self.app, self.state, section, at))

    def action_container(self, at: str = "") -> None:
        """Ask for the image to run in, beginning at a field."""
        self._take(run_dialogs.ask_for_container(self.app, self.state, at))

    def action_model(self) -> None:
        """Ask for the model."""
        self._take(cost_dialogs.ask_for_model(self.app, self.state))

    @work(exclusive=True, group="ask")
    async def _take(self, asked: Awaitable[ComposeState | None]) -> None:
        """Take the draft as a dialog gives it."""
        self.set_state(await asked or self.state)

    @work(exclusive=True, group="costs")
    async def action_recommend(self) -> None:
        """Offer degrees; the model is asked for first where it is not known."""
        if await cost_dialogs.has_model(self.app, self.draft, self.set_state):
            statuses = dict(self._fleet.statuses)
            state = await cost_dialogs.offer_layouts(self.app, self._drafts, self.state, self._inventory, statuses)
            self.set_state(state or self.state)

    @work(exclusive=True, group="costs")
    async def action_estimate(self) -> None:
        """Show what the job costs; the model is asked for first where it is not known."""
        if not await cost_dialogs.has_model(self.app, self.draft, self.set_state):
            return
        preview = await self._looked_ahead()
        if preview.plan is not None and preview.plan.estimate is not None:
            plan, shrinking = preview.plan, self._what_shrinks()
            self.app.push_screen(EstimateScreen(plan, preview.plan.estimate, shrinking, self._estimated_anew))
        else:
            cost_dialogs.tell_absence(self.app, await self.draft.cost_now())

    async def _estimated_anew(self) -> tuple[Plan, Shrinking] | None:
        plan = (await self._looked_ahead()).plan
        return None if plan is None else (plan, self._what_shrinks())

    def _what_shrinks(self) -> Shrinking:
        """Return what would shrink the largest parts of what the draft costs; some milliseconds, when it is shown."""
        cost = self.draft.cost
        return self._drafts.shrinking(cost, self.state.framework) if cost is not None else {}

    @work(exclusive=True, group="launch")
    async def action_launch(self) -> None:
        """Launch the job, or say the first thing that keeps it from being launched."""
        plan = await self._launchable()
        if plan is None:
            return
        state = self.state
        submission = self._file.submission(state, self._inventory, self.draft.ignored)
        asked_at = time.time()
        try:
            directory = await asyncio.to_thread(self._launch, submission, plan)
        except DttuiError as error:
            job_files.tell(self.app, error)
            return
        self._was_refused = False
        self._show_readiness()
        self.go_to("#environments")
        message = success_message(state, self._inventory, plan.aggregate)
        run_dialogs.tell_launched(self.app, directory, asked_at, message)
        self.post_message(JobLaunched(directory))

    @work
    async def action_save(self) -> None:
        """Ask where to, and save the job as a file."""
        await self._save()

    async def _save(self) -> ComposeState | None:
        """Ask where to, and save; return the job as its file has it now, `None` where it was not saved."""
        if (fault := self.state.fatal_fault) is not None:
            self._refuse((fault,))
            return None
        try:
            submission = self._file.submission(self.state, self._inventory)
        except UsageError as error:
            job_files.tell(self.app, error)
            return None
        options = job_files.apply_options(demo=self._demo, inventory_path=self._inventory_path)
        saved = await self._file.save(self.app, submission, options)
        self._keep(saved)
        return saved

    @work
    async def action_open(self) -> None:
        """Ask for a job file, and begin with it."""
        if not self.has_edits or await job_files.may_drop(self.app):
            self._keep(await self._file.open(self.app, self._inventory))

    @work
    async def action_new(self) -> None:
        """Ask for a template, and begin with a job of it."""
        if not self.has_edits or await job_files.may_drop(self.app):
            self._keep(await self._file.begin(self.app, self._drafts, self.state, self._inventory))

    # --- what follows from it -----------------------------------------------------------------------------------------

    def set_state(self, state: ComposeState, *, from_form: bool = False) -> None:
        """Take another state, and show it."""
        self.draft.become(state, is_cost_kept=from_form)  # Nothing that the form holds is part of the cost.
        for pane in self.query(EnvironmentPane):
            pane.mark(state.selected, state.master, self.draft.choices)
        self.query_one(JobPane).show(state, from_form=from_form)
        self._show_summary()
        self._show_readiness()
        self._estimate()
        self._look_ahead()

    def go_on_from(self, other: ComposeScreen) -> None:
        """Go on with the job of another screen, on this one's inventory."""
        self._file, self._kept = other._file, other._kept
        self.set_state(other.state)

    def _show_summary(self) -> None:
        state, choices, total = self.state, self.draft.choices, self.draft.total
        self.query_one(JobPane).sum_up(state, choices, total, self.draft.cost, is_fresh=self.draft.is_costed)
        strangers = len(state.selected) - len(choices)
        counted = ticked_line(len(state.selected), len(self._inventory.environments) + strangers, total)
        self.query_one(TitleBar).show(title_line(demo=self._demo), counted)

    def _show_readiness(self) -> None:
        plan = self.draft.preview.plan
        known = [self._fleet.statuses.get(key) for key in self.state.selected]
        line = readiness(
            self.state.validate(),
            has_errors=plan is not None and bool(plan.errors),
            is_planned=plan is not None,
            was_refused=self._was_refused,
            ticked=len(known),
            unusable=sum(status is not None and status.is_away for status in known),
            refused=self.draft.preview.refused_now,
            estimate=self.draft.estimate,
        )
        self.query_one("#readiness", Static).update(linked(line, "screen.mend") if self.draft.lacks else line)

    @work(group="estimate")
    async def _estimate(self) -> None:
        await self.draft.cost_now()

    def _show_cost(self) -> None:
        if self._is_there:
            self._show_summary()
            self._show_readiness()

    @work(exclusive=True, group="look-ahead")
    async def _look_ahead(self) -> None:
        await asyncio.sleep(LOOK_AHEAD_DELAY_S)
        await self._looked_ahead()

    async def _looked_ahead(self) -> DraftPreview:
        preview, is_current = await self.draft.preview_draft(self._file.base)
        if is_current and self._is_there:
            state = self.state
            self.query_one(FindingList).show(preview.findings, lambda item: place_of(item, state) is not None)
            self._show_readiness()
            self.refresh_bindings()
        return preview

    @property
    def _is_there(self) -> bool:
        """Whether the screen is still one of the app's: a look at a plan may end after it was left."""
        return self.app.is_running and self in self.app.screen_stack

    def _refuse(self, findings: tuple[Finding, ...]) -> None:
        """Say the first reason, and go to where it can be put right."""
        self._was_refused = True
        self._show_readiness()
        if not findings:
            return
        first = findings[0]
        self.notify(clean(first.message), title=symbols.severity(first.severity).word, severity="error", markup=False)
        place = place_of(first, self.state)
        if place is not None and place.selector:
            self.go_to(place.selector)

    def _keep(self, state: ComposeState | None) -> None:
        """Take the job as its file has it now; `None` where nothing was saved or opened."""
        if state is not None:
            self._kept = state
            self.set_state(state)

    def _go_to_place(self, place: FieldPlace) -> None:
        """Go to the field that mends something."""
        if place.environment:
            self.go_to("#environments")
            self.query_one(EnvironmentPane).point_at(place.environment)
        elif place.section:
            self.action_section(place.section, place.field)
        elif place.selector == "#options":
            self.action_options(place.field)
        elif place.selector == "#container":
            self.action_container(place.field)
        else:
            self.go_to(place.selector)
