"""Reading whole directories of which other processes still make use."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def contents_below(*roots: Path) -> dict[Path, bytes]:
    """Return path → content of all regular files; of those that go while this looks, nothing."""
    found = {}
    for root in roots:
        for directory, _folders, names in os.walk(root):  # Not a glob, which ends where a directory goes.
            for path in (Path(directory, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    if path.is_file():
                        found[path] = path.read_bytes()
    return found
