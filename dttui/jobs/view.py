"""A job as a person sees it, reduced from its events, metrics and samples. Pure: no files, no clock."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dtagent.protocol.events import Event, EventKind, JobState, Metric, NodeStanding

from dttui.i18n import _, ngettext
from dttui.jobs.aftermath import Aftermath
from dttui.jobs.checks import Cell, Check, cells_from_data
from dttui.jobs.curves import HISTORY, Curve, ReportCurves, to_keep
from dttui.jobs.disturbances import APART, disturbance, unhealthy_text
from dttui.jobs.event_log import QUEUED, STANDING
from dttui.jobs.exit_codes import told_cause
from dttui.jobs.figures import Figure, figures_of
from dttui.jobs.host_curves import HostCurves
from dttui.jobs.joined_reports import carried, communication_of, joined
from dttui.jobs.keep_requests import KeepRequests
from dttui.jobs.saved_text import SavedFiles, saved_lines, saved_of
from dttui.jobs.slots import SlotView, slots_of
from dttui.jobs.training_progress import TrainingProgress, training_progress
from dttui.redaction import Redaction
from dttui.spec.severity import Severity
from dttui.timestamps import elapsed_s
from dttui.variables import variables

if TYPE_CHECKING:
    from dtagent.protocol.telemetry import HostSample

    from dttui.jobs.plan_file import SeenNode, SeenPlan
    from dttui.planning.models import Plan, PlannedNode

FILES_LATE = "waits_for_room"  # Also of logs that hosts keep, which came later: events written before have this word.
"""In the data of progress: the controller of a job that is over only waits for room, or for hosts that keep logs."""
_OF_ANOTHER_KIND = (KeyError, TypeError, ValueError, AttributeError)
"""What data of an event raises that are not as its kind has them: a damaged one, or one of another version."""
NODE_OUT = "node-out"
"""Code of a finding on a node without which an elastic job goes on."""


@dataclass(frozen=True)
class Absence:
    """A node that has not all its ranks, long after the start."""

    has_come: bool | None
    """Whether its launcher has reached the rendezvous; `None` where that is not known."""
    said: str
    """Last line of its launcher's stderr."""


@dataclass
class NodeView:
    """One node of the job."""

    plan: PlannedNode | SeenNode
    state: NodeStanding = NodeStanding.WAITING
    message: str = ""
    word: str = ""
    """What its state is called, where only another version knows it."""
    sample: HostSample | None = None
    gpu_ids: tuple[int, ...] = ()
    checkpoints: str | None = None
    """Absolute path of `DTTUI_CHECKPOINT_DIR` on the host, once it is known."""
    usage: dict[str, float] | None = None
    """`user_cpu_s`, `system_cpu_s` and `peak_memory_mib` of all processes there, once they have ended."""
    heard_at: float | None = None
    """Unix time of the last word from a host that has fallen silent; `None` while it talks."""
    absence: Absence | None = None
    """What is known of a node that the others wait for; `None` while nobody does."""
    numbered: tuple[int, ...] = ()
    """Its ranks, in order of local rank, where torchrun has numbered them by itself."""
    earlier_ranks: frozenset[int] = frozenset()
    """Ranks that it had in this attempt before they were numbered anew."""
    is_agent_gone: bool = False
    """Of one that is lost: the host itself answers."""
    is_out: bool = False
    """Whether an elastic job has gone on without it."""
    unhealthy: str = ""
    """That the job's own command has it that it does not go well there, while that is so."""
    unhealthy_what: str = ""
    """How the command failed, without the name of the host."""
    unhealthy_since: float | None = None
    """Unix time, the login node's clock."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Its global ranks, in order of local rank: as they are, or as planned where that is not known yet."""
        return () if self.is_out else self.numbered or self.plan.ranks

    @property
    def logged_ranks(self) -> tuple[int, ...]:
        """Ranks that have logs of this attempt."""
        return tuple(sorted({*(self.numbered or self.plan.ranks), *self.earlier_ranks}))

    @property
    def is_over(self) -> bool:
        """Whether nothing of the job runs there any more, as far as is known."""
        return self.state.is_over

    @property
    def is_unseen(self) -> bool:
        """Whether nothing comes from it now: its newest readings are old."""
        return not self.is_over and (self.heard_at is not None or self.state is NodeStanding.AGENT_GONE)

    def silence_s(self, now: float) -> float | None:
        """Return for how long at Unix time `now` nothing has come from the host; `None` while it talks."""
        return None if self.heard_at is None or self.is_over else elapsed_s(self.heard_at, now)

    def slots(self, job_id: str) -> list[SlotView]:
        """Return the node's slots with their newest readings."""
        return slots_of(self.sample, job_id, self.ranks, self.gpu_ids, is_simulated=self.plan.simulated)


