"""Why a job failed: the failures of all nodes on one clock, the earliest first, each in plain words."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dtagent.protocol.jobs import EndReason, NodeState, NodeStatus, ProcessExit, RankFailure
from dtagent.protocol.rpc import to_wire

from dttui.agent_words import agent_text
from dttui.diagnosis.causes import any_is_consequence, by_signal, recognise
from dttui.diagnosis.exceptions import chain, headline, shortened
from dttui.diagnosis.models import Failed
from dttui.engine.nodes.node_run import NodeRun
from dttui.i18n import Message, msg
from dttui.jobs import LAUNCHER, JobDirectory
from dttui.jobs.following import tail
from dttui.redaction import redact
from dttui.sanitize import clean

LEFT = 75
"""With what dttui's torchrun of an elastic job exits that lost its way to the rendezvous: the others do not depend on
it."""
TAMPERED = 76
"""With what it exits where somebody else wrote to the rendezvous."""
TAIL_LINES = 30
MAX_ERROR_LENGTH = 300
MAX_LEFTOVERS, MAX_COMMAND = 16, 200
CLOCK_SLACK_S = 1.0
"""How much the clocks of a host and of this machine may be apart after the correction."""


@dataclass(frozen=True)
class FoundFailure:
    """One rank, one launcher or one service that broke."""

    node: str
    rank: int | None
    message: str
    data: dict[str, Any]
    """As the event RANK_FAILED carries it."""

    @property
    def time(self) -> float:
        """Unix time, the login node's clock."""
        return float(self.data["time"])

    def is_of(self, failed: Failed) -> bool:
        """Whether it is this one that was recorded as that."""
        return (self.node, self.rank, self.data.get("process")) == (failed.node, failed.rank, failed.service)


def ending(status: NodeStatus, told_at: float | None = None) -> str:
    """Return in words why a node's part is ending or has ended: of a stop, whether it had to be killed.

    Args:
        status: of the node.
        told_at: Unix time of the host at which it was told to end, where that is known.
    """
    if status.state is NodeState.UNKILLABLE:
        return msg("cannot be ended: {left}", left=_left(status))
    if status.end_reason is EndReason.PROCESS_FAILED:
        return msg("a process failed")
    if status.end_reason is not EndReason.STOPPED:
        return agent_text(status.reason, status.reason_notice)
    if not status.exits:
        return msg("before it ran")
    if _had_ended(status):
        return msg("its ranks had ended; the launcher that waited for others was killed")
    before = _ended_before(status, told_at)
    if before and before == {str(rank) for rank in status.ranks_started}:
        return msg("its ranks had ended by themselves")
    told = msg("killed") if _was_killed(status) else msg("ended by itself after SIGTERM")
    if before:
        return msg("{how}; {ended} of {count} ranks had ended before",
                   how=told, ended=len(before), count=len(status.ranks_started))  # fmt: skip
    return told


def stopped_on_request(nodes: Iterable[NodeRun]) -> str:
    """Return in words how a job ended that was stopped on request: where it had to be killed."""
    statuses = {node.name: node.status for node in nodes}
    killed = [name for name, status in statuses.items() if status is not None and _was_killed(status)]
    if not killed:
        return msg("stopped on request")
    if len(killed) == len(statuses):
        return msg("stopped on request; killed")
    return msg("stopped on request; killed on {hosts}", hosts=", ".join(killed))


def _was_killed(status: NodeStatus) -> bool:
    ends = [item.signal for item in status.exits] + [item.signal for item in status.failures]
    return signal.SIGKILL in ends and not _had_ended(status)


def _had_ended(status: NodeStatus) -> bool:
    """Whether all ranks ended well, and only their launcher had to be killed."""
    return _ranks_ended_at(status) is not None and any(item.signal == signal.SIGKILL for item in status.exits)


def _ranks_ended_at(status: NodeStatus) -> float | None:
    """Return when the last of the ranks ended, by the host's clock; `None` where not all ended well."""
    well = {item.name: item.ended_at for item in status.exits if item.exit_code == 0}
    ranks = {str(rank) for rank in status.ranks_started}
    return max(well[rank] for rank in ranks) if ranks and ranks <= well.keys() else None


def _ended_before(status: NodeStatus, told_at: float | None) -> set[str]:
    """Return the ranks that had ended, well or not, when the node was told to end; none where that is not known."""
    ranks = {str(rank) for rank in status.ranks_started}
    ends = {item.name: item.ended_at for item in status.exits if item.signal not in (signal.SIGTERM, signal.SIGKILL)}
    limit = None if told_at is None else told_at - CLOCK_SLACK_S
    return {name for name, at in ends.items() if limit is not None and name in ranks and at < limit}


