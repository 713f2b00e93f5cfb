"""Reads what a job's directory holds of its end: events, ends of logs, readings, metrics; clean and redacted."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from dtagent.protocol.events import Event, EventKind, JobState, NodeStanding
from dtagent.protocol.jobs import PROCESS_NAME
from dtagent.protocol.telemetry import HostSample
from pydantic import TypeAdapter, ValidationError

from dttui.diagnosis.exceptions import crash_begins, exceptions_in
from dttui.diagnosis.models import AbsentNode, Evidence, Failed, LogLine, NodeEvidence, Rendezvous
from dttui.diagnosis.refused import added_arguments
from dttui.diagnosis.rounds import Rounds, rounds_of
from dttui.jobs import LAUNCHER, JobDirectory
from dttui.jobs.checks import Check, CheckStatus
from dttui.jobs.disturbances import APART
from dttui.jobs.following import GrowingFile
from dttui.jobs.log_marks import retold
from dttui.jobs.log_masks import hidden
from dttui.jobs.sparse_files import last_hole_end
from dttui.jobs.view import NODE_OUT, JobView, NodeView
from dttui.planning.models import Severity
from dttui.redaction import NO_VALUES
from dttui.sanitize import clean
from dttui.spec.failure_causes import ALERT, STRAGGLER
from dttui.timestamps import timestamp_or
from dttui.words import without_log_head

MOST_LINES = 60
"""Of each stream of a rank that failed."""
MOST_OF_CRASH = 300
"""Of one of which Python has told where all its threads were."""
MOST_NODES = 16
"""Nodes whose readings and launcher are looked at, those that failed first before others."""
MOST_RANKS = 256
"""Ranks whose last line is looked up."""
MOST_READ = 16
"""Failures whose logs are read, the first ones; of the others there is what was told of them."""
MOST_CHARACTERS = 500
"""Of a line."""
TAIL_BYTES = 64 * 1024
LAST_LINE_BYTES = 8 * 1024
BLOCK_BYTES = 1024 * 1024
COUNTED_BYTES = 64 * 1024 * 1024
"""In a file that is longer, lines are not counted."""
SAMPLE_BYTES = 1024 * 1024
CRASH_LINES = 20
"""So near its end a log of a job without a controller must have an exception for the rank to count as failed."""
PYTHON_UNKNOWN = "python-unknown"
"""Code of a finding on an interpreter that could not be looked at."""
REFUSED = 2
"""Exit code of a program that does not take its arguments."""
_OUR_FRAME = re.compile(r'  File "(?:[^"]*/payload/(?:rank|warm|process_groups)\.py|<frozen runpy>)", line \d+ in ')
"""In what Python prints when compiled code crashes; of an exception the rank leaves these frames out itself."""
_SAMPLE = TypeAdapter(HostSample)
_Show = Callable[[str], str]


def read_evidence(directory: JobDirectory, view: JobView) -> Evidence:
    """Return what the directory holds, of the newest attempt.

    It may be called on a thread, while another one lets the view take in what is new.

    Args:
        directory: the job's.
        view: the same job, read to its newest event.
    """
    show = _shower(view)
    is_watched = directory.has_controller()
    attempt, state, reason, of_view = view.attempt, view.state, show(view.reason), dict(view.nodes)
    events = [event for event in tuple(view.events) if event.attempt in (None, attempt)]
    logs = {name: directory.logs(attempt, name) for name in of_view}
    last_lines = _last_lines(directory, logs, of_view, show)
    told = _told_of(events)
    rounds = rounds_of(events, attempt, {name: _offset_s(told, name) for name in of_view})
    failed = enumerate(event for event in events if event.kind is EventKind.RANK_FAILED)
    failures = tuple(
        _failed(directory, attempt, event, show, rounds, reads_logs=at < MOST_READ) for at, event in failed
    )
    if not state.is_final and not is_watched:
        state = JobState.UNKNOWN
        failures = failures or tuple(_crashed(directory, logs, of_view, show))
    rendezvous = _rendezvous(view, events, show)
    looked_at = _looked_at(failures, of_view, rendezvous)
    pythons = _pythons(directory, attempt)
    unseen = {_subject(event): show(event.message) for event in events if _is_of_unseen_python(event)}
    nodes = []
    for name, node in of_view.items():
        of_node = told.get(name, {})
        found = _node(node, of_node, pythons.get(name, node.plan.python), unseen.get(name, ""), show)
        if name in looked_at:
            readings = tuple(_readings(directory.samples(name), _offset_s(told, name)))
            launcher = rounds[name].last(tail_of(directory, logs[name] / f"{LAUNCHER}.err", show))
            found = replace(found, readings=readings, launcher=launcher)
        nodes.append(found)
    return Evidence(
        job_id=view.job_id,
        state=state,
        reason=reason,
        exit_code=view.exit_code,
        outcome_cause=view.outcome_cause,
        attempt=attempt,
        is_watched=is_watched,
        now=time.time(),
        nodes=tuple(nodes),
        failures=failures,
        findings=_errors(events, show),
        agentless=_reached(events, "no-agent"),
        refused=_reached(events, "refused"),
        nodes_out={_subject(event): show(event.message) for event in _of_code(NODE_OUT, events)},
        metrics=dict(view.reported) if view.reported_in == attempt else {},
        broken_metrics=tuple(show(event.message) for event in _of_code("loss-not-finite", events)),
        last_lines=last_lines,
        running_at=view.running_at,
        rendezvous=rendezvous,
        absent_ranks=_absent_ranks(events),
        apart=_apart(events, show),
        alert=_alert(events, show),
        hang=_last_told(EventKind.HANG, events, show),
        straggler=_straggler(events, show),
        unhealthy=_unhealthy(events, show),
        cleared=view.aftermath.cleared,
        removed_on=frozenset(map(_subject, _of_code("agent-files-removed", events))),
        full_on={_subject(event): event.time for event in _of_code("agent-disk-full", events)},
        framework=view.plan.framework if view.plan is not None else "",
        earlier=_earlier(view.events, attempt, show),
        added_arguments=_added(directory, view, failures),
    )


def _added(directory: JobDirectory, view: JobView, failures: Sequence[Failed]) -> tuple[str, ...]:
    """Return the arguments that dttui has added to a script's, where it takes some of them for wrong."""
    is_refused = any(item.exit_code == REFUSED for item in failures)
    return added_arguments(directory, view.plan) if is_refused else ()


