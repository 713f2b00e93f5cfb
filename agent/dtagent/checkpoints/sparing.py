"""What of old checkpoints somebody still wants: what links lead to, and what a trainer has called its best."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dtagent.checkpoints.entries import REMOVED, is_of_others
from dtagent.checkpoints.forms import STATE_BYTES, TRAINER_STATE
from dtagent.checkpoints.wholeness import TornError
from dtagent.protocol import sentences
from dtagent.system.untrusted_files import read_object

MOST_FILES = 200_000
"""Files and folders of all directories that are looked at for links."""


@dataclass(frozen=True)
class Wanted:
    """What stays."""

    paths: frozenset[str]
    """Without links in them."""
    names: frozenset[str]
    """Of checkpoints, whichever directory they lie in: a trainer tells its best by a path that others may not have."""

    def has(self, path: Path) -> bool:
        """Whether a checkpoint, something in it, or the directory that it lies in is among them."""
        real = os.path.realpath(path)
        is_wanted = real in self.paths or os.path.dirname(real) in self.paths or path.name in self.names
        return is_wanted or any(item.startswith(f"{real}/") for item in self.paths)


def wanted_in(directories: Iterable[Path], spared: Iterable[str]) -> Wanted:
    """Return what is wanted by what lies in some directories of checkpoints.

    Args:
        directories: those that are not there have nothing.
        spared: paths that stay besides.

    Raises:
        TornError: there is more in them than is looked at.
        OSError: something cannot be read.
    """
    paths = {os.path.realpath(path) for path in spared}
    names = set()
    count = 0
    for directory in directories:
        for item in _within(directory):
            count += 1
            if count > MOST_FILES:
                raise TornError(sentences.TOO_MANY_FILES(limit=MOST_FILES))
            if item.is_symlink():
                paths |= _target(directory, item.path)
            if item.name == TRAINER_STATE:
                names |= _best(Path(os.path.realpath(item.path)))
    return Wanted(frozenset(paths), frozenset(names))


def _within(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Yield all that lies there at any depth; not what links lead to, and not what is of other attempts."""
    left = [str(directory)]
    while left:
        folder = left.pop()
        try:
            with os.scandir(folder) as listing:
                for item in listing:
                    if is_of_others(item.name) or item.name.startswith(REMOVED):
                        continue
                    yield item
                    if item.is_dir(follow_symlinks=False):
                        left.append(item.path)
        except FileNotFoundError:
            continue


def _target(directory: Path, link: str) -> set[str]:
    """Return what a link leads to, but for one within a checkpoint, which goes with it."""
    target = os.path.realpath(link)
    top, *below = Path(link).relative_to(directory).parts
    checkpoint = os.path.join(os.path.realpath(directory), top)
    return set() if below and target.startswith(f"{checkpoint}/") else {target}


def _best(file: Path) -> set[str]:
    try:
        best = read_object(file, STATE_BYTES).get("best_model_checkpoint")
    except (FileNotFoundError, ValueError):  # What was torn was its best itself, or one before names the same.
        return set()
    return {os.path.basename(best.rstrip("/"))} if isinstance(best, str) else set()