def _left(status: NodeStatus) -> str:
    shown = ", ".join(f"{item.pid} ({clean(item.command[:MAX_COMMAND])})" for item in status.leftovers[:MAX_LEFTOVERS])
    return f"{shown}, …" if len(status.leftovers) > MAX_LEFTOVERS else shown


def last_words(node: NodeRun) -> dict[str, Any]:
    """Return what a node's last status says of its processes, as data for the event that tells its end."""
    status = node.status
    if status is None or not status.state.is_final:
        return {}
    # Whatever an agent tells, it is of the processes that it was given.
    names = {LAUNCHER, *map(str, node.ranks), *(item.name for item in node.planned.processes)}
    exits = [item for item in status.exits if item.name in names]
    return {
        "clock_offset_s": node.clock_offset_s,
        "ranks_started": sorted({*status.ranks_started} & {*node.ranks}),
        "exits": {item.name: -item.signal if item.signal else item.exit_code for item in exits},
        "ended_at": {item.name: node.here(item.ended_at) for item in exits},
        "usage": to_wire(status.usage),
        "end_reason": status.end_reason.value if status.end_reason else None,
        "has_checkpoints": status.has_checkpoints,
    }


def rank_failures(directory: JobDirectory, nodes: Iterable[NodeRun], secrets: Iterable[str] = ()) -> list[FoundFailure]:
    """Return what failed, the first cause first. Ranks that were merely ended by our own stop are left out.

    Args:
        directory: holds the logs.
        nodes: of the attempt.
        secrets: values that no text may hold.
    """
    found: list[FoundFailure] = []
    for node in nodes:
        found.extend(_of_node(directory, node, tuple(secrets)))
    return sorted(
        found, key=lambda failure: (failure.data.get("uncleared", False), is_consequence(failure.data), failure.time)
    )


def cause_of(data: dict[str, Any]) -> str | None:
    """Return the code of why something failed, by its own words and end alone; `None` where these say nothing."""
    if data.get("self_fenced"):
        return "self-fenced"
    if "uncleared" in data:
        return "unkillable" if data["uncleared"] else "supervisor-lost"
    error, printed, exit_code = data.get("error"), data.get("tail") or [], data.get("exit_code")
    raised = [item.text for item in chain(error, data.get("traceback"), printed)]
    found = next((item for item in recognise(raised, printed, exit_code) if item is not None), None)
    if found is not None:
        return found.row.code
    if error and not error.startswith("SystemExit"):
        return "exception"
    if data.get("signal") is not None:
        return by_signal(data["signal"])[0]
    return "exit-code" if exit_code is not None else None


def is_consequence(data: dict[str, Any]) -> bool:
    """Whether a failure's own words say that it followed from another rank's: its peer went away, or never answered.

    Clocks and the granularity of torch's time stamps cannot order failures that are milliseconds apart.
    """
    if data.get("signal") == signal.SIGTERM:
        return True
    error = data.get("error")
    if error and not error.startswith("SystemExit"):
        return any_is_consequence(error, data.get("traceback"), ())
    # What a script that chose its exit code had logged before says nothing of why it did.
    return data.get("exit_code") is None and any_is_consequence(None, None, data.get("tail", []))


def _of_node(directory: JobDirectory, node: NodeRun, secrets: tuple[str, ...]) -> list[FoundFailure]:
    status = node.status
    if status is None:
        return []
    logs = directory.logs(node.key.attempt, node.name)
    ended_by_us = status.end_reason in (EndReason.STOPPED, EndReason.SELF_FENCED)
    found = []
    for rank, failure in _failed_ranks(node, status).items():
        if ended_by_us and failure.signal in (signal.SIGTERM, signal.SIGKILL) and failure.error is None:
            continue
        lines = tail(logs / f"{rank}.err", TAIL_LINES) or tail(logs / f"{rank}.out", TAIL_LINES)
        found.append(_failure(node, rank, failure, lines, secrets))
    launcher = next((item for item in status.exits if item.name == LAUNCHER), None)
    if launcher is not None and not found and _is_own_fault(launcher, ended_by_us):
        lines = tail(logs / f"{launcher.name}.err", TAIL_LINES)
        found.append(_failure(node, None, _of_exit(-1, launcher), lines, secrets))
    service = _first_service(node, status)
    if service is not None and _is_own_fault(service, ended_by_us):
        lines = tail(logs / f"{service.name}.err", TAIL_LINES)
        found.append(_failure(node, None, _of_exit(-1, service), lines, secrets, service=service.name))
    return [*found, *_of_whole_node(node, status)]


def _first_service(node: NodeRun, status: NodeStatus) -> ProcessExit | None:
    """Return a service that failed before anything else, which is why the supervisor ended the others."""
    first = next((item for item in status.exits if item.exit_code != 0), None)
    services = {item.name for item in node.planned.processes if item.is_service and item.rank is None}
    return first if first is not None and first.name in services else None


