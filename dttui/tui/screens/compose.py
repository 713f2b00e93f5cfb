"""The start screen: tick environments, see what they add up to, fill in the job, launch. Rules are elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Button, Input, Static, Tab, Tabs

from dttui.errors import DttuiError, UsageError
from dttui.frameworks import FRAMEWORKS
from dttui.i18n import _, ngettext
from dttui.inventory.models import Inventory
from dttui.planning.aggregate import Choice, aggregate
from dttui.planning.compose import ComposeState
from dttui.planning.models import Aggregate, Finding, Plan
from dttui.planning.summary import estimate_text, success_message
from dttui.sanitize import clean
from dttui.services import documents
from dttui.services.draft import Outlook, facts_of, look_ahead
from dttui.services.fleet import EnvironmentStatus, Fleet
from dttui.services.jobs import JobDirectory
from dttui.services.launch import Submission
from dttui.spec import Job
from dttui.tui import words
from dttui.tui.commands import N_
from dttui.tui.messages import (
    EnvironmentHighlighted,
    EnvironmentToggled,
    FormEdited,
    FrameworkChosen,
    MasterChosen,
)
from dttui.tui.rows import SORTS, arranged, environment_detail, environment_row, gpu_text, line
from dttui.tui.screens.dialogs import ChoiceDialog, PathDialog
from dttui.tui.screens.preview import PreviewScreen
from dttui.tui.widgets.distributed_panel import DistributedPanel
from dttui.tui.widgets.empty_inventory import EmptyInventory
from dttui.tui.widgets.environment_list import EnvironmentList
from dttui.tui.widgets.environment_row import EnvironmentRow
from dttui.tui.widgets.finding_list import FindingList
from dttui.tui.widgets.job_form import FormValues, JobForm
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.prose import Prose
from dttui.tui.widgets.summary import Chosen, Summary
from dttui.tui.widgets.title_bar import TitleBar

REFRESH_S = 0.25
AGES_S = 20.0
LOOK_AHEAD_DELAY_S = 0.15
"""So that typing does not plan at every key."""

Launcher = Callable[[Submission, Plan], JobDirectory]

_FIELDS = {
    "name-missing": "#task-name",
    "dataset-missing": "#dataset",
    "environment-missing": "#environments",
    "master-invalid": "#master",
    "framework-missing": "#framework",
    "script-missing": "#program",
    "arguments-invalid": "#arguments",
}
"""Where to go to put right what `ComposeState.validate` finds."""


@dataclass
class JobLaunched(Message):
    """A job was handed to a controller of its own."""

    directory: JobDirectory


class ComposeScreen(Screen[None]):
    """Holds one ComposeState; every change goes through `_become`."""

    AUTO_FOCUS = "#environments, EmptyInventory Button"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", N_("filter"), id="compose.filter", tooltip=N_("Show only what has these words")),
        Binding("ctrl+l", "launch", N_("launch"), id="compose.launch", priority=True, tooltip=N_("Launch the job")),
        Binding("p", "preview", N_("preview"), id="compose.preview", tooltip=N_("Show the plan: what would run where")),
        Binding("s", "sort", N_("sort"), id="compose.sort", tooltip=N_("Sort in another way")),
        Binding("v", "view", N_("view"), id="compose.view", tooltip=N_("Change between environments and job")),
        Binding("ctrl+s", "save", N_("save"), id="compose.save", priority=True, tooltip=N_("Save the job as a file")),
        Binding("o", "open", N_("open"), show=False, id="compose.open", tooltip=N_("Open a job file")),
        Binding(
            "r", "retry", N_("retry"), show=False, id="compose.retry", tooltip=N_("Try to reach the environment again")
        ),
        Binding("escape", "leave", N_("list"), id="compose.list", tooltip=N_("Go back to the list")),
    ]

    def __init__(
        self,
        inventory: Inventory,
        fleet: Fleet,
        *,
        inventory_path: Path | None,
        draft: Job | None,
        base: Path,
        launch: Launcher,
        retry: Callable[[str], None],
    ) -> None:
        """Compose jobs on the environments of `inventory`, as `fleet` sees them.

        Args:
            inventory: environments and datasets.
            fleet: their live state.
            inventory_path: where it was read from; `None` for the embedded cluster.
            draft: job to begin with.
            base: directory that the draft's relative paths start from.
            launch: starts a planned job.
            retry: tries an environment again, with its questions.
        """
        super().__init__()
        self.state = ComposeState.from_job(draft, inventory) if draft is not None else ComposeState()
        self._inventory = inventory
        self._fleet = fleet
        self._inventory_path = inventory_path
        self._base = base
        self._file: Path | None = None
        self._launch = launch
        self._retry = retry
        self._rows: dict[str, EnvironmentRow] = {}
        self._seen: dict[str, EnvironmentStatus] = {}
        self._sort = 0
        self._outlook = Outlook(None, ())
        self._was_refused = False

    # --- what is there ------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Lay out list, summary, form, findings and actions."""
        yield TitleBar(Content.assemble(("dttui ", "bold"), (_("compose"), "bold $primary")))
        yield Tabs(Tab(_("Environments"), id="page-environments"), Tab(_("Job"), id="page-job"), id="pages")
        with Horizontal(id="compose-body"):
            with Vertical(id="compose-left"):
                if self._inventory.environments:
                    yield Static(id="list-caption")
                    yield Input(
                        id="filter", compact=True, placeholder=_("filter: words of name, zone, image, GPU, state")
                    )
                    yield EnvironmentList(id="environments")
                    yield Prose(id="detail")
                else:
                    path = self._inventory_path
                    yield EmptyInventory(str(path) if path is not None else None, id="empty")
            with VerticalScroll(id="compose-right", can_focus=False):
                yield Summary(id="summary")
                with Vertical(id="compose-fields"):
                    yield DistributedPanel(id="distributed")
                    yield JobForm(self._inventory.datasets, id="form")
        yield FindingList(id="findings")
        with Horizontal(id="actions"):
            yield Static(id="readiness")
            yield Button(_("Preview"), id="preview", compact=True)
            yield Button(_("Launch"), id="launch", variant="primary", compact=True)
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the draft, and follow the fleet."""
        self._show_page("page-environments")
        self._refresh_rows()
        self._arrange()
        self._become(self.state)
        self.query_one(Tabs).can_focus = False
        self.set_interval(REFRESH_S, self._refresh_rows)
        self.set_interval(AGES_S, self._refresh_ages)

    def on_resize(self) -> None:
        """Head the list anew: a narrow screen has the word on its tab."""
        self.call_after_refresh(self._arrange)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to change the view only where one view is shown at a time, and list commands only with a list."""
        if action == "view":
            return self.has_class("-narrow")
        if action == "leave":
            is_elsewhere = self.focused is not None and self.focused.id != "environments"
            return is_elsewhere and bool(self._inventory.environments)
        if action in ("filter", "sort", "retry"):
            return bool(self._inventory.environments)
        return True

    # --- what a person does -------------------------------------------------------------------------------------------

    @on(EnvironmentToggled)
    def _toggled(self, event: EnvironmentToggled) -> None:
        self._become(self.state.toggle(event.key))

    @on(MasterChosen)
    def _master_chosen(self, event: MasterChosen) -> None:
        if event.key in self.state.selected:
            self._become(self.state.choose_master(event.key))
        else:
            self.notify(_("Tick the environment first; the master is one of those ticked."), markup=False)

    @on(FrameworkChosen)
    def _framework_chosen(self, event: FrameworkChosen) -> None:
        framework = next(item for item in FRAMEWORKS if item.name == event.name)
        if framework.available and framework.name != self.state.framework:
            self._become(self.state.choose_framework(framework.name))  # type: ignore[arg-type]  # names of FRAMEWORKS are these
        elif not framework.available:
            self.notify(_("{framework} is not there yet.").format(framework=framework.label), markup=False)
            self._become(self.state)

    @on(FormEdited)
    def _form_edited(self) -> None:
        values = self.query_one(JobForm).values
        self._become(
            replace(
                self.state,
                task_name=values.task_name,
                program=values.program,
                arguments=values.arguments,
                workdir=values.workdir,
                dataset=values.dataset,  # type: ignore[arg-type]  # a DatasetRef, "none" or None
            ),
            from_form=True,
        )

    @on(EnvironmentHighlighted)
    def _highlighted(self) -> None:
        self._show_detail()

    @on(Input.Changed, "#filter")
    def _filtered(self) -> None:
        self._arrange()

    @on(Input.Submitted, "#filter")
    def _filter_done(self) -> None:
        self.query_one(EnvironmentList).focus()

    @on(Tabs.TabActivated, "#pages")
    def _page_chosen(self, event: Tabs.TabActivated) -> None:
        if event.tab.id is not None:
            self._show_page(event.tab.id)

    @on(Button.Pressed, "#preview")
    def _preview_pressed(self) -> None:
        self.action_preview()

    @on(Button.Pressed, "#launch")
    def _launch_pressed(self) -> None:
        self.action_launch()

    def action_filter(self) -> None:
        """Go to the filter."""
        self._go_to("#filter")

    def action_sort(self) -> None:
        """Sort in the next way."""
        self._sort = (self._sort + 1) % len(SORTS)
        self._arrange()

    def action_view(self) -> None:
        """Show the other page of a narrow screen."""
        tabs = self.query_one(Tabs)
        tabs.active = "page-job" if tabs.active == "page-environments" else "page-environments"

    def action_leave(self) -> None:
        """Drop the filter, and go back to the list."""
        if not self._inventory.environments:
            return
        if self.focused is not None and self.focused.id == "filter":
            self.query_one("#filter", Input).value = ""
        self._go_to("#environments")

    def action_retry(self) -> None:
        """Try to reach the environment under the cursor."""
        key = self.query_one(EnvironmentList).highlighted
        if key is not None:
            self._retry(key)
            self.notify(_("Trying {name} again.").format(name=self._rows[key].name), markup=False)

    @work
    async def action_preview(self) -> None:
        """Show what would run."""
        outlook = await self._looked_ahead()
        if outlook.plan is None or not outlook.plan.nodes:
            self._refuse(self.state.validate() or outlook.findings)
        else:
            self.app.push_screen(PreviewScreen(outlook.plan, outlook.findings))

    @work(exclusive=True, group="launch")
    async def action_launch(self) -> None:
        """Launch the job, or say the first thing that keeps it from being launched."""
        missing = self.state.validate()
        if missing:
            self._refuse(missing)
            return
        outlook = await self._looked_ahead()
        if outlook.plan is None or outlook.plan.errors:
            self._refuse(outlook.plan.errors if outlook.plan is not None else outlook.findings)
            return
        state, plan = self.state, outlook.plan
        submission = Submission(state.to_job(), self._inventory, self._base)
        try:
            directory = await asyncio.to_thread(self._launch, submission, plan)
        except DttuiError as error:
            self._tell(error)
            return
        self._was_refused = False
        self._show_readiness()
        title, description = success_message(state, self._inventory, plan.aggregate)
        self.notify(clean(description), title=clean(title), markup=False)
        self.post_message(JobLaunched(directory))

    @work
    async def action_save(self) -> None:
        """Ask where to, and save the job as a file."""
        try:
            submission = Submission(self.state.to_job(), self._inventory, self._base)
        except UsageError as error:
            self._tell(error)
            return
        suggestion = str(self._file or self._base / "job.yaml")
        text = _("`dttui --apply` runs the saved file just as this screen does.")
        answer = await self.app.push_screen_wait(PathDialog(_("Save the job"), text, _("Save"), suggestion))
        if answer is None or not await self._may_write(Path(answer)):
            return
        try:
            saved = await asyncio.to_thread(documents.save_job, Path(answer), submission)
        except DttuiError as error:
            self._tell(error)
            return
        self._take(saved, Path(answer))
        self.notify(_("Saved {file}.").format(file=answer), markup=False)

    @work
    async def action_open(self) -> None:
        """Ask for a job file, and begin with it."""
        text = _("Its environments are ticked, and its fields filled in.")
        answer = await self.app.push_screen_wait(PathDialog(_("Open a job"), text, _("Open"), str(self._base)))
        if answer is None:
            return
        try:
            opened = await asyncio.to_thread(documents.open_job, Path(answer), self._inventory)
        except DttuiError as error:
            self._tell(error)
            return
        self._take(opened, Path(answer))

    # --- what follows from it -----------------------------------------------------------------------------------------

    def _become(self, state: ComposeState, *, from_form: bool = False) -> None:
        self.state = state
        if self._inventory.environments:
            self.query_one(EnvironmentList).mark(state.selected, state.master)
        names = [(key, self._rows[key].name if key in self._rows else line(key)) for key in state.selected]
        self.query_one(DistributedPanel).show(names, state.master, state.framework)
        if not from_form:
            values = FormValues(state.task_name, state.program, state.arguments, state.workdir, state.dataset)
            self.query_one(JobForm).show(values, state.program_kind)
        self._show_summary()
        self._show_readiness()
        self._look_ahead()

    def _show_summary(self) -> None:
        state = self.state
        choices = state.choices(self._inventory, facts_of(self._fleet.statuses))
        total = aggregate(choices) if choices else None
        plan = self._outlook.plan
        ranks = plan.world_size if plan is not None and len(plan.nodes) == len(choices) else None
        self.query_one(Summary).follow(total, ranks, estimate_text(state), [self._chosen(choice) for choice in choices])
        title = Content.assemble(("dttui ", "bold"), (_("compose"), "bold $primary"))
        self.query_one(TitleBar).show(title, self._count(total))

    def _chosen(self, choice: Choice) -> Chosen:
        environment = choice.environment
        is_master = self.state.has_badge(environment.key)
        return Chosen(line(environment.name), gpu_text(choice, memory=False), is_master, environment.simulated)

    def _count(self, total: Aggregate | None) -> Content:
        ticked = _("{ticked} of {total} ticked").format(
            ticked=len(self.state.selected), total=len(self._inventory.environments)
        )
        pieces: list[Content | tuple[str, str] | str] = [(ticked, "bold")] if self._inventory.environments else []
        if total is not None:
            pieces.append(
                " · " + ngettext("{count} GPU", "{count} GPUs", total.gpu_count).format(count=total.gpu_count)
            )
            zones = len(total.zones)
            if zones:
                pieces.append(" · " + ngettext("{count} zone", "{count} zones", zones).format(count=zones))
            if zones > 1:
                pieces.append((" ⚠", "bold $warning"))
        return Content.assemble(*pieces)

    def _show_readiness(self) -> None:
        missing = self.state.validate()
        text = Content("")
        if missing and (self._was_refused or self.state.selected):
            word = "$finding-error" if self._was_refused else "$muted"
            text = Content.styled(("✗ " if self._was_refused else "○ ") + missing[0].message, word)
        elif not missing and self._outlook.plan is not None and self._outlook.plan.errors:
            text = Content.styled("✗ " + _("the errors above forbid the launch"), "$finding-error")
        elif not missing:
            text = Content.styled("✓ " + _("ready to launch"), "$state-succeeded")
        self.query_one("#readiness", Static).update(text)

    @work(exclusive=True, group="look-ahead")
    async def _look_ahead(self) -> None:
        await asyncio.sleep(LOOK_AHEAD_DELAY_S)
        await self._looked_ahead()

    async def _looked_ahead(self) -> Outlook:
        state = self.state
        statuses = dict(self._fleet.statuses)
        outlook = await asyncio.to_thread(look_ahead, state, self._inventory, statuses, self._base)
        if state == self.state:
            self._outlook = outlook
            self.query_one(FindingList).show(outlook.findings)
            self._show_summary()
            self._show_readiness()
        return outlook

    def _refuse(self, findings: tuple[Finding, ...]) -> None:
        """Say the first reason, and go to where it can be put right."""
        self._was_refused = True
        self._show_readiness()
        if not findings:
            return
        first = findings[0]
        self.notify(clean(first.message), title=words.severity(first.severity).word, severity="error", markup=False)
        if first.code in _FIELDS:
            self._go_to(_FIELDS[first.code])

    def _tell(self, error: DttuiError) -> None:
        text = f"{error.message}\n→ {error.hint}" if error.hint else error.message
        self.notify(clean(text), title=_("error"), severity="error", markup=False, timeout=12)

    async def _may_write(self, path: Path) -> bool:
        if not await asyncio.to_thread(documents.is_there, path):
            return True
        text = _("{file} is there already. Replace it?").format(file=path)
        choices = (("no", _("Keep it"), "default"), ("yes", _("Replace"), "error"))
        dialog = ChoiceDialog(_("Save the job"), clean(text), choices)  # type: ignore[arg-type]  # literal variants
        return await self.app.push_screen_wait(dialog) == "yes"

    def _take(self, submission: Submission, path: Path) -> None:
        self._file = path
        self._base = submission.base
        self._become(ComposeState.from_job(submission.job, self._inventory))

    def _go_to(self, selector: str) -> None:
        """Show the page that a widget is on, and put the focus there."""
        found = self.query(selector)
        if not found:
            return
        widget = found.first()
        on_list = selector in ("#environments", "#filter")
        self.query_one(Tabs).active = "page-environments" if on_list else "page-job"
        self._show_page("page-environments" if on_list else "page-job")
        if selector == "#filter":
            widget.display = True
        self.call_after_refresh(widget.focus)

    def _show_page(self, page: str) -> None:
        """Choose the page of a narrow screen; a wide one shows both."""
        self.set_class(page == "page-environments", "-on-environments")
        self.set_class(page == "page-job", "-on-job")
        if (
            self.has_class("-narrow")
            and page == "page-job"
            and self.focused is not None
            and self.focused.id == "environments"
        ):
            self.call_after_refresh(self.query_one("#task-name").focus)

    # --- the list -----------------------------------------------------------------------------------------------------

    def _refresh_rows(self) -> None:
        """Look at the fleet, and pass on what changed."""
        changed = {
            key: environment_row(status)
            for key, status in self._fleet.statuses.items()
            if self._seen.get(key) is not status
        }
        if not changed or not self._inventory.environments:
            return
        before = {key: self._seen.get(key) for key in changed if key in self.state.selected}
        self._seen.update((key, self._fleet.statuses[key]) for key in changed)
        listed = self.query_one(EnvironmentList)
        if self._rows:
            self._rows.update(changed)
            listed.update_rows(changed)
        else:
            self._rows = changed
            listed.set_rows(changed)
        if listed.highlighted in changed:
            self._show_detail()
        if any(_differs(self._seen[key], old) for key, old in before.items()):
            self._become(self.state)

    def _refresh_ages(self) -> None:
        if self._inventory.environments:
            self.query_one(EnvironmentList).refresh_ages()

    def _arrange(self) -> None:
        if not self._inventory.environments:
            return
        field = self.query_one("#filter", Input)
        field.display = bool(field.value) or field.has_focus
        name, label, _key = SORTS[self._sort]
        order = arranged(self._rows, field.value, name)
        self.query_one(EnvironmentList).show(order)
        caption = [Content.styled(_("sorted by {order}").format(order=label()), "$muted")]
        if not self.has_class("-narrow"):
            caption.insert(0, Content.styled(_("Environments"), "bold"))
        if len(order) < len(self._rows):
            few = _("{shown} of {total} shown").format(shown=len(order), total=len(self._rows))
            caption.append(Content.styled(few, "$warning"))
        self.query_one("#list-caption", Static).update(Content("  ").join(caption))
        self._show_detail()

    def _show_detail(self) -> None:
        key = self.query_one(EnvironmentList).highlighted
        lines = environment_detail(self._fleet.statuses[key]) if key is not None else []
        if not lines:
            lines = [(_("No environment has these words."), "muted")]
        text = Content("\n").join(Content.styled(text, f"${colour}") for text, colour in lines)
        self.query_one("#detail", Prose).show(text)


def _differs(status: EnvironmentStatus, before: EnvironmentStatus | None) -> bool:
    """Whether more than the readings changed, so that the plan may be another."""
    return before is None or (status.state, status.reason, status.facts) != (before.state, before.reason, before.facts)