def _of_code(code: str, events: Sequence[Event]) -> list[Event]:
    """Return the findings of a code."""
    return [event for event in events if event.data.get("code") == code]


def _errors(events: Sequence[Event], show: _Show) -> tuple[tuple[str, str], ...]:
    """Return message and hint of what a preflight has refused."""
    return tuple(
        (show(event.message), show(str(event.data.get("hint") or "")))
        for event in events
        if event.kind is EventKind.FINDING and event.data.get("severity") == Severity.ERROR.value
    )


def _looked_at(failures: Sequence[Failed], nodes: Mapping[str, NodeView], rendezvous: Rendezvous | None) -> set[str]:
    """Return the nodes whose readings and launchers are read: those first that something has happened to."""
    lost = [name for name, node in nodes.items() if node.state is NodeStanding.LOST]
    missing = [item.name for item in rendezvous.absent if item.has_come is False] if rendezvous is not None else []
    named = [*(item.node for item in failures), *lost, *missing, *nodes]
    return set(list(dict.fromkeys(named))[:MOST_NODES])


def _apart(events: Sequence[Event], show: _Show) -> tuple[str, str] | None:
    """Return what was last told of ranks that do not train together, and its hint."""
    told = next((event for event in reversed(events) if event.data.get("code") == APART), None)
    if told is None or told.data.get("severity") == Severity.INFO.value:
        return None
    return show(told.message), show(str(told.data.get("hint") or ""))


def _alert(events: Sequence[Event], show: _Show) -> str | None:
    """Return what the alert said for which the attempt was ended."""
    ended = (event for event in events if event.data.get("state") == JobState.STOPPING.value)
    return next((show(event.message) for event in ended if event.data.get("cause") == ALERT), None)


def _last_told(kind: EventKind, events: Sequence[Event], show: _Show) -> tuple[str, str, bool] | None:
    """Return what was last told of a hang or a straggler, where nothing took it back."""
    told = next((event for event in reversed(events) if event.kind is kind), None)
    if told is None or told.data.get("severity") == Severity.INFO.value:
        return None
    return show(told.message), show(str(told.data.get("hint") or "")), bool(told.data.get("restarts"))


