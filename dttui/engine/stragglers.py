"""Whether one rank is slower than the others: asked now and then, by its collectives and by the readings of its GPU.

Where no rank can tell of collectives, one that takes longer for its steps than the others is named by what they report.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import mean, median
from typing import Any

from dtagent.protocol.checkpoints import MAX_SEARCH_S, CheckpointsReply, CheckpointsRequest
from dtagent.protocol.events import Event, EventKind

from dttui.diagnosis.gpu_readings import GpuPlace
from dttui.diagnosis.lateness import Lateness
from dttui.diagnosis.slow_gpus import SlowGpu, SlowGpuRows, hint_of, sentence, slow_gpus
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.call_times import lateness_of
from dttui.engine.gpu_reader import ReadGpus
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.step_times import StepTimes, slowness
from dttui.i18n import Message, msg
from dttui.jobs import JobDirectory
from dttui.planning.binding import checkpoint_directory
from dttui.planning.models import Plan
from dttui.spec.findings import Severity
from dttui.timestamps import elapsed_s

MOST_BETWEEN_S = 30.0
"""Between two questions; a rank takes some milliseconds to answer one."""
LEAST_BETWEEN_S = 2.0
QUESTIONS = 4
"""That have to tell of the same rank, one after another, before it is named, at least; and of another before that is
taken back."""
SHARE = 0.1
"""Of the time: for whom the others wait longer is a straggler."""
LEAST_READ_S = 5.0
"""Of GPUs, that are looked at with each question."""


def is_of_link(event: Event) -> bool:
    """Whether an event tells of a slow link, and of no rank."""
    return event.kind is EventKind.STRAGGLER and "links" in event.data


def pause_between_s(after_s: float | None) -> float:
    """Return how long to wait from one question to the next, where what it asks after has to last for a time."""
    return min(max((after_s or 0.0) / QUESTIONS, LEAST_BETWEEN_S), MOST_BETWEEN_S)


@dataclass(frozen=True)
class _Found:
    """What one round of questions has told of the rank that is waited for most."""

    at: float
    """Unix time."""
    lag: Lateness | None

    @property
    def rank(self) -> int | None:
        """That rank's number; `None` where none is waited for long."""
        return self.lag.rank if self.lag is not None else None


@dataclass(frozen=True)
class _Named:
    """A rank that was named."""

    rank: int
    at: float
    """Unix time."""
    gpu: GpuPlace | None = None
    """What it was named for; `None` where the others were seen to wait for it."""
    by_steps: bool = False
    """Whether it was seen to take longer for its steps instead."""


@dataclass(frozen=True)
class _Answer:
    """What came of one round of questions."""

    lags: dict[int, Lateness]
    """How late ranks are."""
    gpus: dict[GpuPlace, SlowGpu | None]
    """How GPUs were judged by what they did since the round before."""
    replaceable: _Named | None
    """Who is named, where all checkpoints are newer than that word."""


@dataclass(frozen=True)
class Straggler:
    """That a spare is to take the place of a rank's host."""

    node: str
    message: Message
    hint: Message


