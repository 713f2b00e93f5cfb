"""A job while it runs and after: its nodes and ranks, loss, logs, events, and why it failed. Leaving never stops it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from dtagent.protocol.events import Event, EventKind, JobState
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static, TabbedContent, TabPane

from dttui.app import App, JobFollower
from dttui.diagnosis import Diagnosis
from dttui.errors import DttuiError, NotFinishedError
from dttui.i18n import _
from dttui.jobs import ChosenPlots, EarlierRun, JobDirectory, JobView, PastLogs, board_widths
from dttui.sanitize import clean
from dttui.spec import with_hint
from dttui.timestamps import elapsed_s
from dttui.tui import symbols
from dttui.tui.attachments import Attachments
from dttui.tui.checks import check_notes, show_checks
from dttui.tui.commands import N_
from dttui.tui.event_lines import event_line, log_of_event
from dttui.tui.log_feed import Takes
from dttui.tui.messages import NodesScrolled
from dttui.tui.node_rows import NodeRows
from dttui.tui.plots import show_plots
from dttui.tui.resting import every
from dttui.tui.rows import line
from dttui.tui.run_head import newest_figures, progress_line, status_line
from dttui.tui.screens.dialogs import ChoiceDialog, Question
from dttui.tui.screens.job_dialogs import stop_question
from dttui.tui.screens.job_logs import JobLogs
from dttui.tui.screens.page import Page
from dttui.tui.screens.rerun import rerun
from dttui.tui.screens.run_shell import use_shell
from dttui.tui.screens.stacks import StacksDialog
from dttui.tui.why import why
from dttui.tui.widgets.check_board import CheckBoard
from dttui.tui.widgets.event_list import EventList
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.metric_plots import MetricPlots
from dttui.tui.widgets.node_grid import NodeGrid
from dttui.tui.widgets.prose import Prose
from dttui.tui.widgets.title_bar import TitleBar

POLL_S = 0.25
PLOT_S = 1.0
WHY_S = 2.0
CONTROLLER_POLL_S = 5.0
REMEDY_S = 30.0
"""How long it is shown what is to be done."""
MOST_EVENTS = 500
NODES_SHARE = 1 / 3
"""Of the screen's lines, that nodes take where it shows more of each rank."""
NODE_PANES = ("usual", "folded", "large")
"""What room the nodes have."""
_SCROLLED = {
    "loss": "#run-plots",
    "logs": "#log",
    "events": "#run-event-scroll",
    "why": "#run-why-scroll",
    "checks": "#run-check-scroll",
}
"""What has the keys while a tab is shown."""