@dataclass(frozen=True)
class Failure:
    """A rank that broke."""

    node: str
    rank: int | None
    message: str
    exit_code: int | None
    signal: int | None
    error: str | None
    traceback: str | None
    tail: tuple[str, ...]
    """Last lines of its stderr."""
    time: float
    """Unix time, the login node's clock."""


@dataclass
class JobView:
    """Everything a screen or a printer shows of a job."""

    job_id: str
    plan: Plan | SeenPlan | None = None
    state: JobState = JobState.PENDING
    reason: str = ""
    progress: str = ""
    """How far the state is that the job is in; empty where that says nothing."""
    trouble: str = ""
    """What keeps the login node's disk from taking what is told of the job; empty where it takes it."""
    has_late_files: bool = False
    """Whether all that the controller of a job that is over still does is to write and fetch what is late."""
    apart: str = ""
    """That the ranks do not train together, while that is so; empty where nothing speaks for it."""
    is_queued: bool = False
    """Whether it waits for its hosts, in the order of asking."""
    straggler: str = ""
    """For which rank the others wait, while that is so."""
    late_rank: int | None = None
    """That rank."""
    hang: str = ""
    """That it hangs, while that is so, and where its ranks stand."""
    stop_until: float = 0.0
    """Unix time by which a job that is being stopped gives up the hosts that have not ended it."""
    attempt: int = 0
    started_at: float | None = None
    """Unix time of the first event."""
    has_started: bool = False
    """Whether the processes of an attempt were started everywhere."""
    running_at: float | None = None
    """Unix time at which all ranks ran."""
    ended_at: float | None = None
    exit_code: int | None = None
    """What `--apply` exits with, once the job is over; nothing is decided by it."""
    outcome_cause: str | None = None
    """Code of why a job that is over has failed, where nothing of a single rank or node is to be said."""
    nodes: dict[str, NodeView] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    findings: list[Event] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    """The first cause comes first."""
    checks: dict[str, dict[Check, Cell]] = field(default_factory=dict)
    """Node → what the preflight has come to there."""
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    """Node → versions of what the attempt runs with there, by what they are of; of a node that tells them."""
    figures: dict[str, Figure] = field(default_factory=dict)
    """What was estimated, beside what was measured; of the newest attempt that has ended."""
    metrics: list[Metric] = field(default_factory=list)
    """Of the lowest rank that reports, from the first to the newest: all of the recent ones, and of the others some."""
    best: Metric | None = None
    """The report of them with the least loss."""
    host_curves: HostCurves = field(default_factory=HostCurves)
    """What its hosts have read, of what is drawn."""
    reported: dict[int, Metric] = field(default_factory=dict)
    """Rank → its newest report, with its last step and loss; of the newest attempt that has reported."""
    reported_in: int = 0
    """That attempt."""
    saved: tuple[SavedFiles, ...] = ()
    """What its attempts have written on their hosts, as far as that was told; the newest last."""
    keep_requests: KeepRequests | None = None
    """What its hosts were told later of that: to keep it, or not; `None` where they were told nothing."""
    aftermath: Aftermath = field(default_factory=Aftermath)
    """What later looks have found on hosts that were lost when it was over."""
    _numbers: list[int] = field(default_factory=list)
    """The how manieth report each of them was."""
    _reports: int = 0
    _report_curves: ReportCurves = field(default_factory=ReportCurves, repr=False, compare=False)
    _variables: Mapping[str, str] = field(default_factory=variables, repr=False, compare=False)
    """Of whom it was made for, the secrets among them: it may be shown where others count."""

    def set_plan(self, plan: Plan | SeenPlan) -> None:
        """Take over the plan; nodes appear in order of rank."""
        self.plan = plan
        self.nodes = {node.name: NodeView(node) for node in plan.nodes}

    def apply(self, event: Event) -> None:
        """Take one event in."""
        if event.kind is not EventKind.PREFLIGHT:  # Of no words; the board shows it.
            self.events.append(event)
        self.started_at = self.started_at or event.time
        self.aftermath.take(event)
        if event.attempt is not None and event.attempt < self.attempt and event.kind is not EventKind.FINDING:
            self.reason = self.aftermath.reason or self.reason
            return  # Of a host that an earlier one has lost.
        if event.attempt is not None and event.attempt > self.attempt:
            self._begin(event.attempt)
        take = {
            EventKind.JOB_STATE: self._take_state,
            EventKind.NODE_STATE: self._take_node_state,
            EventKind.RANKS: self._take_ranks,
            EventKind.PREFLIGHT: self._take_checks,
            EventKind.PROGRESS: self._go_on,
            EventKind.FINDING: self._take_finding,
            EventKind.HANG: self._take_hang,
            EventKind.HEALTH: self._take_health,
            EventKind.STRAGGLER: self._take_straggler,
            EventKind.RANK_FAILED: self._fail,
            EventKind.SAVED: self._take_saved,
            EventKind.OUTCOME: self._end,
        }.get(event.kind)
        if take is not None:
            with contextlib.suppress(*_OF_ANOTHER_KIND):
                take(event)

    def _begin(self, attempt: int) -> None:
        """Forget what was of an earlier attempt alone: it is over, and its nodes begin anew."""
        if self.attempt != attempt and any(event.attempt == self.attempt for event in self.events):
            self.failures.clear()
            self.checks.clear()
            self.versions.clear()
            self.running_at, self.has_started = None, False
            self.nodes = {name: NodeView(node.plan, sample=node.sample) for name, node in self.nodes.items()}
        self.attempt, self.apart, self.hang, self.straggler, self.late_rank = attempt, "", "", "", None
        for node in self.nodes.values():
            node.numbered, node.earlier_ranks, node.is_out = (), frozenset(), False
            node.unhealthy, node.unhealthy_what, node.unhealthy_since = "", "", None

    def _take_state(self, event: Event) -> None:
        self.state = JobState(event.data.get("state"))
        self.reason, self.progress = event.message, ""
        self.figures = figures_of(event.data) or self.figures
        self.outcome_cause = told_cause(event.data) if self.state is JobState.FAILED else None
        self.is_queued = QUEUED in event.data
        until = event.data.get("until")
        self.stop_until = until if isinstance(until, (int, float)) else 0.0
        for node in self.nodes.values():
            node.absence = None
        self.has_started = self.has_started or self.state in (JobState.RENDEZVOUS, JobState.RUNNING)
        if self.state is JobState.RUNNING:
            self.running_at = self.running_at or event.time
        elif self.state is JobState.UNKNOWN:
            self.lose(event.data.get("since", event.time), event.message)

    def _take_node_state(self, event: Event) -> None:
        if event.node not in self.nodes:
            return
        node = self.nodes[event.node]
        said = event.data.get("state")
        node.state = NodeStanding(said)
        node.message = event.message
        node.gpu_ids = tuple(event.data.get("gpu_ids", node.gpu_ids))
        node.checkpoints = event.data.get("checkpoints", node.checkpoints)
        node.usage = event.data.get("usage")
        node.is_agent_gone = bool(event.data.get("agent_gone"))
        if event.data.get("has_checkpoints") is False:
            node.checkpoints = None
        # Of a state that only another version knows nothing follows; least of all silence.
        node.word = "" if said in (None, node.state.value) else str(said)
        is_silent = said == NodeStanding.UNKNOWN.value
        node.heard_at = event.data.get("heard_at", event.time) if is_silent else None
        self.reason = self.aftermath.reason or self.reason

    def _take_ranks(self, event: Event) -> None:
        if event.node in self.nodes:
            node = self.nodes[event.node]
            node.earlier_ranks |= set(node.numbered)
            node.numbered = tuple(event.data.get("ranks", ()))

    def _take_checks(self, event: Event) -> None:
        if event.node is not None:
            self.checks.setdefault(event.node, {}).update(cells_from_data(event.data.get("cells")))
            told = event.data.get("versions")
            if isinstance(told, dict):
                self.versions[event.node] = {str(item): str(version) for item, version in told.items()}

    def _take_finding(self, event: Event) -> None:
        self.findings.append(event)
        code, subject, severity = (event.data.get(key) for key in ("code", "subject", "severity"))
        if code in STANDING:
            self.trouble = event.message if severity == Severity.WARNING else ""
        if code == APART:
            self.apart = "" if severity == Severity.INFO.value else event.message
        if code == NODE_OUT and subject in self.nodes:
            self.nodes[subject].is_out = True

    def _take_hang(self, event: Event) -> None:
        self.hang = "" if event.data.get("severity") == Severity.INFO.value else event.message

    def _take_straggler(self, event: Event) -> None:
        told = event.message, event.rank
        self.straggler, self.late_rank = ("", None) if event.data.get("severity") == Severity.INFO.value else told

    def _take_saved(self, event: Event) -> None:
        others = [item for item in self.saved if (item.node, item.attempt) != (event.node, event.attempt)]
        self.saved = (*others, *saved_of(event))

    def _take_health(self, event: Event) -> None:
        if event.node not in self.nodes:
            return
        node, is_well = self.nodes[event.node], event.data.get("severity") == Severity.INFO.value
        node.unhealthy = "" if is_well else event.message
        node.unhealthy_what = "" if is_well else str(event.data.get("what") or event.message)
        node.unhealthy_since = None if is_well else float(event.data.get("since", event.time))

    @property
    def kept_saved(self) -> tuple[SavedFiles, ...]:
        """What its attempts have written, with whether it is kept as the hosts were told last."""
        told = self.keep_requests.hosts if self.keep_requests is not None else {}
        return tuple(replace(item, is_kept=told.get(item.node, item.is_kept)) for item in self.saved)

    @property
    def went_wrong(self) -> bool:
        """Whether it is over, and has failed or was stopped."""
        return self.state in (JobState.FAILED, JobState.CANCELLED)

    @property
    def unhealthy(self) -> str:
        """Which hosts are unhealthy, by the job's own command; empty where none is."""
        return unhealthy_text([node.unhealthy for node in self.nodes.values() if node.unhealthy and not node.is_over])

    def _end(self, event: Event) -> None:
        self.ended_at = max(event.time, self.started_at or event.time)
        self.exit_code = int(event.data["exit_code"])
        if self.state is JobState.FAILED:  # The state of an older version's has told neither of the two.
            self.outcome_cause = self.outcome_cause or told_cause(event.data)
        for node in self.nodes.values() if not self.has_started else ():
            node.checkpoints = None

    def redaction(self) -> Redaction:
        """Return what leaves out the job's secrets where its texts are shown, as far as their values are known here."""
        return Redaction.of_names(self.plan.secrets if self.plan is not None else (), self._variables)

    def lose(self, since: float, reason: str) -> None:
        """Take in that since a Unix time nothing is known of the job, nor of the nodes that were not over by then."""
        self.state, self.reason = JobState.UNKNOWN, reason
        for node in self.nodes.values():
            if not node.is_over:
                node.state, node.message, node.heard_at = NodeStanding.UNKNOWN, "", node.heard_at or since

    def add_metric(self, metric: Metric, attempt: int = 0) -> None:
        """Take one report of an attempt in; only one rank's are kept for a plot, since all ranks report the same step.

        Those of an attempt may come before and after the events of another one.
        """
        if attempt > self.reported_in:
            self.reported, self.reported_in = {}, attempt
        is_one_of_ours = self.plan is None or 0 <= metric.rank < self.plan.world_size
        if attempt == self.reported_in and is_one_of_ours:
            before = self.reported.get(metric.rank)
            self.reported[metric.rank] = metric if before is None else carried(before, metric)
        if metric.is_of_payload:
            if self.metrics and self.metrics[-1].rank == metric.rank:
                self.metrics[-1] = replace(self.metrics[-1], communication_percent=metric.communication_percent)
            return
        if self.metrics and metric.rank > self.metrics[-1].rank:
            return
        if self.metrics and metric.rank < self.metrics[-1].rank:
            self.metrics.clear()
            self._numbers.clear()
            self.best = None
        if self.metrics and metric.step is not None and metric.step == self.metrics[-1].step:
            metric = joined(self.metrics.pop(), metric)
            self._numbers.pop()
        self.metrics.append(metric)
        if metric.loss is not None and (self.best is None or self.best.loss is None or metric.loss <= self.best.loss):
            self.best = metric
        self._reports += 1
        self._numbers.append(self._reports)
        if len(self.metrics) > HISTORY:
            kept = to_keep(self._numbers)
            self.metrics[:] = [self.metrics[index] for index in kept]
            self._numbers[:] = [self._numbers[index] for index in kept]

    def see_samples(self, *, before: bool = False) -> None:
        """Take into the curves what its hosts read now; or read `before`, when those that are over by now were not."""
        told = [
            (name, node.sample, node.gpu_ids)
            for name, node in self.nodes.items()
            if node.sample is not None and (before or not (node.is_over or node.is_unseen))
        ]
        self.host_curves.take(told, self.job_id)

    def curves(self) -> tuple[Curve, ...]:
        """Return all that is drawn of it: what its ranks report, and what its hosts read."""
        return (*self._report_curves.of(self.metrics), *self.host_curves.curves())

    @property
    def newest_metric(self) -> Metric | None:
        """The last report, with the last step and loss where it names none: that of an epoch's end, for one."""
        if not self.metrics:
            return None
        return self.reported.get(self.metrics[-1].rank, self.metrics[-1])

    @property
    def training_progress(self) -> TrainingProgress | None:
        """How much of the training is done, and how long the rest takes; `None` where nobody says how long it is."""
        newest, length = self.newest_metric, self.plan.length if self.plan is not None else None
        if newest is None:
            return None
        return training_progress(newest, self.metrics, length)

    @property
    def communication(self) -> Figure | None:
        """Which share of the time its ranks communicate, in percent; see there."""
        estimate = self.plan.estimate if self.plan is not None else None
        return communication_of(self.reported.values(), estimate.communication_share if estimate is not None else None)

    def silences(self, now: float) -> dict[str, float]:
        """Return the nodes that have fallen silent, and for how many seconds at Unix time `now`."""
        if self.state.is_final:
            return {}
        return {name: seconds for name, node in self.nodes.items() if (seconds := node.silence_s(now)) is not None}

    def stop_awaits(self) -> tuple[list[str], float]:
        """Return the nodes that a stop waits for, and until which Unix time; none where it waits for nobody."""
        if self.state is not JobState.STOPPING or not self.stop_until:
            return [], 0.0
        return [name for name, node in self.nodes.items() if not node.is_over], self.stop_until

    def headline(self, now: float) -> str:
        """Return what there is to say at Unix time `now`: who has fallen silent, else why the job is in its state."""
        if self.state.is_final:
            return self.progress or self.reason
        gone = [name for name, node in self.nodes.items() if node.state is NodeStanding.AGENT_GONE]
        silences = self.silences(now)
        shown = {} if self.state is JobState.UNKNOWN else silences
        told = disturbance(gone, shown, "" if silences else self.trouble)
        troubles = self.hang or self.unhealthy or self.apart or self.straggler
        return told or self.progress or (troubles if self.state is JobState.RUNNING else "") or self.reason

    def places(self, directory: str) -> tuple[str, ...]:
        """Return lines that tell where to find what the job left, as far as is known.

        Args:
            directory: the job's, on the login node.
        """
        lines = [_("logs: {path}").format(path=directory)]
        known = [(name, node.checkpoints) for name, node in self.nodes.items() if node.checkpoints]
        if known:
            line = _("checkpoints: {host}:{path}").format(host=known[0][0], path=known[0][1])
            others = len(known) - 1
            more = ngettext("and {count} more node", "and {count} more nodes", others).format(count=others)
            lines.append(f"{line} {more}" if others else line)
        lines += saved_lines(self.kept_saved, self.job_id)
        cut = [event.message for event in self.findings if event.data.get("code") == "log-cut"]
        lines += [f"⚠ {message}" for message in dict.fromkeys(cut)]
        return tuple(lines)

    def _go_on(self, event: Event) -> None:
        """Take in how far the launch or the rendezvous is; other progress is for the list of events alone."""
        self.has_late_files = self.has_late_files or bool(event.data.get(FILES_LATE))
        if "ready_nodes" in event.data or "missing" in event.data or "absent_ranks" in event.data:
            self.progress = "" if event.data.get("absent_ranks") == {} else event.message
        missing = event.data.get("missing")
        if isinstance(missing, dict):
            for name, node in self.nodes.items():
                told = missing.get(name)
                node.absence = Absence(told.get("has_come"), str(told.get("said", ""))) if told is not None else None

    def _fail(self, event: Event) -> None:
        data = event.data
        self.failures.append(
            Failure(
                node=event.node or "",
                rank=event.rank,
                message=event.message,
                exit_code=data.get("exit_code"),
                signal=data.get("signal"),
                error=data.get("error"),
                traceback=data.get("traceback"),
                tail=tuple(data.get("tail", ())),
                time=float(data.get("time", event.time)),
            )
        )