def _straggler(events: Sequence[Event], show: _Show) -> tuple[str, str, bool] | None:
    """Return what was last told of a rank for which the others wait, and whether that ended the attempt."""
    told = _last_told(EventKind.STRAGGLER, events, show)
    ended_it = any(event.data.get("cause") == STRAGGLER for event in events if event.kind is EventKind.JOB_STATE)
    return None if told is None else (*told[:2], ended_it)


def _unhealthy(events: Sequence[Event], show: _Show) -> tuple[str, str, bool] | None:
    """Return what was said of the first host that is unhealthy, where nothing took it back."""
    told: dict[str, Event] = {}
    for event in events:
        if event.kind is EventKind.HEALTH and event.node is not None:
            told.pop(event.node, None)
            if event.data.get("severity") != Severity.INFO.value:
                told[event.node] = event
    first = next((event for event in told.values() if event.data.get("restarts")), next(iter(told.values()), None))
    if first is None:
        return None
    return show(first.message), show(str(first.data.get("hint") or "")), bool(first.data.get("restarts"))


def _earlier(events: Iterable[Event], attempt: int, show: _Show) -> tuple[tuple[int, str], ...]:
    """Return why the attempts before one ended, as it was told when another was to follow."""
    told = {
        event.attempt: show(event.message)
        for event in tuple(events)
        if event.kind is EventKind.JOB_STATE and event.data.get("state") == JobState.RESTARTING.value
    }
    return tuple((number, why) for number, why in told.items() if number is not None and number < attempt)


def _reached(events: Sequence[Event], code: str) -> tuple[str, ...]:
    """Return the hosts that a finding of a code names; none where there is one that was out of reach."""
    told = [event for event in events if event.data.get("code") in (code, "unreachable")]
    is_any_silent = any(event.data.get("code") == "unreachable" for event in told)
    return () if is_any_silent else tuple(map(_subject, told))


def _subject(event: Event) -> str:
    """Return what a finding is about."""
    return str(event.data.get("subject"))


def _is_of_unseen_python(event: Event) -> bool:
    return event.kind is EventKind.FINDING and event.data.get("code") == PYTHON_UNKNOWN


def _offset_s(told: Mapping[str, Mapping[str, object]], node: str) -> float:
    """Return by how much a host's clock is ahead."""
    return _number(told.get(node, {}).get("clock_offset_s"))


def _rendezvous(view: JobView, events: Sequence[Event], show: _Show) -> Rendezvous | None:
    """Return what was last told of who is missing at the rendezvous."""
    told = next((event.data for event in reversed(events) if isinstance(event.data.get("missing"), dict)), None)
    if told is None or view.plan is None:
        return None
    absent = []
    for name, item in told["missing"].items():
        if not isinstance(item, dict):
            continue
        reached = view.checks.get(name, {}).get(Check.MASTER)
        has_reached = reached is not None and reached.status is CheckStatus.OK
        absent.append(
            AbsentNode(name, item.get("has_come"), without_log_head(show(str(item.get("said", "")))), has_reached)
        )
    port = told.get("port")
    return Rendezvous(
        _number(told.get("waited_s")),
        view.plan.rendezvous_timeout_s,
        view.plan.master_address,
        port if isinstance(port, int) else None,
        tuple(absent),
    )


def _absent_ranks(events: Sequence[Event]) -> dict[int, str]:
    """Return what was last told of ranks that had not come to init_process_group."""
    told: object = {}
    for event in events:
        is_anew = event.kind is EventKind.JOB_STATE and event.data.get("state") == JobState.RUNNING.value
        told = {} if is_anew else event.data.get("absent_ranks", told)
    ranks = told if isinstance(told, dict) else {}
    return {int(rank): str(node) for rank, node in ranks.items() if rank.isdecimal()}


def _shower(view: JobView) -> _Show:
    """Return the filter of every text: nothing that drives a terminal, no secret whose value is known here."""
    redaction = view.redaction()
    return lambda text: retold(redaction.text(clean(text)))