def _failed_ranks(node: NodeRun, status: NodeStatus) -> dict[int, RankFailure]:
    """Return what failed by rank: as it says itself, else by how its process ended."""
    ranks = {str(rank): rank for rank in node.ranks}
    by_rank = {failure.rank: failure for failure in status.failures if str(failure.rank) in ranks}
    for item in status.exits:
        rank = ranks.get(item.name)
        if rank is not None and item.exit_code != 0:
            by_rank.setdefault(rank, _of_exit(rank, item))
    return by_rank


def _of_exit(rank: int, item: ProcessExit) -> RankFailure:
    return RankFailure(rank, item.ended_at, item.exit_code, item.signal)


def _of_whole_node(node: NodeRun, status: NodeStatus) -> list[FoundFailure]:
    """Return what failed of the node itself: it ended its ranks by itself, lost its supervisor, or kept processes."""
    found = []
    if status.end_reason is EndReason.SELF_FENCED and status.state is NodeState.ENDED:
        message = msg("{host}: {reason}", host=node.name, reason=agent_text(status.reason, status.reason_notice))
        ended_at = min((node.here(item.ended_at) for item in status.exits), default=node.heard_at)
        marks = {"uncleared": False, "lost": True, "self_fenced": True}
        found.append(FoundFailure(node.name, None, message, {"time": ended_at, "tail": [], **marks}))
    if status.state in (NodeState.LOST, NodeState.UNKILLABLE):
        left = _left(status)
        message = msg("{host}: {reason}", host=node.name, reason=agent_text(status.reason, status.reason_notice))
        if left:
            message = msg("{host}: these processes cannot be ended: {left}", host=node.name, left=left)
        marks = {"uncleared": bool(left), "lost": status.state is NodeState.LOST}
        # When it happened nobody knows; this is when it was told.
        found.append(FoundFailure(node.name, None, message, {"time": node.heard_at, "tail": [], **marks}))
    return found


def _is_own_fault(item: ProcessExit, ended_by_us: bool) -> bool:
    """Whether a launcher or a service failed by itself, and not because our stop ended it."""
    if ended_by_us and (item.exit_code == 128 + signal.SIGTERM or item.signal in (signal.SIGTERM, signal.SIGKILL)):
        return False
    return item.exit_code != 0


def _how_it_ended(node: NodeRun, rank: int | None, failure: RankFailure, service: str | None) -> Message:
    """Return in words which process of a node has ended, and how."""
    who = msg("rank {rank} on {host}", rank=rank, host=node.name)
    if rank is None:
        who = msg("the launcher on {host}", host=node.name)
    if service is not None:
        who = msg("{process} on {host}", process=service, host=node.name)
    if failure.signal is not None:
        name = signal.Signals(failure.signal).name if failure.signal in set(signal.Signals) else str(failure.signal)
        return msg("{who} was ended by signal {name}", who=who, name=name)
    is_launcher = rank is None and service is None
    if is_launcher and failure.exit_code == LEFT:
        return msg("{who} lost its way to the rendezvous", who=who)
    if is_launcher and failure.exit_code == TAMPERED:
        return msg("{who} gave the rendezvous up", who=who)
    return msg("{who} exited with code {code}", who=who, code=failure.exit_code)


def _failure(
    node: NodeRun,
    rank: int | None,
    failure: RankFailure,
    lines: list[str],
    secrets: tuple[str, ...],
    *,
    service: str | None = None,
) -> FoundFailure:
    how: str = _how_it_ended(node, rank, failure, service)
    exits = node.status.exits if node.status is not None else ()
    kills = max((item.oom_kills for item in exits if item.oom_kills is not None), default=None)
    at_limit = any(item.at_memory_limit for item in exits)
    here = [item.is_oom_killed_here for item in exits if item.exit_code != 0]
    # That none was killed is known where it is known of each.
    killed_here = any(here) if any(here) or None not in here else None
    # Redacted first: half a secret would not be known for one.
    error = shortened(redact(failure.error, secrets)) if failure.error else failure.error
    if error and error.strip() and not error.startswith("SystemExit"):
        how = msg("{what}: {why}", what=how, why=headline(error)[:MAX_ERROR_LENGTH])
    return FoundFailure(
        node.name,
        rank,
        how,
        {
            "time": node.here(failure.time),
            "exit_code": failure.exit_code,
            "signal": failure.signal,
            "error": error,
            "traceback": shortened(redact(failure.traceback, secrets)) if failure.traceback else failure.traceback,
            "tail": [redact(line, secrets) for line in lines],
            "memory_limit_mib": failure.memory_limit_mib,
            **({"oom_kills": kills} if kills is not None else {}),
            **({"at_memory_limit": True} if at_limit else {}),
            **({"oom_killed_here": killed_here} if here and killed_here is not None else {}),
            **({"process": service} if service is not None else {}),
        },
    )
