"""What an attempt's ranks and launcher wrote of their ends: the job's own processes can write anything there."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dacite import DaciteError, from_dict

from dtagent.locations import AttemptFiles, rank_of
from dtagent.protocol.jobs import ProcessExit, RankFailure
from dtagent.protocol.meeting import Disturbance, Tampering
from dtagent.system import untrusted_files

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_READ_BYTES = 32 * 1024 * 1024
"""Of all files together."""
MAX_FAILURES = 1024
MAX_TEXT = 16 * 1024
"""Characters of an error or traceback that are passed on."""
MAX_TOLD_BYTES = 2 * 1024 * 1024
"""Of all texts, those that came first in time before the others; half of what a frame holds."""
SHORT_TEXT = 100
"""Characters of each text for which that leaves no room."""
MAX_DISTURBANCES = 32
_LAUNCHER = "launcher"


def read(files: AttemptFiles) -> list[RankFailure]:
    """Join what the ranks recorded themselves (traceback) with what their launcher saw (exit code or signal)."""
    found: dict[int, dict[str, Any]] = {}
    for body in _bodies(files.failures):
        for item in body if isinstance(body, list) else [body]:
            with contextlib.suppress(ValueError, TypeError, KeyError, OverflowError):
                known = found.setdefault(_rank(item["rank"]), {})
                # The rank's own word on its error beats the launcher's, the launcher's on its exit beats the rank's.
                known.update({key: value for key, value in item.items() if value is not None and key not in known})
                if isinstance(body, list):
                    known.update(exit_code=item.get("exit_code"), signal=item.get("signal"))
    failures = []
    for rank, body in sorted(found.items())[:MAX_FAILURES]:
        # What does not fit is left out, and never breaks the status.
        with contextlib.suppress(DaciteError, ValueError, TypeError):
            fields = {**body, "rank": rank, "time": _time(body.get("time"))}
            fields.update({name: _status(body.get(name)) for name in ("exit_code", "signal")})
            fields["memory_limit_mib"] = _amount(body.get("memory_limit_mib"))
            failures.append(from_dict(RankFailure, fields))
    return _bounded(failures)


def disturbances(files: AttemptFiles) -> list[Disturbance]:
    """Return what the launcher found altered of the rendezvous."""
    found = []
    with contextlib.suppress(OSError, ValueError, RecursionError):
        told = json.loads(untrusted_files.read(files.failures / "rendezvous.json", MAX_TEXT))
        for item in told[:MAX_DISTURBANCES] if isinstance(told, list) else []:
            with contextlib.suppress(DaciteError, ValueError, TypeError, KeyError):
                body = {**item, "what": str(item["what"])[:SHORT_TEXT], "how": Tampering(item["how"]).value}
                found.append(from_dict(Disturbance, {**body, "count": _amount(item.get("count")) or 1}))
    return found


def clean_ends(files: AttemptFiles, told: Collection[str]) -> list[ProcessExit]:
    """Return the ranks that ended with 0 by their own word, which no launcher tells, but those in `told`."""
    found: list[tuple[int, float]] = []
    for path in files.ranks.glob("*.ended.json"):
        rank = rank_of(path.with_suffix(""))
        if rank is not None and str(rank) not in told and len(found) < MAX_FAILURES:
            with contextlib.suppress(OSError, ValueError):
                found.append((rank, _time(untrusted_files.read_object(path).get("time"))))
    return [ProcessExit(str(rank), ended_at, exit_code=0) for rank, ended_at in sorted(found)]


def _bodies(directory: Path) -> Iterator[Any]:
    ranks = sorted((rank, path) for path in directory.glob("*.json") if (rank := rank_of(path)) is not None)
    room = MAX_READ_BYTES
    for path in (*(path for _, path in ranks[:MAX_FAILURES]), directory / f"{_LAUNCHER}.json"):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            data = untrusted_files.read(path, min(room, MAX_FILE_BYTES))
            room -= len(data)
            yield json.loads(data)


def _bounded(failures: list[RankFailure]) -> list[RankFailure]:
    """Shorten texts to their ends, so that all together they fit into one answer."""
    room = MAX_TOLD_BYTES
    told = {}
    for failure in sorted(failures, key=lambda item: item.time or math.inf):
        texts = {name: text for name in ("error", "traceback") if (text := getattr(failure, name)) is not None}
        for name, text in texts.items():
            texts[name] = text[-(MAX_TEXT if room > 0 else SHORT_TEXT) :]
            room -= len(json.dumps(texts[name], ensure_ascii=False).encode(errors="replace"))
        told[failure.rank] = replace(failure, **texts)
    return [told[failure.rank] for failure in failures]


def _rank(value: Any) -> int:
    rank = int(value)
    if not 0 <= rank < 10**7:
        raise ValueError("not a rank")
    return rank


def _time(value: Any) -> float:
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        number = float(value)
        return number if math.isfinite(number) else 0.0
    return 0.0


def _amount(value: Any) -> int | None:
    """Return a number that a frame may hold; `None` for any other."""
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _status(value: Any) -> Any:
    if isinstance(value, int) and abs(value) >= 1 << 31:
        raise ValueError("not an exit status")
    return value
