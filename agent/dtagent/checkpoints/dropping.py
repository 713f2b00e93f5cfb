"""Removes the complete checkpoints of attempts that others have followed, and nothing else that lies there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from dtagent.checkpoints.entries import REMOVED, files_of, is_of_others, pattern_of
from dtagent.checkpoints.forms import Candidate, candidates, check
from dtagent.checkpoints.sparing import Wanted, wanted_in
from dtagent.checkpoints.wholeness import TornError
from dtagent.protocol import sentences
from dtagent.protocol.checkpoints import DropReply, DropRequest, WrittenIn
from dtagent.protocol.said import Said

_MOST_FILES = 200_000
_LEFT_ALONE = "lightning"
"""Whose names have numbers of those, too, that are the best."""


def drop(request: DropRequest) -> DropReply:
    """Remove them, and what an earlier call began to remove.

    What goes has the form of the running attempt's own, is called as they are, and is not newer. Left alone are those
    that were changed outside the attempt's time, which somebody else has written; links, and what they lead to; what a
    trainer calls its best; and a directory that is itself a checkpoint.
    """
    kinds = {(item.form, pattern_of(os.path.basename(item.path))) for item in request.own}
    if request.step is None or len(kinds) != 1 or _LEFT_ALONE in {form for form, _pattern in kinds}:
        return DropReply()
    own = {Path(item.path).parent for item in request.own}
    try:
        wanted = wanted_in(_concerned(own, request), request.spared)
    except TornError as error:
        return DropReply(detail=error.why)
    except OSError as error:
        return DropReply(detail=_told(next(iter(own)), error))
    (kind,) = kinds
    removal = _Removal(kind, request.step, wanted)
    owned = {os.path.realpath(path) for path in own}
    for place in request.written:
        if os.path.realpath(place.directory) not in owned:
            removal.remove_from(place)
    return DropReply(removal.count, removal.size_bytes, removal.detail)


def _concerned(own: set[Path], request: DropRequest) -> set[Path]:
    """Return the directories of all attempts, also of those that this call removes nothing of."""
    found = own | {Path(place.directory) for place in request.written}
    for base in {path.parent for path in own if is_of_others(path.name)}:
        found |= {base} | {path for path in base.glob("attempt-*") if is_of_others(path.name)}
    return found


class _Removal:
    """What one call removes."""

    def __init__(self, kind: tuple[str, str], step: int, wanted: Wanted) -> None:
        self._kind = kind
        self._step = step
        self._wanted = wanted
        self.count = self.size_bytes = 0
        self.detail = ""

    def remove_from(self, place: WrittenIn) -> None:
        """Remove from one directory what may go."""
        directory = Path(place.directory)
        try:
            for rest in directory.glob(f"{REMOVED}*"):
                self._clear(rest)
            found = [item for item in candidates(directory) if self._may_go(item, directory)]
        except FileNotFoundError:
            return
        except OSError as error:
            self._tell(directory, error)
            return
        for item in found:
            try:
                check(item)
                size = _size_within(item, place)
                if size is not None:
                    self._remove(item.path)
                    self.count, self.size_bytes = self.count + 1, self.size_bytes + size
            except TornError:
                continue
            except OSError as error:
                self._tell(item.path, error)

    def _may_go(self, item: Candidate, directory: Path) -> bool:
        is_like_own = (item.form, pattern_of(item.path.name)) == self._kind
        is_older = item.step is not None and item.step <= self._step
        is_alone = item.path != directory and not item.path.is_symlink()
        return is_like_own and is_older and is_alone and not self._wanted.has(item.path)

    def _remove(self, path: Path) -> None:
        """Remove one; where none of its files can be, it stays what it was."""
        hidden = path.with_name(REMOVED + path.name)
        path.rename(hidden)  # A half removed one is none.
        before = set(_names(hidden))
        try:
            _delete(hidden)
        except OSError:
            if set(_names(hidden)) == before:
                hidden.rename(path)
            raise

    def _clear(self, rest: Path) -> None:
        try:
            _delete(rest)
        except OSError as error:
            self._tell(rest, error)

    def _tell(self, path: Path, error: OSError) -> None:
        self.detail = self.detail or _told(path, error)


def _size_within(item: Candidate, place: WrittenIn) -> int | None:
    """Return how long all its files are; `None` where it was changed last before the attempt, or after it."""
    size = changed_ns = 0
    for _file, seen in files_of(item.path, _MOST_FILES):
        size += seen.st_size
        changed_ns = max(changed_ns, seen.st_mtime_ns)
    return size if place.since <= changed_ns / 1e9 < place.until else None


def _names(path: Path) -> Iterator[str]:
    for parent, _folders, names in os.walk(path):
        yield from (os.path.join(parent, name) for name in names)


def _delete(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


def _told(path: Path, error: OSError) -> Said:
    return sentences.NOT_REMOVED(path=str(error.filename or path), error=error.strerror or str(error))
