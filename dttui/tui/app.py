"""The terminal app: themes, the fleet, and which screen is shown. It wires; rules and work are elsewhere."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on, work
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.reactive import reactive
from textual.screen import Screen

from dttui import jobs
from dttui.app import App as Face
from dttui.errors import DttuiError
from dttui.i18n import _, language, set_language
from dttui.jobs import JobBrief, JobDirectory
from dttui.sanitize import clean
from dttui.tui.app_ways import AppWays
from dttui.tui.attachments import Attachments
from dttui.tui.bench_watch import Benches
from dttui.tui.commands import N_
from dttui.tui.draft_keeper import KEEP_S, DraftKeeper
from dttui.tui.job_line import job_line
from dttui.tui.job_notices import JobNotices
from dttui.tui.leaving import leave_question, running_jobs
from dttui.tui.messages import DemoWanted, ImportWanted, JobChosen, JobLaunched
from dttui.tui.own_log import log_to_file
from dttui.tui.preferences import Preferences
from dttui.tui.prompts import PromptQueue, ScreenPrompter
from dttui.tui.screens.dialogs import ChoiceDialog, Question
from dttui.tui.screens.jobs import JobsScreen
from dttui.tui.screens.opening import OpeningScreen
from dttui.tui.theme import DEFAULT_THEME, check_theme, load_theme, theme_files

if TYPE_CHECKING:
    from dttui.app import Fleet, Transport
    from dttui.inventory import Inventory
    from dttui.jobs import Board, Changed
    from dttui.planning import Plan, Submission
    from dttui.spec import Job
    from dttui.tui.host_work import HostWork
    from dttui.tui.screens.compose import Checks, ComposeScreen, Launcher

FAULT_S = 30.0
"""For which it is told what is wrong with a person's own theme."""
ANSWER_S = 0.1
"""Between two looks at whether a person has answered."""
BRIEFS_S = 2.0
"""How often it is looked what runs."""
WIDE = 116
"""Columns from which list and form stand side by side; below, they are two pages."""
HOSTS = "hosts"
"""Id of the screen of hosts."""
LEAVE_DIALOG = "leave"
"""Group of the worker that asks before quitting."""
COMPOSING = "dttui.tui.screens.compose"
"""With all that plans: its imports take as long as the rest of a start, and wait until hosts are on the screen."""


@dataclass(frozen=True)
class TuiOptions:
    """What the app begins with."""

    inventory: Inventory
    """Environments and datasets; empty where there is no file yet."""
    inventory_path: Path | None
    """Where imported hosts are saved; `None` for the embedded cluster."""
    transport: Transport | None = None
    """Way to the hosts; as the inventory says, where none is given."""
    demo: bool = False
    """Whether this is the embedded cluster."""
    theme: str | None = None
    """Theme to use instead of the one that is set."""
    language: str | None = None
    """Language that was asked for, which goes before the one that is set."""
    plain: bool = False
    """Whether the screen is read aloud, whatever is set."""
    draft: Job | None = None
    """Job to begin with."""
    base: Path = Path()
    """Directory that the draft's relative paths start from."""
    file: Path | None = None
    """Job file that the draft was read from."""
    attach: JobDirectory | None = None
    """Job to show at once."""
    replay_speed: float | None = None
    """At which that job's past is told, and nothing else shown; `None` to show it as it is."""
    launch: Launcher | None = None
    """What starts a planned job, where it is not to be launched."""
    check: Checks | None = None
    """What checks the hosts of one, where they are not to be asked."""


def run_app(options: TuiOptions) -> int:
    """Show the app until the person leaves it; return the exit status.

    Raises:
        UsageError: there is no theme of that name.
    """
    # That of the process, whoever is spoken to: a person may choose another one on the screen.
    set_language(options.language or language())
    app = DttuiApp(options)
    log_to_file()
    # What is loaded lives as long as the app; with thousands of environments looking at it again costs 0.1 s each time.
    gc.freeze()
    app.run()
    return app.return_code or 0


