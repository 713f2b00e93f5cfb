"""What lies in a directory of checkpoints, each thing once, with the number that its name tells."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from dtagent.protocol.replication import STORE

MOST_ENTRIES = 100_000
"""Of one directory, as many are looked at."""
REMOVED = ".dttui-removed-"
"""What the names of checkpoints begin with that are being removed."""
_OF_ANOTHER_ATTEMPT = re.compile(r"attempt-\d+")

_STEP = re.compile(
    r"(?:global[-_]?step|steps?|iter(?:ation)?|checkpoint|ckpt|chkpt|update|batch|ba)[-_=]?(\d{1,18})(?!\d)"
)
_EPOCH = re.compile(r"(?:epoch|ep)[-_=]?(\d{1,18})(?!\d)")
_AT_THE_END = re.compile(r"(?:^|[-_.=])(\d{1,18})$")


@dataclass(frozen=True)
class Entry:
    """One file or directory, links followed."""

    path: Path
    is_directory: bool
    time_ns: int
    """When it was changed last."""

    @property
    def name(self) -> str:
        """Its name in the directory."""
        return self.path.name

    @property
    def stem(self) -> str:
        """Its name without the suffix of a format."""
        return re.sub(r"(?:\.(?:pt|pth|ckpt|bin|safetensors|keras|tar|pkl))+$", "", self.name)

    @property
    def shape(self) -> str:
        """Its name without numbers: what writes `step-10` and `step-20` writes one form."""
        return re.sub(r"\d+", "#", self.name)

    @property
    def step(self) -> int | None:
        """Step or iteration that its name tells."""
        match = _step_in(self.stem)
        return int(match[1]) if match else None

    @property
    def number(self) -> int | None:
        """What the newest one has most of: its step, or else its epoch."""
        match = _EPOCH.search(self.stem.lower())
        return self.step if self.step is not None else int(match[1]) if match else None


def _step_in(stem: str) -> re.Match[str] | None:
    match = _STEP.search(stem.lower())
    if match is None and not _EPOCH.search(stem.lower()):
        match = _AT_THE_END.search(stem)
    return match


def pattern_of(name: str) -> str:
    """Return a name with neither step nor epoch, and all else: `7b-step-20-best` is `7b-step-#-best`."""
    stem = Entry(Path(name), is_directory=False, time_ns=0).stem
    suffix = name[len(stem) :]
    if len(stem.lower()) != len(stem):
        return name
    spans = {match.span(1) for match in (_step_in(stem), _EPOCH.search(stem.lower())) if match is not None}
    for start, end in sorted(spans, reverse=True):
        stem = f"{stem[:start]}#{stem[end:]}"
    return stem + suffix


def is_of_others(name: str) -> bool:
    """Whether a folder in a directory of checkpoints is where later attempts write, or holds copies for other hosts."""
    return name == STORE or _OF_ANOTHER_ATTEMPT.fullmatch(name) is not None


def entries_of(directory: Path) -> list[Entry]:
    """Return the files and directories of a directory, but what is hidden or not yet renamed to what it will be.

    What several links lead to comes once, by its own name where that is there. What vanishes meanwhile is left out, and
    so is what no variable and no message can name.

    Raises:
        OSError: the directory cannot be read.
    """
    with os.scandir(directory) as listing:
        found = sorted(islice(listing, MOST_ENTRIES), key=lambda item: item.is_symlink())
    by_file: dict[tuple[int, int], Entry] = {}
    for item in found:
        if item.name.startswith((".", "tmp-")) or not item.name.isprintable():
            continue
        if is_of_others(item.name):
            continue
        try:
            seen = os.stat(item.path)
        except OSError:  # A link that leads nowhere or in circles; or it has gone.
            continue
        if stat.S_ISDIR(seen.st_mode) or stat.S_ISREG(seen.st_mode):
            entry = Entry(Path(item.path), stat.S_ISDIR(seen.st_mode), seen.st_mtime_ns)
            by_file.setdefault((seen.st_dev, seen.st_ino), entry)
    return list(by_file.values())


def files_of(path: Path, most: int) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files of a checkpoint with what is known of each; of a directory at most so many.

    One that is the directory of checkpoints itself has folders in it that are no part of it.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_dir():
        yield path, os.stat(path)
        return

    def refuse(error: OSError) -> None:
        raise error

    def listed() -> Iterator[Path]:
        for parent, folders, names in os.walk(path, onerror=refuse):
            if Path(parent) == path:
                folders[:] = [name for name in folders if not is_of_others(name)]
            yield from (Path(parent, name) for name in names)

    for file in islice(listed(), most):
        yield file, os.stat(file)
