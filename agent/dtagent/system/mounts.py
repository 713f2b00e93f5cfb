"""The kernel's list of what is mounted where, /proc/self/mountinfo. Standard library only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOUNTINFO = Path("/proc/self/mountinfo")

_ESCAPED = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of it."""

    device: str
    """Major and minor number, `8:1`."""
    root: str
    """Which directory of the file system is mounted."""
    point: str
    """Where."""
    is_read_only: bool
    kind: str
    """Type of the file system, `ext4`."""
    source: str

    @property
    def shown(self) -> str:
        """`point`, where it is not UTF-8 with signs in place of that."""
        return self.point.encode(errors="replace").decode()


def read(mountinfo: Path = MOUNTINFO) -> Iterator[Mount]:
    """Yield what is mounted, in the kernel's order. Raises OSError where /proc does not tell."""
    for line in mountinfo.read_bytes().split(b"\n"):
        before, _, after = line.partition(b" - ")
        fields, more = before.split(b" "), after.split(b" ")
        if len(fields) >= 6 and len(more) >= 2:
            options = fields[5].split(b",")
            yield Mount(
                fields[2].decode(), _name(fields[3]), _name(fields[4]), b"ro" in options, _name(more[0]), _name(more[1])
            )


def _name(field: bytes) -> str:
    """Return a name: blanks and backslashes in it come as octal numbers, all else as its bytes."""
    return os.fsdecode(_ESCAPED.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), field))