class StragglerWatch:
    """Names a rank for which the others wait, since when and for how much of their time; and takes it back.

    So is one whose GPU is slower than the others. Of two ranks the one that is seen to be waited for counts more.

    Args:
        plan: says for how long it has to be so, whether a spare is to take the place, and where checkpoints are.
        directory: of the job.
        log: of the attempt.
        nodes: returns those that take part.
        read_gpus: returns what their GPUs did.
        wake: called once there is an answer.
        next_spare: returns who would take a place now, `None` where nobody would.
        told: what another controller has told of the attempt.
        times: how long ranks take for a step.
    """

    def __init__(
        self,
        plan: Plan,
        directory: JobDirectory,
        log: AttemptLog,
        nodes: Callable[[], Sequence[NodeRun]],
        read_gpus: ReadGpus,
        wake: Callable[[], None],
        next_spare: Callable[[], str | None],
        told: Iterable[Event] = (),
        times: StepTimes | None = None,
    ) -> None:
        self._times = times or StepTimes()
        self._hears_calls = False
        """Whether ranks have told when they called collectives: then their steps, made together, say nothing."""
        self._policy = plan.recovery
        self._after_s = plan.recovery.straggler_s
        self._directory = directory
        self._places = {node.name: checkpoint_directory(node) for node in plan.nodes}
        self._log = log
        self._nodes = nodes
        self._read_gpus = read_gpus
        self._wake = wake
        self._next_spare = next_spare
        self._asking: asyncio.Task[_Answer] | None = None
        self._next_at = 0.0
        self._asked_at = 0.0
        looks = max(QUESTIONS, ceil((self._after_s or 0.0) / self.between_s))
        self._rounds: deque[_Found] = deque(maxlen=looks)
        self._slow = SlowGpuRows(looks, QUESTIONS)
        kept = (item for item in reversed([*told]) if item.kind is EventKind.STRAGGLER and not is_of_link(item))
        last = next(kept, None)
        self._told = _named_by(last) if last is not None else None

    @property
    def between_s(self) -> float:
        """From one question to the next."""
        return pause_between_s(self._after_s)

    @property
    def _read_s(self) -> float:
        """Of GPUs, what each question is about."""
        return max(self.between_s, LEAST_READ_S)

    @property
    def wait_s(self) -> float | None:
        """When to look again though no host says anything new; `None` for never."""
        if self._after_s is None or self._asking is not None:
            return None
        return max(0.1, self._next_at - time.monotonic())

    def look(self, *, is_running: bool, may_tell: bool = True) -> Straggler | None:
        """Ask where it is time, and tell what came of it; return whose host is to be replaced now.

        Args:
            is_running: whether all ranks run, and none is told to end.
            may_tell: whether a rank may be named, for which nothing else is known yet that it may be late for.
        """
        if self._after_s is None:
            return None
        now = time.monotonic()
        if not is_running:
            self._rounds.clear()
            self._slow.clear()
            self._next_at = now + self.between_s
            return None
        if self._asking is not None:
            if not self._asking.done():
                return None
            answer, self._asking = self._asking.result(), None
            self._judge(answer.lags, may_tell=may_tell)
            self._judge_gpus(answer.gpus)
            # Not one that was just named, nor one for which nobody has waited of late.
            named = answer.replaceable
            return self._replaced(named) if named is not None and self._told == named and self._is_slow(named) else None
        if now < self._next_at:
            return None
        self._next_at = now + self.between_s
        nodes = [node for node in self._nodes() if not node.is_over]
        if not nodes or any(node.silent_since is not None for node in nodes):
            return None
        self._asking = asyncio.create_task(self._ask(nodes, self._asked_at))
        self._asked_at = time.time()
        self._asking.add_done_callback(lambda _task: self._wake())
        return None

    async def close(self) -> None:
        """Ask nobody any more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self, nodes: Sequence[NodeRun], since: float) -> _Answer:
        """Ask when ranks called their collectives, what GPUs did, and, of one that is named, for newer checkpoints."""
        told = self._told
        found, read = await asyncio.gather(lateness_of(nodes, since), self._read_gpus(nodes, self._read_s))
        self._hears_calls = self._hears_calls or bool(found)
        if not self._hears_calls:
            found = slowness(self._times.spans())
        gpus = await asyncio.to_thread(slow_gpus, read)  # Of thousands of GPUs it takes a second.
        if told is None or not self._policy.replaces_stragglers:
            return _Answer(found, gpus, None)
        newest = await asyncio.gather(*(_newest_checkpoint(node, self._places.get(node.name)) for node in nodes))
        times = [item for item in newest if item is not None]
        return _Answer(found, gpus, told if times and min(times) > told.at else None)

    def _is_slow(self, named: _Named) -> bool:
        if named.gpu is not None:
            return self._slow.is_slow(named.gpu)
        return bool(self._rounds) and self._rounds[-1].rank == named.rank

    def _replaced(self, named: _Named) -> Straggler | None:
        """Return who is to be replaced, where there is a spare for it."""
        node = next((node for node in self._nodes() if named.rank in node.ranks), None)
        spare = self._next_spare()
        if node is None or spare is None:
            return None
        names = {"spare": spare, "host": node.name, "rank": named.rank}
        message = msg("{spare} takes the place of {host}, for whose rank {rank} the others wait", **names)
        if named.gpu is not None:
            message = msg("{spare} takes the place of {host}, whose GPU {gpu} is slower than the others",
                          spare=spare, host=node.name, gpu=named.gpu.gpu)  # fmt: skip
            return Straggler(node.name, message, hint_of(named.gpu))
        if named.by_steps:
            message = msg("{spare} takes the place of {host}, whose rank {rank} is slower than the others", **names)
        return Straggler(node.name, message, self._hint(named.rank, node))

    def _judge(self, found: dict[int, Lateness], *, may_tell: bool) -> None:
        if not found:
            return  # Nobody says anything, or too little was called: nothing is known anew.
        worst = max(found.values(), key=lambda item: item.share)
        self._rounds.append(_Found(time.time(), worst if worst.share >= SHARE else None))
        named, told = {item.rank for item in self._rounds}, self._told
        is_told_late = told is not None and told.gpu is None
        if told is not None and is_told_late and all(item.rank != told.rank for item in [*self._rounds][-QUESTIONS:]):
            message = msg("the others wait for rank {rank} no more", rank=told.rank)
            if told.by_steps:
                message = msg("rank {rank} is as fast as the others again", rank=told.rank)
            self._take_back(message)
        rank, told = next(iter(named)) if len(named) == 1 else None, self._told
        is_new = may_tell and rank is not None and (told is None or rank != told.rank)
        if rank is not None and is_new and len(self._rounds) == self._rounds.maxlen:
            self._tell(rank, [item.lag for item in self._rounds if item.lag is not None])

    def _judge_gpus(self, judged: dict[GpuPlace, SlowGpu | None]) -> None:
        now = time.time()
        self._slow.take(now - self._read_s, judged)
        told = self._told
        if told is not None and told.gpu is not None and self._slow.is_over(told.gpu):
            self._take_back(msg("GPU {gpu} on {host} is as fast as the others again",
                                gpu=told.gpu.gpu, host=told.gpu.node))  # fmt: skip
        for slow, since in self._slow.named():
            # Of a rank for which the others wait this is the reason.
            if self._told is None or (self._told.gpu is None and self._told.rank == slow.rank):
                self._tell_gpu(slow, since)

    def _tell(self, rank: int, lags: Sequence[Lateness]) -> None:
        node = next((node for node in self._nodes() if rank in node.ranks), None)
        if node is None:
            return
        since = self._rounds[0].at
        share, late_s = mean(item.share for item in lags), median(item.late_s for item in lags)
        message = msg(
            "the others wait for rank {rank} on {host} {share} of the time: it comes to collectives {late:.2f} s later",
            rank=rank, host=node.name, share=f"{share:.0%}", late=late_s)  # fmt: skip
        if not self._hears_calls:
            message = msg(
                "rank {rank} on {host} takes {late:.2f} s longer for a step than the others, {share} of its time",
                rank=rank, host=node.name, share=f"{share:.0%}", late=late_s)  # fmt: skip
        hint = self._hint(rank, node)
        data: dict[str, Any] = {
            "severity": Severity.WARNING.value,
            "since": since,
            "share": round(share, 3),
            "late_s": round(late_s, 3),
            "hint": hint,
            **({} if self._hears_calls else {"by_steps": True}),
        }
        self._told = _Named(rank, time.time(), by_steps=not self._hears_calls)
        self._log.add(EventKind.STRAGGLER, message, node=node.name, rank=rank, data=data)

    def _tell_gpu(self, slow: SlowGpu, since: float) -> None:
        message = sentence(slow, elapsed_s(since, time.time()))
        data: dict[str, Any] = {
            "severity": Severity.WARNING.value,
            "since": since,
            "by": slow.by.value,
            "gpu": slow.place.gpu,
            "share": round(slow.share, 3) if slow.share is not None else None,
            "clock_mhz": slow.clock_mhz,
            "others_clock_mhz": slow.others_clock_mhz,
            "temperature_c": slow.temperature_c,
            "others_temperature_c": slow.others_temperature_c,
            "held_back_by": list(slow.reasons),
            "hint": hint_of(slow.place),
        }
        # Checkpoints since it was first named are as good.
        self._told = _Named(slow.rank, self._told.at if self._told is not None else time.time(), slow.place)
        self._log.add(EventKind.STRAGGLER, message, node=slow.place.node, rank=slow.rank, data=data)

    def _hint(self, rank: int, node: NodeRun) -> Message:
        return msg("See what it does by `dttui stacks {job} --rank {rank}`, and what else runs on {host}.",
                   job=self._directory.job_id, rank=rank, host=node.name)  # fmt: skip

    def _take_back(self, message: Message) -> None:
        rank, self._told = self._told.rank if self._told is not None else None, None
        self._log.add(EventKind.STRAGGLER, message, rank=rank, data={"severity": Severity.INFO.value})


def _named_by(event: Event) -> _Named | None:
    """Return whom an event has named; `None` where it took that back."""
    if event.rank is None or event.data.get("severity") == Severity.INFO.value:
        return None
    gpu = event.data.get("gpu")
    place = GpuPlace(event.node, gpu) if event.node is not None and isinstance(gpu, int) else None
    return _Named(event.rank, event.time, place, by_steps=bool(event.data.get("by_steps")))


async def _newest_checkpoint(node: NodeRun, place: str | None) -> float | None:
    """Return when a host's newest complete checkpoint of this attempt was written, Unix time; `None` without one."""
    if place is None:
        return None
    reply = await node.answer_within("checkpoints", CheckpointsRequest([place]), CheckpointsReply, MAX_SEARCH_S)
    complete = reply.directories[0].complete if reply is not None and reply.directories else []
    return node.here(complete[0].time) if complete else None
