"""Finds labs whose owner is gone and removes what they left: a rack that lives on, its link, its directory."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

from tests.lab.commands import ip_if_there

INTERFACE_PREFIX = "dtlab"
"""Names of the interfaces by which the login node reaches its labs."""

_DIRECTORY_PREFIX = "dttui-lab-"
_INTERFACES = Path("/sys/class/net")


def identity(pid: int) -> str | None:
    """Return what names a process for good, `pid.start-time`, or `None` when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else f"{pid}.{fields[19]}"


def make_directory() -> Path:
    """Make a directory that carries its owner's identity in its name."""
    owner = identity(os.getpid())
    return Path(tempfile.mkdtemp(prefix=f"{_DIRECTORY_PREFIX}{owner}-"))


def label(rack_pid: int) -> str:
    """Return the note that an interface carries: whose it is, and which rack is behind it."""
    return f"owner={identity(os.getpid())} rack={identity(rack_pid)}"


def sweep() -> None:
    """Remove what labs left whose owner has ended; those of living owners are not touched."""
    for interface in _INTERFACES.glob(f"{INTERFACE_PREFIX}*"):
        try:
            note = re.search(r"owner=(\S+) rack=(\S+)", (interface / "ifalias").read_text())
        except OSError:
            continue
        if note and not _lives(note[1]):
            _remove(interface.name, rack=note[2])
    for directory in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY_PREFIX}*"):
        owner = re.match(rf"{_DIRECTORY_PREFIX}(\d+\.\d+)-", directory.name)
        if owner and not _lives(owner[1]):
            shutil.rmtree(directory, ignore_errors=True)


def _lives(process: str) -> bool:
    return identity(int(process.partition(".")[0])) == process


def _remove(interface: str, rack: str) -> None:
    if _lives(rack):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(rack.partition(".")[0]), signal.SIGKILL)
    ip_if_there(f"link delete {interface}")  # The rack's death may have taken it first.
