"""What the records of an attempt say happened to it, also when some of them are damaged. Decides nothing."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dacite import Config, DaciteError, from_dict

from dtagent.locations import AttemptFiles
from dtagent.protocol import sentences
from dtagent.protocol.jobs import Leftover, NodeState, ProcessExit, Usage
from dtagent.protocol.said import Said, recalled
from dtagent.supervision import journal
from dtagent.system import untrusted_files

MAX_WARNINGS = 20
_STRICT = Config(check_types=True)
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class History:
    """The part of a NodeStatus that comes from the journal."""

    state: NodeState
    reason: Said
    started_at: float | None = None
    exits: list[ProcessExit] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    usage: Usage | None = None
    warnings: list[Said] = field(default_factory=list)
    cut_logs: list[str] = field(default_factory=list)

    @property
    def is_good_end(self) -> bool:
        """Whether all of its processes have ended, and with 0."""
        return self.state is NodeState.ENDED and bool(self.exits) and all(item.exit_code == 0 for item in self.exits)


def read(files: AttemptFiles) -> History:
    """Tell what became of an attempt that was started; RUNNING where nothing says otherwise.

    An end is told as LOST where a damaged record may be that of a process which failed.
    """
    contents = journal.inspect(files.journal)
    told: dict[str, list[dict[str, Any]]] = defaultdict(list)
    """Records by what they tell of."""
    for record in contents.records:
        if isinstance(record.get("event"), str):
            told[record["event"]].append(record)
    states = [record for record in told["state"] if _state(record) is not None]
    last = states[-1] if states else {}
    state = _state(last) or NodeState.RUNNING
    reason = recalled(str(last.get("reason", "")), last.get("notice"))
    exits = _decoded(ProcessExit, told["exit"])
    warnings = [recalled(str(item.get("text")), item.get("notice")) for item in told["warning"][:MAX_WARNINGS]]
    if contents.damaged:
        with contextlib.suppress(OSError):
            journal.quarantine(files.journal, contents.damaged)
        if state is NodeState.ENDED and len(exits) < _process_count(files):
            state, reason = NodeState.LOST, sentences.END_RECORD_DAMAGED()
    aside = journal.damaged_path(files.journal)
    if contents.damaged or aside.exists():
        warnings.append(sentences.JOURNAL_DAMAGED(path=str(aside)))
    times = [record["time"] for record in states if isinstance(record.get("time"), float)]
    return History(
        state,
        reason,
        times[0] if times else None,
        exits,
        _decoded(Leftover, last.get("leftovers")),
        next(iter(_decoded(Usage, [last.get("usage")])), None),
        warnings,
        [record["stream"] for record in told["log_cut"] if isinstance(record.get("stream"), str)],
    )


def _state(record: dict[str, Any]) -> NodeState | None:
    with contextlib.suppress(ValueError):
        return NodeState(record.get("state"))
    return None


def _decoded(kind: Callable[..., Kind], items: Any) -> list[Kind]:
    """Return what fits of a list of plain values; a record of another version may not."""
    found = []
    for item in items if isinstance(items, list) else []:
        with contextlib.suppress(DaciteError, TypeError, ValueError, AttributeError):
            found.append(from_dict(kind, item, _STRICT))  # type: ignore[arg-type]  # dacite wants its own bound
    return found


def _process_count(files: AttemptFiles) -> float:
    """Return how many processes were asked for; more than any number where that cannot be read any more."""
    try:
        return len(untrusted_files.read_object(files.start, untrusted_files.RECORD_BYTES)["processes"])
    except (OSError, ValueError, KeyError, TypeError):
        return float("inf")
