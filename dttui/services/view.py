"""A job as a person sees it, reduced from its events, metrics and samples. Pure: no files, no clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from dtagent.protocol.events import Event, EventKind, JobState, Metric
from dtagent.protocol.telemetry import HostSample

from dttui.i18n import _, ngettext
from dttui.planning.models import Plan, PlannedNode

HISTORY = 2000
"""Points of a metric that are kept for a plot."""
_NODE_ENDS = ("ended", "stopped", "failed", "discarded", "unkillable", "lost")


@dataclass(frozen=True)
class SlotView:
    """One rank and the GPU under it. Of a simulated GPU, use and memory are those of the rank's process."""

    rank: int
    simulated: bool
    has_gpu: bool
    utilization_percent: float | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    error: str | None = None


@dataclass
class NodeView:
    """One node of the job."""

    plan: PlannedNode
    state: str = "waiting"
    """`waiting`, `connected`, `prepared`, `running`, `stopping`, `ended`, `unkillable`, `lost`, `unknown`, `failed`."""
    message: str = ""
    sample: HostSample | None = None
    gpu_ids: tuple[int, ...] = ()
    checkpoints: str | None = None
    """Absolute path of `DTTUI_CHECKPOINT_DIR` on the host, once it is known."""
    heard_at: float | None = None
    """Unix time of the last word from a host that has fallen silent; `None` while it talks."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of the job runs there any more, as far as is known."""
        return self.state in _NODE_ENDS

    def silence_s(self, now: float) -> float | None:
        """Return for how long at Unix time `now` nothing has come from the host; `None` while it talks."""
        return None if self.heard_at is None or self.is_over else max(0.0, now - self.heard_at)

    def slots(self, job_id: str) -> list[SlotView]:
        """Return the node's slots with their newest readings."""
        ranks = {item.rank: item for item in (self.sample.ranks.get(job_id, []) if self.sample else [])}
        gpus = {gpu.index: gpu for gpu in (self.sample.gpus if self.sample else [])}
        slots = []
        for local_rank, rank in enumerate(self.plan.ranks):
            gpu = gpus.get(self.gpu_ids[local_rank]) if local_rank < len(self.gpu_ids) else None
            process = ranks.get(rank)
            if gpu is not None:
                slots.append(
                    SlotView(
                        rank, False, True, gpu.utilization_percent, gpu.memory_used_mib, gpu.memory_total_mib,
                        gpu.temperature_c, gpu.power_w, gpu.error,
                    )
                )  # fmt: skip
            else:
                total = self.sample.memory_total_mib if self.sample and process else None
                use = process.cpu_percent if process else None
                memory = process.memory_used_mib if process else None
                slots.append(SlotView(rank, self.plan.simulated, bool(self.plan.cuda_slots), use, memory, total))
        return slots


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
    plan: Plan | None = None
    state: JobState = JobState.PENDING
    reason: str = ""
    attempt: int = 0
    started_at: float | None = None
    """Unix time of the first event."""
    running_at: float | None = None
    """Unix time at which all ranks ran."""
    ended_at: float | None = None
    exit_code: int | None = None
    """What `--apply` exits with, once the job is over."""
    nodes: dict[str, NodeView] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    findings: list[Event] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    """The first cause comes first."""
    metrics: deque[Metric] = field(default_factory=lambda: deque(maxlen=HISTORY))
    """Of the lowest rank that reports, in order of arrival."""

    def set_plan(self, plan: Plan) -> None:
        """Take over the plan; nodes appear in order of rank."""
        self.plan = plan
        self.nodes = {node.name: NodeView(node) for node in plan.nodes}

    def apply(self, event: Event) -> None:
        """Take one event in."""
        self.events.append(event)
        self.started_at = self.started_at or event.time
        if event.attempt is not None:
            self.attempt = event.attempt
        if event.kind is EventKind.JOB_STATE:
            self.state = JobState(event.data["state"])
            self.reason = event.message
            if self.state is JobState.RUNNING:
                self.running_at = event.time
        elif event.kind is EventKind.NODE_STATE and event.node in self.nodes:
            node = self.nodes[event.node]
            node.state = str(event.data.get("state", ""))
            node.message = event.message
            node.gpu_ids = tuple(event.data.get("gpu_ids", node.gpu_ids))
            node.checkpoints = event.data.get("checkpoints", node.checkpoints)
            node.heard_at = event.data.get("heard_at", event.time) if node.state == "unknown" else None
        elif event.kind is EventKind.FINDING:
            self.findings.append(event)
        elif event.kind is EventKind.RANK_FAILED:
            self._fail(event)
        elif event.kind is EventKind.OUTCOME:
            self.ended_at = event.time
            self.exit_code = int(event.data["exit_code"])

    def add_metric(self, metric: Metric) -> None:
        """Take one report in; only one rank's are kept, since all ranks report the same step."""
        if self.metrics and metric.rank > self.metrics[-1].rank:
            return
        if self.metrics and metric.rank < self.metrics[-1].rank:
            self.metrics.clear()
        self.metrics.append(metric)

    @property
    def newest_metric(self) -> Metric | None:
        """The last report."""
        return self.metrics[-1] if self.metrics else None

    def silences(self, now: float) -> dict[str, float]:
        """Return the nodes that have fallen silent, and for how many seconds at Unix time `now`."""
        if self.state.is_final:
            return {}
        return {name: seconds for name, node in self.nodes.items() if (seconds := node.silence_s(now)) is not None}

    def headline(self, now: float) -> str:
        """Return what there is to say at Unix time `now`: who has fallen silent, else why the job is in its state."""
        silences = self.silences(now)
        if not silences:
            return self.reason
        name, seconds = max(silences.items(), key=lambda item: item[1])
        if len(silences) == 1:
            return _("no word from {host} for {seconds:.0f} s").format(host=name, seconds=int(seconds))
        text = _("no word from {count} hosts; from {host} for {seconds:.0f} s")
        return text.format(count=len(silences), host=name, seconds=int(seconds))

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
        return tuple(lines)

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
