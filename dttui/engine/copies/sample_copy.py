"""One host's telemetry in the job's directory: the newest at its full rate, and the older the thinner."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

from dtagent.protocol.telemetry import HostSample

from dttui.files import cut_torn_line, thin_out
from dttui.jobs.backlog import Backlog
from dttui.jobs.following import newest_line
from dttui.rpc.sample_rows import ReceivedSample, WholeSample

MOST_BYTES = 32 << 20
"""Of one host; eight GPUs fill it in about five hours."""
RECENT_BYTES = 8 << 20
"""At the end of the file, of which no sample is left out."""
MOST_UNWRITTEN_BYTES = 128 << 10
"""Kept in memory while they cannot be written; the oldest go first."""
RETRY_BYTES = 1 << 20
"""How much more may come until what could not be thinned is tried again."""


class SampleCopy:
    """Appends samples to a host's file and keeps it within `MOST_BYTES`.

    Args:
        path: of the file; what is there already is gone on from with `resume`.
        backlog: takes what the disk does not.
    """

    def __init__(self, path: Path, backlog: Backlog | None = None) -> None:
        self._path = path
        self._backlog = backlog or Backlog()
        # Not with all the other hosts at once.
        self._most_bytes = MOST_BYTES - int(random.random() * RECENT_BYTES)  # noqa: S311  # nothing to be kept from anyone
        self._due_bytes = self._most_bytes

    def resume(self) -> int | None:
        """Cut off an unfinished sample; return the number of the newest one, `None` where there is none."""
        cut_torn_line(self._path)
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return int(json.loads(newest_line(self._path) or b"")["seq"])
        return None

    def append(self, sample: HostSample | ReceivedSample) -> None:
        """Keep a sample."""
        kept = WholeSample(sample) if isinstance(sample, HostSample) else sample
        if not self._backlog.append(self._path, kept.line(), most_bytes=MOST_UNWRITTEN_BYTES):
            return
        size = self._path.stat().st_size
        if size > self._due_bytes:
            self._due_bytes = size + RETRY_BYTES
            thin_out(self._path, RECENT_BYTES, _every_other)
        elif size <= self._most_bytes:
            self._due_bytes = self._most_bytes


def _every_other(lines: bytes) -> bytes:
    """Leave out half: of those of long ago that was done many times."""
    return b"".join(lines.splitlines(keepends=True)[::2])