class RunScreen(Page[None]):
    """Reads the job's files a few times a second and shows what they say."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "stop", N_("stop"), id="run.stop", tooltip=N_("Stop the job, after a question")),
        Binding(
            "r",
            "restart",
            N_("restart"),
            id="run.restart",
            tooltip=N_("Go on from its newest checkpoint, as another job"),
        ),
        Binding("o", "shell", N_("shell"), id="run.shell", tooltip=N_("Open a shell on the node under the cursor")),
        Binding("k", "stacks", N_("stacks"), id="run.stacks", tooltip=N_("Ask where each rank stands in its code")),
        Binding("1", "tab('loss')", N_("plots"), show=False, id="run.loss", tooltip=N_("Show the plots")),
        Binding("2", "tab('logs')", N_("logs"), show=False, id="run.logs", tooltip=N_("Show the logs")),
        Binding("3", "tab('events')", N_("events"), show=False, id="run.events", tooltip=N_("Show what happened")),
        Binding("4", "tab('why')", N_("why"), show=False, id="run.why", tooltip=N_("Show why it failed")),
        Binding("5", "tab('checks')", N_("checks"), show=False, id="run.checks", tooltip=N_("Show the preflight")),
        Binding("z", "zoom", N_("zoom"), id="run.zoom", tooltip=N_("Show the chosen plot alone, or all")),
        Binding("l", "log", N_("log axis"), id="run.log", tooltip=N_("Have a logarithmic axis in the chosen plot")),
        Binding(
            "f", "fold", N_("fold hosts"), id="run.fold", tooltip=N_("Fold the nodes, give them all room, or usual")
        ),
        Binding("escape", "app.pop_screen", N_("back"), id="run.back", tooltip=N_("Go back; a job that runs goes on")),
    ]

    def __init__(self, directory: JobDirectory, face: App, attachments: Attachments, *, just_launched: bool) -> None:
        """Watch the job in `directory`; its controller is only just starting where it was `just_launched`."""
        super().__init__()
        self.directory = directory
        self._face = face
        self._attachments = attachments
        self._just_launched = just_launched
        self.follower = self._make_follower()
        self._node_rows = NodeRows()
        self._progress = ""
        self._opened_why = False
        self._asks_why = False
        self._is_diagnosing = False
        self._is_checking = False
        self._has_plots = False
        self._silence = ""
        """Why nobody knows what becomes of the job; empty while its controller does."""
        self._wants_end = False
        self._node_pane = NODE_PANES[0]
        self._names: tuple[str, ...] = ()
        self._chosen_plots = ChosenPlots()
        self._earlier: EarlierRun | None = None

    _past_logs: Callable[[int, str, Takes], PastLogs] | None = None
    """What has logs as they were at the time that is shown, where that is not now."""

    def _make_follower(self) -> JobFollower:
        return self._face.follow(self.directory)

    def _now(self) -> float:
        """Return the Unix time that is shown."""
        return time.time()

    @property
    def _has_told_all(self) -> bool:
        """Whether nothing follows what is shown, but for what comes with this look."""
        return self.follower.is_over

    @property
    def view(self) -> JobView:
        """What is known of the job."""
        return self.follower.view

    def compose(self) -> ComposeResult:
        """Lay out head, nodes and tabs."""
        yield TitleBar(Content(self.directory.job_id), job_id=self.directory.job_id)
        yield Static(id="run-status", markup=False)
        yield Static(id="run-progress", markup=False)
        yield Prose(id="run-places")
        yield NodeGrid(id="run-nodes")
        with TabbedContent(id="run-tabs"):
            with TabPane("1 " + _("Plots"), id="loss"):
                yield MetricPlots(id="run-plots")
            with TabPane("2 " + _("Logs"), id="logs"):
                yield JobLogs(self.directory, lambda: self.view, self._past_logs, id="run-logs")
            with TabPane("3 " + _("Events"), id="events"):
                yield EventList(id="run-event-scroll")
            with TabPane("4 " + _("Why"), id="why"), VerticalScroll(id="run-why-scroll"):
                yield Prose(id="run-why")
                yield Prose(id="why-places")
            with TabPane("5 " + _("Checks"), id="checks"), VerticalScroll(id="run-check-scroll"):
                yield CheckBoard(board_widths, id="run-checks")
                yield Prose(id="run-check-notes")
        yield KeyBar()

    def on_mount(self) -> None:
        """Begin to follow."""
        self._begin()
        self._timer = every(self, POLL_S, self.poll)
        self._plot_timer = every(self, PLOT_S, self._draw_plots)
        every(self, WHY_S, self._refresh_why)
        self._look_around()
        if not self.follower.is_over:
            self._listen()

    def fill(self) -> None:
        """Read the job from its beginning, and show it."""
        self.follower = self._make_follower()
        self._node_rows = NodeRows()
        self._progress = ""
        self._has_plots = False
        self.remove_class("-zoomed")
        self._timer.resume()
        self._plot_timer.resume()
        self._begin()
        self.on_resize()
        self._look_around()

    def _begin(self) -> None:
        self.query_one(NodeGrid).trends = self._trend
        self.poll()

    def on_resize(self) -> None:
        """Give the nodes as many lines as leave the plots theirs."""
        self.query_one(NodeGrid).use_height(int(self.size.height * NODES_SHARE))

    def _trend(self, row: int, slot: int) -> Sequence[int | None]:
        return self.view.host_curves.trends.of(self._names[row], slot)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to stop, and to ask, only what has not ended."""
        if action in ("zoom", "log"):
            return not self.is_mounted or self.query_one(TabbedContent).active == "loss"
        if action == "restart":
            return self.follower.is_over
        return not self.follower.is_over if action in ("stop", "stacks") else True

    def action_zoom(self) -> None:
        """Show the chosen plot alone, or all."""
        plots = self.query_one(MetricPlots)
        plots.focus()
        plots.action_zoom()

    def action_log(self) -> None:
        """Have a logarithmic axis in the chosen plot, or a linear one."""
        self.query_one(MetricPlots).action_log()

    def action_fold(self) -> None:
        """Fold the nodes, then give them all the room, then what is usual."""
        self._fold(NODE_PANES[(NODE_PANES.index(self._node_pane) + 1) % len(NODE_PANES)])
        self._remember()

    def _fold(self, pane: str) -> None:
        self._node_pane = pane if pane in NODE_PANES else NODE_PANES[0]
        for name in NODE_PANES:
            self.set_class(name == self._node_pane, f"-nodes-{name}")

    @on(MetricPlots.Rescaled)
    def _remember(self) -> None:
        logs = sorted(self.query_one(MetricPlots).logs)
        self._keep_left({"nodes": self._node_pane, "log": logs})

    @work(group="plots")
    async def _keep_left(self, left: Mapping[str, object]) -> None:
        await asyncio.to_thread(self._face.screens.remember, "run", left)

    @on(MetricPlots.Zoomed)
    def _plot_zoomed(self, event: MetricPlots.Zoomed) -> None:
        self.set_class(event.is_alone, "-zoomed")

    def action_tab(self, name: str) -> None:
        """Show a tab, and let the keys scroll what is in it."""
        self.query_one(TabbedContent).active = name
        self.call_after_refresh(self.query_one(_SCROLLED[name]).focus)

    def on_click(self, event: events.Click) -> None:
        """Go into what a tab shows, as its key does: a click alone chooses the tab."""
        for name in _SCROLLED:
            if self.query_one(TabbedContent).get_tab(name) is event.widget:
                self.action_tab(name)

    @on(TabbedContent.TabActivated)
    def _tab_shown(self, event: TabbedContent.TabActivated) -> None:
        self.set_class(event.pane.id == "why", "-on-why")
        self._draw_plots()
        self.refresh_bindings()

    def action_stacks(self) -> None:
        """Show where the ranks stand."""
        self.app.push_screen(StacksDialog(lambda: self._attachments.stacks(self.directory)))

    @on(NodeGrid.Opened)
    def _show_logs_of(self, event: NodeGrid.Opened) -> None:
        logs = self.query_one(JobLogs)
        logs.offer_logs()
        logs.choose_node(self._names[event.row])
        self.action_tab("logs")

    @on(EventList.EventOpened)
    def _show_log_of_event(self, event: EventList.EventOpened) -> None:
        found = log_of_event(self._told_events[event.number], self.view)
        if isinstance(found, str):
            self.notify(found, markup=False)
            return
        logs = self.query_one(JobLogs)
        logs.offer_logs()
        self.action_tab("logs")
        logs.choose(found)

    def action_shell(self) -> None:
        """Step aside for a shell on the node under the cursor."""
        row = self.query_one(NodeGrid).cursor
        if row < len(self._names):
            use_shell(self.app, self._face, self.directory, self.view.nodes[self._names[row]])

    def action_restart(self) -> None:
        """Ask, and have the job go on as another one."""
        rerun(self.app, self._face, self.directory, continues=True)

    @work
    async def action_stop(self) -> None:
        """Ask how, and stop the job."""
        if self.follower.is_over:
            self.notify(_("The job is over already."), markup=False)
            return
        question = self._stop_question()
        title = _("Stop the job")
        answer = await self.app.push_screen_wait(
            ChoiceDialog(title, question.text, question.choices, follow=self._still_stoppable)
        )
        if answer not in ("graceful", "force"):
            return
        try:
            await self._attachments.stop(self.directory, force=answer == "force")
        except DttuiError as error:
            self._notify_of(error)
        else:
            told = _("Asked to stop at once.") if answer == "force" else _("Asked to stop gracefully.")
            self.notify(told, markup=False)
            self._wants_end = True

    async def _tell_of_hanging(self) -> None:
        """Say once after each stop what to do about a controller that gives no sign of life."""
        if self._wants_end and self._silence:
            hangs = await asyncio.to_thread(self._face.hanging, self.directory)
            if hangs is not None:
                self._wants_end = False
                self._notify_of(hangs)

    def _notify_of(self, error: DttuiError) -> None:
        told = clean(with_hint(error.message, error.hint))
        self.notify(told, severity="error", markup=False, timeout=REMEDY_S)

    async def _still_stoppable(self) -> Question | str:
        """Return what to ask by now, or that the job has ended meanwhile."""
        return _("The job is over already.") if self.follower.is_over else self._stop_question()

    def _stop_question(self) -> Question:
        return stop_question(self._job_name(), is_stopping=self.view.state is JobState.STOPPING)

    @work(group="plots")
    async def _look_around(self) -> None:
        """Find out how the screen was left, which plots the job wants, and how it went the last time."""
        left = await asyncio.to_thread(self._face.screens.remembered, "run")
        self._fold(str(left.get("nodes")))
        self.query_one(MetricPlots).use_logs(map(str, left["log"]) if isinstance(left.get("log"), list) else ())
        self._chosen_plots = await asyncio.to_thread(self._face.screens.chosen_plots, self.directory)
        self._draw_plots()
        self._earlier = await asyncio.to_thread(self._face.screens.earlier_run, self.directory)
        self._draw_plots()

    @work(group="listen")
    async def _listen(self) -> None:
        """Be there for the controller's questions, also of one that takes over, and notice when there is none."""
        is_attached = False
        while not self.follower.is_over:
            if not is_attached or not self.directory.has_controller():
                try:
                    await self._attachments.attach(self.directory)
                    is_attached = True
                except NotFinishedError as error:
                    if self._just_launched and not is_attached and not self.follower.is_over:
                        self._notify_of(error)
                        is_attached = True
            self._silence = self.directory.silence(time.time())
            await self._tell_of_hanging()
            await asyncio.sleep(CONTROLLER_POLL_S)

    def poll(self) -> None:
        """Show what the job's files say that is new."""
        new = self.follower.poll()
        for event in new:
            if event.message and event.kind.value in ("progress", "finding"):
                self._progress = line(event.message)
        self._show_head()
        self._show_nodes()
        if any(event.kind.value != "metric" for event in new):
            self._show_events()
            self._show_checks()
            self._show_why()
        self.query_one(JobLogs).read()
        if not self._has_plots:
            self._draw_plots()
        if self._has_told_all and not new:
            self._show_places()
            self._see_the_end()
            self._timer.pause()
            self.refresh_bindings()
            self._plot_timer.pause()
            self._draw_plots()

    @on(NodesScrolled)
    def _show_nodes(self) -> None:
        grid = self.query_one(NodeGrid)
        self._names = tuple(self.view.nodes)
        rows = self._node_rows.of(self.view, grid.shown, is_over=self.follower.is_over, now=self._now())
        grid.set_rows(rows)

    def on_screen_resume(self) -> None:
        """Keep in mind that a person has come back to a job that is over."""
        self._see_the_end()

    def _see_the_end(self) -> None:
        if self.follower.is_over and self.is_current:
            self.directory.see()

    def _show_head(self) -> None:
        view = self.view
        state = symbols.job_state(view.state)
        # Green is for what is well altogether.
        is_doubtful = bool(view.apart) and view.state is JobState.SUCCEEDED
        symbol, colour = ("⚠", "finding-warning") if is_doubtful else (state.symbol, state.colour)
        attempt = _("attempt {number}").format(number=view.attempt)
        left = [
            Content.styled(self._job_name(), "bold"),
            Content.styled(f"  {symbol} {symbols.state_name(view.state)}", f"bold ${colour}"),
            Content.styled(f"  {attempt}", "$muted"),
        ]
        if view.started_at is not None:
            left.append(Content(f"  {symbols.clock(elapsed_s(view.started_at, view.ended_at or self._now()))}"))
        self.query_one(TitleBar).show(Content("").join(left), newest_figures(view, is_narrow=self.has_class("-narrow")))
        status, is_over = self.query_one("#run-status", Static), self.follower.is_over
        self.set_class(is_over, "-over")
        for final in ("SUCCEEDED", "FAILED", "CANCELLED"):
            status.set_class(is_over and view.state.value == final, f"-{final.lower()}")
        status.set_class(bool(view.apart), "-apart")
        text = self._status()
        if not text.is_same(status.content if isinstance(status.content, Content) else Content("")):
            status.update(text)
        told = progress_line(view, self.size.width - 2, self._now(), is_over=is_over)
        progress = self.query_one("#run-progress", Static)
        progress.display = bool(told)
        progress.update(told, layout=False)

    def _status(self) -> Content:
        over = self.follower.is_over
        return status_line(self.view, self._silence, self._progress, self._now(), is_over=over)

    def _show_places(self) -> None:
        lines = [line(text) for text in self.view.places(str(self.directory.path))]
        for selector in ("#run-places", "#why-places"):
            self.query_one(selector, Prose).show(Content("\n").join(Content(text) for text in lines))

    @property
    def _told_events(self) -> list[Event]:
        # The outcome says again what the last state said.
        return [event for event in self.view.events if event.kind is not EventKind.OUTCOME]

    def _show_events(self) -> None:
        first = max(0, len(events := self._told_events) - MOST_EVENTS)
        self.query_one(EventList).show([event_line(event) for event in events[first:]], first)

    def _refresh_why(self) -> None:
        """Tell anew how a job stands that has not ended, while somebody looks."""
        if self.has_class("-on-why") and not self.follower.is_over:
            self._show_why()

    def _show_checks(self) -> None:
        """Show the preflight, on top for as long as it goes on."""
        show_checks(self.query_one(CheckBoard), self.view)
        self.query_one("#run-check-notes", Prose).show(check_notes(self.view))
        is_checking = self.view.state is JobState.PREFLIGHT and bool(self.view.checks)
        if is_checking != self._is_checking:
            self._is_checking = is_checking
            if is_checking:
                self.action_tab("checks")
            elif self.query_one(TabbedContent).active == "checks" and not self.follower.is_over:
                self.action_tab("loss")

    def _show_why(self) -> None:
        """Have it found out why the job failed, or how it stands; asked for meanwhile, once more after that."""
        self._asks_why = True
        if not self._is_diagnosing:
            self._is_diagnosing = True
            self._diagnose()

    @work(group="why")
    async def _diagnose(self) -> None:
        try:
            while self._asks_why:
                self._asks_why = False
                seen = self._standing()
                found = await asyncio.to_thread(self._face.diagnose, self.directory, self.view)
                # What the job has come to meanwhile is told by the next one.
                if self._standing() == seen and self.is_attached:
                    self._tell_why(found)
        finally:
            self._is_diagnosing = False

    def _standing(self) -> tuple[object, ...]:
        return self.view.state, self.view.attempt, len(self.view.failures), self.follower.is_over

    def _tell_why(self, found: Diagnosis) -> None:
        self.query_one("#run-why", Prose).show(why(found))
        if found.log is not None:
            logs = self.query_one(JobLogs)
            logs.offer_logs()
            logs.open_at(*found.log)
        if not self._opened_why and (self.view.failures or self.view.state.value == "FAILED"):
            self._opened_why = True
            self.action_tab("why")

    def _draw_plots(self) -> None:
        if self.query_one(TabbedContent).active == "loss":
            plots, wanted = self.query_one(MetricPlots), self._chosen_plots
            self._has_plots = show_plots(plots, self.view, wanted, self._earlier)

    def _job_name(self) -> str:
        return line(self.view.plan.job_name) if self.view.plan is not None else self.directory.job_id
