"""What comes from one node of an attempt: checked, kept in the job's directory, and shown to who looks for alarms."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import PROCESS_NAME
from dtagent.protocol.logs import FollowReply, LogChunk

from dttui.engine.alerts.alert_watch import AlertWatch
from dttui.engine.alerts.metric_watch import Anomaly, MetricWatch
from dttui.engine.copies.copy_cap import CopyCap
from dttui.engine.copies.log_copy import Cursor, LogCopy
from dttui.engine.copies.metric_copy import MetricsSoFar, ReportPlace, append_metric, takes_metrics
from dttui.engine.copies.sample_copy import SampleCopy
from dttui.engine.step_times import StepTimes
from dttui.errors import AgentError
from dttui.i18n import _
from dttui.jobs import LAUNCHER, JobDirectory
from dttui.jobs.backlog import Backlog
from dttui.jobs.metrics import MetricStream
from dttui.jobs.training_speed import TrainingSpeed
from dttui.planning.models import Plan, PlannedNode
from dttui.redaction import Redaction
from dttui.rpc.sample_rows import ReceivedSample

METRICS_STREAM = "metrics"
TRAINER_STREAM = "trainer"
MOST_GPUS = 1024
"""Of a host, whose memory is looked at."""
_STREAM = re.compile(rf"{PROCESS_NAME}\.(out|err)|metrics|trainer")


@dataclass
class Steps:
    """How far the training of an attempt has come, by what ranks report."""

    first: int | None = None
    last: int | None = None
    """The furthest."""
    made_at: float = 0.0
    """Unix time at which that was heard of."""
    heard_at: float = 0.0
    """By the monotonic clock, when anything came of a rank: a line, or a report."""
    on_first: Callable[[int], None] | None = None
    on_next: Callable[[int], None] | None = None
    """Called once, with the next step that a rank reports, whichever that is."""
    speed: TrainingSpeed = field(default_factory=TrainingSpeed)
    """How fast it goes."""
    times: StepTimes = field(default_factory=StepTimes)
    """How long each rank takes for a step."""

    def take(self, step: int) -> None:
        """Take in that a rank has reported a step."""
        if self.last is None or step > self.last:
            self.last, self.made_at = step, time.time()
        if self.first is None:
            self.first = step
            if self.on_first is not None:
                self.on_first(step)
        if self.on_next is not None:
            call, self.on_next = self.on_next, None
            call(step)


@dataclass
class Shared:
    """What the nodes of an attempt have in common."""

    watch: MetricWatch = field(default_factory=MetricWatch)
    """Looks at all reports."""
    alerts: AlertWatch = field(default_factory=AlertWatch)
    """Those that the job asks for."""
    steps: Steps = field(default_factory=Steps)
    """How far it has come."""
    heartbeat_s: float = 30.0
    """Silence after which a node is unknown."""
    fences_itself: bool = False
    """Whether a host is to end its ranks by itself when it hears nothing for long."""
    copy_cap: CopyCap = field(default_factory=CopyCap)
    """The bound of all copies of logs."""
    backlog: Backlog = field(default_factory=Backlog)
    """Takes what the disk does not."""
    world_size: int = 1
    is_elastic: bool = False
    """Whether torchrun numbers the ranks, so that a node may have any of them."""
    redaction: Redaction = field(default_factory=Redaction)
    """Finds the values that nobody may see."""
    requires_group: bool = False
    """Whether the job fails where its ranks are not seen to form one process group."""
    log_share: float = 0.5
    """Of a core, what the logs of one node may take to be stored, so that one that prints without end delays no key."""

    @classmethod
    def of(cls, plan: Plan, backlog: Backlog) -> Shared:
        """Return what there is of a plan to be looked at, whether it runs or is over."""
        is_elastic = plan.min_nodes is not None
        return cls(copy_cap=CopyCap(plan.log_cap_bytes), backlog=backlog, world_size=plan.slots, is_elastic=is_elastic)

    def has_rank(self, rank: int) -> bool:
        """Whether the job has such a rank: scripts may claim any, and what is kept of each must stay bounded."""
        return 0 <= rank < self.world_size


class NodeRecord:
    """Keeps logs, reports and telemetry of one node; an agent is trusted with none of them.

    Args:
        planned: tells the node as it is planned by now: the preflight may learn of more GPUs.
        key: of the attempt.
        directory: of the job.
        shared: what it has in common with the others.
        on_news: called where there is something to tell.
        ranks: tells its ranks as they are numbered by now.
    """

    def __init__(
        self,
        planned: Callable[[], PlannedNode],
        key: AttemptKey,
        directory: JobDirectory,
        shared: Shared,
        on_news: Callable[[], None],
        ranks: Callable[[], Sequence[int]],
    ) -> None:
        self._ranks = ranks
        self._planned = planned
        self._key = key
        self._directory = directory
        self._shared = shared
        self._on_news = on_news
        self._name = planned().name
        self.logs = LogCopy(directory.logs(key.attempt, self._name), shared.copy_cap, shared.redaction)
        self._samples = SampleCopy(directory.samples(self._name), shared.backlog)
        self.last_sample: int | None = None
        """Number of the newest that was kept."""
        self.has_waiters = False
        """Whether jobs waited for GPUs of the host when it was heard of last."""
        self.metrics = MetricStream()
        """What the ranks reported."""
        self.trainer = MetricStream()
        """What was found in their logs."""
        self.has_reported = False
        """Whether a rank has reported a step or another measure."""
        self.reports = 0
        """How many have come."""
        self.alerts: list[Anomaly] = []
        """What is alarming of it, until that is told."""
        self.is_catching_up = False
        """Whether what comes may be from before this controller, too old for an alert."""
        self.gpu_peaks_mib: dict[int, int] = {}
        """GPU → the most memory that was seen in use there while the attempt was not over."""

    def resume(self, so_far: MetricsSoFar) -> None:
        """Go on where another controller ended: nothing of its metrics and telemetry is taken again."""
        for stream in (METRICS_STREAM, TRAINER_STREAM):
            cursor = so_far.cursors.get(ReportPlace(self._key.attempt, self._name, stream))
            if cursor is not None:
                self.logs.skip(stream, cursor)
        self.last_sample = self._samples.resume()
        self.is_catching_up = True

    def store(self, reply: FollowReply) -> None:
        """Keep what an answer to `follow` brings.

        Raises:
            AgentError: it is not what was asked for.
            OSError: there is no room, say; what was not kept may be asked for again.
        """
        host = self._name
        refused: dict[str, OSError] = {}
        for chunk in reply.chunks:
            if chunk.stream in refused:
                continue
            # Names become file names and offsets decide what is new: an agent is not trusted with either.
            data = _decoded(chunk.data)
            if data is None or not self._is_own_stream(chunk.stream) or not self.logs.accepts(chunk):
                raise AgentError(
                    host, _("{host}: the agent sends logs that were not asked for").format(host=host), code=0
                )
            try:
                self._take(chunk, data)
            except OSError as error:
                refused[chunk.stream] = error  # What comes of the others is taken all the same.
                continue
            if self.logs.is_endless(chunk, data, is_over=reply.status.state.is_final):
                raise AgentError(
                    host, _("{host}: the agent tells of gaps in logs without end").format(host=host), code=0
                )
        if refused:
            raise next(iter(refused.values()))

    def _take(self, chunk: LogChunk, data: bytes) -> None:
        if data and (self._planned().starts_own_ranks or not chunk.stream.startswith(f"{LAUNCHER}.")):
            self._shared.steps.heard_at = time.monotonic()
        if chunk.stream in (METRICS_STREAM, TRAINER_STREAM):
            if not takes_metrics(self._directory, self._shared.backlog):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._directory.metrics))
            self.logs.advance(chunk, data)
            self._store_metrics(chunk.stream, data)
        else:
            self.logs.write(chunk, data)
            if not self.is_catching_up:
                self._shared.alerts.see_log(self._name, chunk.stream, data)

    def keep_samples(
        self, samples: Sequence[ReceivedSample], clock_offset_s: float, *, is_over: bool
    ) -> ReceivedSample | None:
        """Keep those that are new; return the newest, `None` where none is.

        Args:
            samples: what the agent sent, in its order.
            clock_offset_s: of the host's clock.
            is_over: whether nothing of the attempt runs there any more.
        """
        newest = None
        for sample in samples:
            is_new = self.last_sample is None or sample.seq > self.last_sample
            self.last_sample = sample.seq
            if not is_new:
                continue
            newest = sample
            self.has_waiters = sample.has_waiters
            if not is_over:
                for gpu, mib in sample.gpu_memory_mib.items():
                    if gpu in self.gpu_peaks_mib or len(self.gpu_peaks_mib) < MOST_GPUS:
                        self.gpu_peaks_mib[gpu] = max(mib, self.gpu_peaks_mib.get(gpu, 0))
            with contextlib.suppress(OSError):  # It was removed in this moment.
                self._samples.append(sample)
            if self._shared.alerts.watches_samples and not (self.is_catching_up or is_over):
                self._shared.alerts.see_sample(self._name, sample.sample, clock_offset_s)
        return newest

    def finish(self) -> None:
        """Keep what waited for more, of which there will be none."""
        self._store_metrics(METRICS_STREAM, b"\n")  # The last line may have no end of its own.
        self.finish_logs()

    def break_off(self, reply: FollowReply) -> None:
        """Mark the copies of those logs of which there is more than was taken."""
        self.finish_logs()
        for chunk in reply.chunks:
            name = chunk.stream
            if chunk.data and name not in (METRICS_STREAM, TRAINER_STREAM) and self._is_own_stream(name):
                with contextlib.suppress(OSError):  # That there is no room was told.
                    self.logs.break_off(name)

    def finish_logs(self) -> None:
        """Write the end of logs whose copies are full: nothing more is to come now."""
        with contextlib.suppress(OSError):  # That there is no room was told.
            self.logs.finish()

    def _is_own_stream(self, stream: str) -> bool:
        planned, name = self._planned(), stream.partition(".")[0]
        ranks = range(self._shared.world_size) if self._shared.is_elastic else planned.ranks
        own = {LAUNCHER, *map(str, ranks), *(item.name for item in planned.processes)}
        return bool(_STREAM.fullmatch(stream)) and (name in own or stream in (METRICS_STREAM, TRAINER_STREAM))

    def _store_metrics(self, name: str, data: bytes) -> None:
        stream = self.metrics if name == METRICS_STREAM else self.trainer
        before = (stream.unreadable > 0, stream.skipped_bytes > 0)
        place, cursor = ReportPlace(self._key.attempt, self._name, name), self.logs.place(name)
        lowest = min(self._ranks(), default=0)
        for end, metric in stream.feed_placed(data, lowest, time.time(), self._shared.world_size):
            with contextlib.suppress(OSError):
                masked = self._shared.redaction.text
                named = {masked(measure): value for measure, value in metric.extra.items()}
                metric = replace(metric, extra=named, not_finite=[*map(masked, metric.not_finite or ())] or None)
                at = Cursor(cursor.offset - len(data) + end, cursor.inode)
                append_metric(self._directory, metric, place, at, self._shared.backlog)
            if not metric.is_of_payload:
                self.has_reported = True
                self.reports += 1
            if not self._shared.has_rank(metric.rank):
                continue
            if metric.step is not None:
                self._shared.steps.take(metric.step)
            self._shared.steps.speed.take(metric)
            self.alerts += self._shared.watch.feed(metric)
            if not self.is_catching_up:
                self._shared.steps.times.take(metric)
                self._shared.alerts.see_metric(self._name, metric)
        if self.alerts or before != (stream.unreadable > 0, stream.skipped_bytes > 0):
            self._on_news()


def _decoded(text: str) -> bytes | None:
    """Return the bytes of a chunk, `None` where its text stands for none."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None
