"""Finds the newest complete checkpoints of a directory."""

from __future__ import annotations

import os
import time
from collections.abc import Container
from dataclasses import dataclass, field, replace
from pathlib import Path

from dtagent.checkpoints.entries import files_of
from dtagent.checkpoints.forms import Candidate, candidates, check, form_of_part, verify
from dtagent.checkpoints.wholeness import TornError
from dtagent.protocol import sentences
from dtagent.protocol.checkpoints import FoundCheckpoint, PassedCheckpoint

MOST_PASSED = 100
"""So many that are not complete are looked at."""
_MOST_FILES = 200_000


@dataclass(frozen=True)
class Search:
    """What was found in a directory."""

    complete: list[FoundCheckpoint] = field(default_factory=list)
    """The newest one first."""
    passed: list[PassedCheckpoint] = field(default_factory=list)
    """Newer ones that are not complete, or not wanted."""
    parts: list[FoundCheckpoint] = field(default_factory=list)
    """Of the former those of which the directory may have a part alone."""

    @property
    def newest(self) -> FoundCheckpoint | None:
        """The newest complete one."""
        return self.complete[0] if self.complete else None


def newest_complete(directory: Path, unwanted: Container[str] = (), most: int = 1, verify_s: float = 0.0) -> Search:
    """Return the newest complete checkpoints of a directory, and what was passed over for them.

    Args:
        directory: where a script writes them; it may be one checkpoint itself.
        unwanted: paths of those that are complete by their looks, but led to nothing.
        most: how many are looked for.
        verify_s: how long the newest may be read for, to see whether it has changed since it was written.

    Raises:
        OSError: the directory cannot be read; one that does not exist has none.
    """
    found = Search()
    try:
        of_directory = candidates(directory)
    except FileNotFoundError:
        return found
    deadline = time.monotonic() + verify_s
    for item in of_directory:
        path = os.path.abspath(item.path)
        try:
            described = _described(item, path)  # Before the look: whatever is changed from then on is seen by that.
            if path in unwanted:
                raise TornError(sentences.CAME_TO_NOTHING())
            check(item)
            if verify_s and not found.complete:
                verify(item, deadline)
            found.complete.append(described)
        except TornError as error:
            if path not in unwanted and (form := form_of_part(item)):
                found.parts.append(replace(described, form=form))
            found.passed.append(PassedCheckpoint(path, error.why))
        except OSError as error:
            why = sentences.FILE_NOT_READ(file=os.path.basename(path), error=error.strerror or str(error))
            found.passed.append(PassedCheckpoint(path, why))
        if len(found.complete) >= most or len(found.passed) >= MOST_PASSED:
            break
    return found


def _described(item: Candidate, path: str) -> FoundCheckpoint:
    size_bytes = changed_ns = 0
    for _file, seen in files_of(item.path, _MOST_FILES):
        size_bytes += seen.st_size
        changed_ns = max(changed_ns, seen.st_mtime_ns)
    return FoundCheckpoint(path, item.form, item.step, size_bytes, item.time_ns / 1e9, changed_ns)
