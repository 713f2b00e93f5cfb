"""Which logs of an attempt are looked through for metrics, and of which rank what they tell is."""

from __future__ import annotations

import contextlib
import os
import re

from dtagent.locations import AttemptFiles
from dtagent.payload.own_rank import LAUNCHER_LOG, RANKS
from dtagent.system import untrusted_files

LAUNCHER = 10**7
"""The number of a command that starts its own ranks, or trains itself: what any rank tells comes before its words."""

_STREAM = re.compile(rf"(\d{{1,7}}|{LAUNCHER_LOG})\.(?:out|err)")


class RankStreams:
    """Of one attempt."""

    def __init__(self, files: AttemptFiles) -> None:
        self._files = files
        self._first_rank: int | None = None
        self._is_started = False

    def names(self) -> dict[int, list[str]]:
        """Return the logs that there are by rank; those of dttui's own launcher are none."""
        if not self._is_started and self._files.start.exists():  # An attempt runs a moment before that is written.
            with contextlib.suppress(OSError):  # No file handles at the moment: the next look may have one.
                self._first_rank, self._is_started = _first_own_rank(self._files), True
        found: dict[int, list[str]] = {}
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(self._files.logs)):
                match = _STREAM.fullmatch(name)
                if match and (match[1] != LAUNCHER_LOG or self._first_rank is not None):
                    found.setdefault(LAUNCHER if match[1] == LAUNCHER_LOG else int(match[1]), []).append(name)
        return found

    def rank_of(self, number: int) -> int:
        """Return the rank that a report is told of: of a command that starts its own, the first of its node."""
        return self._first_rank if number == LAUNCHER and self._first_rank is not None else number


def _first_own_rank(files: AttemptFiles) -> int | None:
    """Return the first rank of a node whose command starts its own; `None` where dttui starts them. Raises OSError."""
    try:
        told = untrusted_files.read_object(files.start, untrusted_files.RECORD_BYTES)
        ranks = [str(process["env"].get(RANKS, "")).partition(":")[0] for process in told["processes"]]
    except (untrusted_files.UnusableFileError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return next((int(rank) for rank in ranks if re.fullmatch(r"[0-9]{1,7}", rank)), None)