def _node(node: NodeView, told: Mapping[str, object], python: str, unseen: str, show: _Show) -> NodeEvidence:
    started = told.get("ranks_started")
    return NodeEvidence(
        name=node.plan.name,
        ranks=node.ranks,
        state=node.state,
        message=show(node.message),
        python=python,
        gpu_ids=node.gpu_ids,
        ranks_started=tuple(item for item in started if isinstance(item, int)) if isinstance(started, list) else None,
        exits={name: code for name, code in _items(told.get("exits")) if isinstance(code, int)},
        ended_at={name: float(time) for name, time in _items(told.get("ended_at")) if isinstance(time, (int, float))},
        prefix=node.plan.prefix,
        starts_own_ranks=node.plan.starts_own_ranks,
        unseen=unseen,
        is_agent_gone=bool(told.get("agent_gone")),
    )


def _items(value: object) -> Iterable[tuple[str, object]]:
    return ((str(name), item) for name, item in value.items()) if isinstance(value, dict) else ()


def _told_of(events: Iterable[Event]) -> dict[str, dict[str, object]]:
    """Return what the events told of each node, newer data over older."""
    told: dict[str, dict[str, object]] = {}
    for event in events:
        if event.kind is EventKind.NODE_STATE and event.node:
            told.setdefault(event.node, {}).update(event.data)
    return told


def _pythons(directory: JobDirectory, attempt: int) -> dict[str, str]:
    """Return each node's interpreter as the host knows it, once it was asked."""
    with contextlib.suppress(OSError, ValidationError):
        return {name: item.python for name, item in directory.read_bound_plan(attempt).bindings.nodes.items()}
    return {}


def _failed(
    directory: JobDirectory,
    attempt: int,
    event: Event,
    show: _Show,
    rounds: Mapping[str, Rounds],
    *,
    reads_logs: bool,
) -> Failed:
    data = event.data
    service = str(data["process"]) if re.fullmatch(PROCESS_NAME, str(data.get("process"))) else None
    name = service or (LAUNCHER if event.rank is None else str(event.rank))
    lines: list[LogLine] = []
    if event.node and reads_logs:
        logs = directory.logs(attempt, event.node)
        lines = [*tail_of(directory, logs / f"{name}.out", show), *tail_of(directory, logs / f"{name}.err", show)]
        lines = [line for line in lines if not _OUR_FRAME.match(line.text)]
    if not lines:
        tail = data.get("tail")
        texts = tail if isinstance(tail, list) else ()
        lines = [LogLine("events.jsonl", None, show(str(text))[:MOST_CHARACTERS]) for text in texts]
    moment = timestamp_or(_number(data.get("time")), event.time)
    if name == LAUNCHER and (of_node := rounds.get(event.node or "")):
        lines = [*of_node.last(lines, moment)]
    return Failed(
        node=event.node or "",
        rank=event.rank,
        message=show(event.message),
        time=moment or None,
        exit_code=_whole(data.get("exit_code")),
        signal=_whole(data.get("signal")),
        error=_shown(data.get("error"), show),
        traceback=_shown(data.get("traceback"), show),
        lines=tuple(lines),
        memory_limit_mib=_whole(data.get("memory_limit_mib")),
        oom_kills=_whole(data.get("oom_kills")),
        is_at_limit=data.get("at_memory_limit") is True,
        is_spared=data.get("oom_killed_here") is False,
        service=service,
        is_lost=bool(data.get("lost")),
        is_cleared=bool(data.get("lost")) and not data.get("uncleared"),
        is_self_fenced=data.get("self_fenced") is True,
        is_aftermath=bool(data.get("uncleared")),
        is_survived=bool(data.get("survived")),
    )


def _crashed(
    directory: JobDirectory, logs: Mapping[str, Path], nodes: Mapping[str, NodeView], show: _Show
) -> list[Failed]:
    """Return the ranks whose logs end with an exception: all that a job without a controller has to tell."""
    found: list[Failed] = []
    for name, rank in islice(_ranks(nodes), MOST_RANKS):
        path = logs[name] / f"{rank}.err"
        lines = tail_of(directory, path, show, counts=False)
        raised = exceptions_in([line.text for line in lines])
        if raised and raised[-1].index >= len(lines) - CRASH_LINES:
            message = f"{name}, {rank}: {raised[-1].text.splitlines()[0]}"
            if len(found) < MOST_READ:
                lines = tail_of(directory, path, show)
            with contextlib.suppress(OSError):  # It was removed meanwhile.
                found.append(Failed(name, rank, message, path.stat().st_mtime, lines=tuple(lines)))
    return found