class DttuiApp(AppWays):
    """Owns what outlives a screen: fleet, questions, conversations with controllers."""

    TITLE = "dttui"
    CSS_PATH: ClassVar[list[str | Any]] = [
        "app.tcss",
        "widgets/environment_list.tcss",
        "widgets/node_grid.tcss",
        "widgets/metric_plots.tcss",
        "widgets/job_list.tcss",
        "screens/compose.tcss",
        "screens/preview.tcss",
        "screens/estimate.tcss",
        "screens/checks.tcss",
        "screens/bench.tcss",
        "screens/run.tcss",
        "screens/jobs.tcss",
        "screens/hosts.tcss",
        "screens/compare.tcss",
        "screens/settings.tcss",
    ]
    ROUTES: ClassVar[Mapping[str, str]] = {**AppWays.ROUTES, "jobs": "jobs", "run": "watch_job", "log": "watch_job"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "watch_job", N_("go to job"), id="app.watch", tooltip=N_("Watch the job that the bar tells of")),
        Binding("h", "hosts", N_("hosts"), id="app.hosts", tooltip=N_("Show all hosts and their agents")),
        Binding("j", "jobs", N_("jobs"), id="app.jobs", tooltip=N_("Show all jobs of this login node")),
        Binding(
            "ctrl+q",
            "leave",
            N_("quit"),
            id="app.quit",
            priority=True,
            tooltip=N_("Quit; jobs go on running"),
        ),
        Binding("q", "leave", N_("quit"), id="app.quit-too", tooltip=N_("Quit; jobs go on running")),
    ]

    briefs: reactive[tuple[JobBrief, ...]] = reactive(())
    """What runs on this login node, and what has failed."""

    def __init__(self, options: TuiOptions) -> None:
        self._themes = theme_files()
        self.preferences = Preferences(self._themes, self._speak, language=options.language, plain=options.plain)
        wanted = check_theme(options.theme, self._themes) if options.theme else self.preferences.theme(self._themes)
        themes = {name: load_theme(self._themes[name]) for name in {DEFAULT_THEME, wanted}}
        self._defaults = dict(themes[DEFAULT_THEME].variables)
        super().__init__()
        self.animation_level = "none"
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (160, "-roomy")]
        self.VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]
        for theme in themes.values():
            self.register_theme(theme)
        self.theme = wanted
        for name in set(self.available_themes) - set(themes):
            self.unregister_theme(name)
        self.options = options
        self._face = Face(transport=options.transport)
        self.questions = PromptQueue(self)
        self._fleet_prompter = ScreenPrompter(self.questions, remembers_refusals=True)
        self.attachments = Attachments(self._face, ScreenPrompter(self.questions, remembers_refusals=False))
        self.benches = Benches(self._face, self.attachments, lambda follow: self.run_worker(follow, group="benches"))
        self.fleet = self._make_fleet()
        self.preferences.draw(self)
        self.notices = JobNotices(self, self.preferences)
        self.drafts = DraftKeeper(self, self._face.drafts, self._inventory_file)
        self._jobs = self._face.screens.briefs()
        self._is_looking = False

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return the meanings' colours for a theme that lacks one."""
        return self._defaults

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Offer what goes for every screen."""
        yield SystemCommand(_("Theme"), _("Change the colours"), self.action_change_theme)

    async def on_mount(self) -> None:
        """Begin to watch the environments, and to compose a job; or tell of one that has run."""
        if self.options.attach is not None and self.options.replay_speed is not None:
            from dttui.tui.screens.replay import ReplayScreen

            self.preferences.begin(self)
            speed = self.options.replay_speed
            await self.push_screen(ReplayScreen(self.options.attach, self._face, self.attachments, speed=speed))
            return
        if COMPOSING in sys.modules:
            await self._begin()
            return
        options = self.options
        await self.push_screen(OpeningScreen(self.fleet, options.inventory_path, demo=options.demo))
        self.call_after_refresh(self._open)

    @work
    async def _open(self) -> None:
        await asyncio.to_thread(import_module, COMPOSING)
        await self._begin()

    async def _begin(self) -> None:
        self.fleet.start()
        self._load_other_themes()
        self.preferences.begin(self)
        self._look_at_jobs()
        self.set_interval(BRIEFS_S, self._look_at_jobs)
        self.set_interval(KEEP_S, self.drafts.look)
        if isinstance(self.screen, OpeningScreen):
            await self.switch_screen(self._compose())
        elif len(self.screen_stack) == 1:  # Else another inventory was chosen meanwhile.
            await self.push_screen(self._compose())
        if self.options.attach is not None:
            self._watch(self.options.attach, just_launched=False)
        else:
            self.run_worker(self.drafts.offer(), group="draft")

    def _load_other_themes(self) -> None:
        """Have all themes to choose from; each takes a moment, which the first look at a screen does not wait for."""
        for name, path in self._themes.items():
            if name not in self.available_themes:
                try:
                    self.register_theme(load_theme(path))
                except DttuiError as error:
                    self.notify(clean(str(error)), severity="warning", markup=False, timeout=FAULT_S)

    @work(group="briefs")
    async def _look_at_jobs(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            try:
                self.briefs = await asyncio.to_thread(self._jobs.look)
            except OSError as fault:  # A home that does not answer, say: the bar stays as it was.
                logging.getLogger(__name__).warning("jobs cannot be read: %s", fault)
            finally:
                self._is_looking = False

    def _watch(self, directory: JobDirectory, *, just_launched: bool) -> None:
        from dttui.tui.screens.run import RunScreen

        screen = RunScreen(directory, self._face, self.attachments, just_launched=just_launched)
        if isinstance(self.screen, RunScreen):
            self.switch_screen(screen)
        else:
            self.push_screen(screen)

    async def on_unmount(self) -> None:
        """Let go of hosts and controllers; jobs go on."""
        await self.fleet.close()
        await self.attachments.close()
        await self._face.close()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer only what is not shown already."""
        if action == "watch_job":
            return self._next_job() is not None
        if action == "hosts":
            is_begun = self.options.replay_speed is None and not isinstance(self.screen, OpeningScreen)
            return is_begun and getattr(self.screen, "id", None) != HOSTS
        return not isinstance(self.screen, JobsScreen) if action == "jobs" else True

    def watch_briefs(self, before: tuple[JobBrief, ...], now: tuple[JobBrief, ...]) -> None:
        """Offer to go to a job, or no more; tell of those that have ended."""
        self.notices.look(before, now)
        if [brief.job_id for brief in before] != [brief.job_id for brief in now]:
            self.screen.refresh_bindings()

    def job_line(self, but: str) -> Content:
        """Return what runs and what has failed, of all jobs but one, as the bar tells it."""
        return job_line([brief for brief in self.briefs if brief.job_id != but], self.size.width)

    def _next_job(self) -> str | None:
        """Return the job that the bar tells of first; of several, from the screen of one the one behind it."""
        ids = [brief.job_id for brief in self.briefs]
        beneath = next((screen for screen in reversed(self.screen_stack) if not screen.is_modal), None)
        shown = getattr(beneath, "directory", None)
        at = ids.index(shown.job_id) + 1 if isinstance(shown, JobDirectory) and shown.job_id in ids else 0
        return next((job_id for job_id in [*ids[at:], *ids[:at]] if shown is None or job_id != shown.job_id), None)

    def action_watch_job(self) -> None:
        """Show the job that the bar tells of."""
        job_id = self._next_job()
        if job_id is not None:
            self.post_message(JobChosen(job_id))

    async def on_event(self, event: events.Event) -> None:
        """Keep a key from a question that came up while a person was typing something else."""
        if isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded and self.questions.drops_key():
            return
        await super().on_event(event)

    async def _speak(self) -> None:
        """Have all screens say what they say in the language chosen now."""
        self._jobs = self._face.screens.briefs()
        await self.tell_anew()
        self._look_at_jobs()

    def action_jobs(self) -> None:
        """Show all jobs."""
        self.push_screen(JobsScreen(self._face, self.attachments, self.options.launch))

    def action_hosts(self) -> None:
        """Show all hosts."""
        from dttui.tui.screens.hosts import HostsScreen

        path = self.options.inventory_path
        self.push_screen(HostsScreen(self.fleet, self.host_work, None if path is None else str(path), id=HOSTS))

    @cached_property
    def host_work(self) -> HostWork:
        """What is done on hosts."""
        from dttui.tui.host_work import HostWork
        from dttui.tui.screens.job_files import apply_options

        options = apply_options(demo=self.options.demo, inventory_path=self.options.inventory_path)
        return HostWork(
            self._face,
            ScreenPrompter(self.questions, remembers_refusals=False),
            lambda act: self.run_worker(act, group="host-work"),
            lambda key: self._try_again(self.fleet, key, drops=True),
            options,
        )

    def action_help_quit(self) -> None:
        """Say how to quit: ctrl+c is what many would try first."""
        self.notify(_("ctrl+q quits; jobs go on running."), markup=False)

    def action_leave(self) -> None:
        """Quit, unless that is being asked about already."""
        if not any(worker.group == LEAVE_DIALOG and not worker.is_finished for worker in self.workers):
            self._leave()

    @work(group=LEAVE_DIALOG)
    async def _leave(self) -> None:
        """Quit; where jobs run, say that they go on, and where edits would be lost, ask."""
        has_edits = any(getattr(screen, "has_edits", False) for screen in self.screen_stack)

        async def follow() -> Question:
            return leave_question(await asyncio.to_thread(running_jobs), has_edits=has_edits)

        running = await asyncio.to_thread(running_jobs)
        if has_edits or (running and self.preferences.settings.confirm_quit):
            title = _("Leave without saving?") if has_edits else _("Quit")
            question = leave_question(running, has_edits=has_edits)
            dialog = ChoiceDialog(title, question.text, question.choices, follow=follow)
            if await self.push_screen_wait(dialog) != "quit":
                return
        await self.drafts.drop()
        self.exit()

    @on(JobLaunched)
    def _job_launched(self, event: JobLaunched) -> None:
        self._watch(event.directory, just_launched=True)

    @on(JobChosen)
    def _job_chosen(self, event: JobChosen) -> None:
        try:
            directory = jobs.find(event.job_id)
        except DttuiError as error:
            self.notify(clean(error.message), severity="error", markup=False)
            return
        self._watch(directory, just_launched=False)

    @on(DemoWanted)
    async def _demo_wanted(self) -> None:
        from dttui.compose import documents

        try:
            inventory, submission = documents.load_demo()
        except DttuiError as error:
            self.notify(clean(error.message), severity="error", markup=False)
            return
        job, base = submission.job, submission.base
        options = replace(self.options, inventory=inventory, inventory_path=None, demo=True)
        await self._use(replace(options, draft=job, base=base, file=None))

    @on(ImportWanted)
    def _import_wanted(self) -> None:
        self._import_hosts()

    @work
    async def _import_hosts(self) -> None:
        from dttui.tui.screens.host_import import import_hosts

        path = self.options.inventory_path
        inventory = await import_hosts(self, path, self.options.inventory) if path is not None else None
        if inventory is not None:
            await self._use(replace(self.options, inventory=inventory), keeps_draft=True)

    async def _use(self, options: TuiOptions, *, keeps_draft: bool = False) -> None:
        """Compose on another inventory from now on; the job stays as it is where it is to be kept."""
        from dttui.tui.screens.compose import ComposeScreen

        if self.screen.is_modal:  # Who is asked something is left time to answer.
            self.set_timer(ANSWER_S, partial(self._use, options, keeps_draft=keeps_draft))
            return
        self.options, fleet = options, self.fleet
        self.fleet = self._make_fleet()
        self.fleet.start()
        was_on_hosts = self.screen.id == HOSTS
        while len(self.screen_stack) > 2 and not isinstance(self.screen, ComposeScreen):  # Or it is being imported yet.
            await self.pop_screen()
        before, after = self.screen, self._compose()
        await self.switch_screen(after)
        if keeps_draft and isinstance(before, ComposeScreen):
            after.go_on_from(before)
        if was_on_hosts:
            self.action_hosts()
        await fleet.close()

    def _inventory_file(self) -> str | None:
        path = self.options.inventory_path
        return None if self.options.demo or path is None else str(path)

    def _make_fleet(self) -> Fleet:
        return self._face.watch(self.options.inventory.environments, self._fleet_prompter)

    def _compose(self) -> ComposeScreen:
        from dttui.tui.screens.compose import ComposeScreen
        from dttui.tui.screens.job_files import JobFile

        options = self.options
        return ComposeScreen(
            options.inventory,
            self.fleet,
            inventory_path=options.inventory_path,
            demo=options.demo,
            draft=options.draft,
            file=JobFile.at(options.base.resolve(), options.file),
            drafts=self._face.drafts,
            launch=options.launch or self._launch,
            check=options.check or self._check,
            bench=self._bench,
            retry=partial(self._try_again, self.fleet),
        )

    def _launch(self, submission: Submission, plan: Plan) -> JobDirectory:
        return self._face.submit(submission, plan).directory

    async def _check(self, submission: Submission, plan: Plan, changed: Changed) -> Board:
        prompter = ScreenPrompter(self.questions, remembers_refusals=True)
        return await self._face.check(submission, plan, prompter, on_change=changed)

    @work(exclusive=True, group="bench")
    async def _bench(self, like: Submission) -> None:
        from dttui.compose import USUAL_LARGEST
        from dttui.tui.screens.bench import BenchScreen

        try:
            submission = self._face.bench.submission(like.inventory, (), like, USUAL_LARGEST)
            plan = await asyncio.to_thread(self._face.plan, submission)
        except DttuiError as error:
            self.notify(clean(error.message), severity="error", markup=False)
            return
        if plan.errors:
            self.notify(clean(plan.errors[0].message), severity="error", markup=False)
            return
        environments = [item for node in plan.nodes if (item := like.inventory.find(node.name)) is not None]
        start = self.options.launch or self._launch
        await self.push_screen(BenchScreen(submission, plan, environments, self._face, self.benches, start))

    def _try_again(self, fleet: Fleet, key: str, *, drops: bool = False) -> None:
        if key not in fleet.statuses:
            return
        environment = fleet.statuses[key].environment
        for name in (environment.name, environment.host):
            self._fleet_prompter.forget(name or "")
        fleet.retry(key, drops=drops)