def _ranks(nodes: Mapping[str, NodeView]) -> Iterator[tuple[str, int]]:
    """Yield all ranks, each with its node."""
    return ((name, rank) for name, node in nodes.items() for rank in node.ranks)


def _readings(path: Path, offset_s: float) -> list[HostSample]:
    samples = []
    for line in GrowingFile(path, last_bytes=SAMPLE_BYTES).read():
        with contextlib.suppress(ValidationError):
            sample = _SAMPLE.validate_json(line)
            samples.append(replace(sample, time=sample.time - offset_s))
    return samples


def _last_lines(
    directory: JobDirectory, logs: Mapping[str, Path], nodes: Mapping[str, NodeView], show: _Show
) -> dict[int, LogLine]:
    """Return the newest line of each rank: of the stream that was written to last."""
    found: dict[int, LogLine] = {}
    for node, rank in _ranks(nodes):
        if len(found) >= MOST_RANKS:
            break
        written = []
        for path in (logs[node] / f"{rank}.out", logs[node] / f"{rank}.err"):
            with contextlib.suppress(OSError):
                written.append((path.stat().st_mtime, path))
        for _mtime, path in sorted(written, reverse=True):
            tail = tail_of(directory, path, show, LAST_LINE_BYTES, counts=False)
            lines = [line for line in tail if line.text.strip()]
            if lines:
                found[rank] = lines[-1]
                break
    return found


def tail_of(
    directory: JobDirectory, path: Path, show: _Show, limit_bytes: int | None = None, *, counts: bool = True
) -> list[LogLine]:
    """Return the last lines of a log; of a progress bar that was redrawn, its last state.

    Args:
        directory: the job's.
        path: of the log.
        show: the filter of every text.
        limit_bytes: of how much of its end.
        counts: whether to tell their numbers also in a log of which only the end is read.
    """
    last_bytes = limit_bytes or TAIL_BYTES
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            start = max(0, size - last_bytes)
            before = _count_lines(path, stream, start) if counts or not start else None
            stream.seek(start)
            data = hidden(path, start, stream.read(last_bytes), NO_VALUES)
    except OSError:
        return []
    texts = data.split(b"\n")
    if texts and not texts[-1]:
        texts.pop()
    numbered = list(enumerate(texts, 1 + before)) if before is not None else [(None, text) for text in texts]
    if start and numbered:
        numbered.pop(0)
    file = str(path.relative_to(directory.path))
    found = [
        LogLine(file, number, show(text.decode(errors="replace").rstrip("\r").rpartition("\r")[2])[:MOST_CHARACTERS])
        for number, text in numbered[-MOST_OF_CRASH:]
    ]
    # Python tells of all threads when compiled code crashes, and why it did stands before that.
    crash = crash_begins([line.text for line in found])
    before = MOST_LINES if crash is None else max(MOST_LINES, len(found) - crash + CRASH_LINES)
    return found[-before:]


def _count_lines(path: Path, stream: BinaryIO, end: int) -> int | None:
    """Return how many lines end before an offset; `None` where that is too far to count."""
    if end > COUNTED_BYTES:
        return None
    blocks, inode, hole_end = end // BLOCK_BYTES, os.fstat(stream.fileno()).st_ino, last_hole_end(stream.fileno())
    stream.seek(blocks * BLOCK_BYTES)
    rest = stream.read(end - blocks * BLOCK_BYTES).count(b"\n")
    return rest + sum(
        lines_in_block(path, inode, block, hole_end if block * BLOCK_BYTES < hole_end else 0) for block in range(blocks)
    )


@functools.lru_cache(maxsize=4096)
def lines_in_block(path: Path, inode: int, block: int, _hole_end: int) -> int:
    """Return how many lines end in a whole block of a log: a diagnosis is made again and again.

    A log only grows, but for a hole in its middle, which may come to be or become longer, and the line before it.
    """
    with path.open("rb") as stream:
        stream.seek(block * BLOCK_BYTES)
        return stream.read(BLOCK_BYTES).count(b"\n")


def _shown(value: object, show: _Show) -> str | None:
    return show(value) if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
