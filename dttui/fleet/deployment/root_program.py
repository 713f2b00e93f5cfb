"""Reaches the agent's root on a host in such a way that nobody can exchange it, or says why it is not to be used.

A part of what dttui pushes to a host.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from dtagent.protocol.places import is_network_file_system, lets_exchange

OWN_NAMES = frozenset({"agents", "current", "agent.sock", "daemon.err", "jobs", "store"})
"""What makes a directory with something in it known as an agent's."""
MAX_STEPS = 2048
"""Of which a directory that is made takes two: the longest root of an inventory has 512."""
_DIRECTORY = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_names: dict[str, str] = {}
"""Directories that are held open, as `/proc` has them, and what they are called."""


class Refusal(Exception):
    """Why this host is not, or could not be, given an agent: a code and what goes with it."""

    def __init__(self, code: str, **details: object) -> None:
        super().__init__(code)
        self.code = code
        self.details = details


def inspect_root(root: Path, *, makes: bool = False) -> Path:
    """Refuse a root that is unsafe; return a path that leads to it whoever exchanges what it is named by.

    What is missing of it stands at the path's end, unless it is to be made.
    """
    reached, missing = _open(root, makes=makes)
    place = Path(f"/proc/self/fd/{reached}")
    _names[str(place)] = str(Path(root, *[".."] * len(missing)).resolve()) if missing else str(root)
    info = os.fstat(reached)
    if not missing:
        if info.st_uid != os.getuid():
            raise Refusal("root-not-ours", path=str(root), uid=info.st_uid)
        if info.st_mode & 0o022:
            raise Refusal("root-open", path=str(root))
        names = set(os.listdir(place))
        if names and not names & OWN_NAMES:
            raise Refusal("root-foreign", path=str(root))
    kind = file_system_of(place.resolve())
    if is_network_file_system(kind):
        raise Refusal("network-file-system", path=str(root), kind=kind)
    return place.joinpath(*missing)


def _open(root: Path, *, makes: bool) -> tuple[int, list[str]]:
    """Open a directory from the top down, each component in the one above; return the last there is, and the rest.

    A link on the way is followed where nobody but this user and root can have put it there; as the kernel does where it
    protects links, and here always. Nothing is opened below a directory whose entries others can exchange.
    """
    left = [*reversed(root.parts[1:])]
    reached = os.open("/", _DIRECTORY)
    for step in range(MAX_STEPS + 1):  # Links may go round in a circle, and come and go.
        if not left:
            break
        if step == MAX_STEPS:
            raise Refusal("root-not-directory", path=str(root))
        _refuse_exchangeable(root, os.fstat(reached))
        try:
            below = os.open(left[-1], _DIRECTORY, dir_fd=reached)
        except FileNotFoundError:
            if not makes:
                break
            with contextlib.suppress(FileExistsError):
                os.mkdir(left[-1], 0o700, dir_fd=reached)
            continue
        except NotADirectoryError:
            try:
                info = os.stat(left[-1], dir_fd=reached, follow_symlinks=False)
                target = Path(os.readlink(left[-1], dir_fd=reached)) if stat.S_ISLNK(info.st_mode) else None
            except OSError:
                continue
            if target is None or len(left) == 1:
                raise Refusal("root-not-directory", path=str(root)) from None
            _refuse_exchangeable(root, os.fstat(reached), info.st_uid)
            left.pop()
            left += reversed(target.parts[target.is_absolute() :])
            if not target.is_absolute():
                continue
            below = os.open("/", _DIRECTORY)
        else:
            left.pop()
        os.close(reached)
        reached = below
    os.set_inheritable(reached, True)  # For the programs that are given paths below it.
    return reached, left[::-1]


def _refuse_exchangeable(root: Path, info: os.stat_result, owner: int = 0) -> None:
    """Refuse a root where others can exchange what a directory holds, or have put a link of theirs into it."""
    if lets_exchange(info, owner):
        raise Refusal("root-exchangeable", path=str(root))


def by_name(text: str) -> str:
    """Return a text with the names of directories in it for the paths by which this program reaches them."""
    for place, name in _names.items():
        text = re.sub(re.escape(place) + r"(?![0-9])", lambda _match, name=name: name, text)  # type: ignore[misc]  # mypy cannot tell a lambda's default
    return text


def file_system_of(path: Path) -> str:
    """Return the type of the file system that holds `path`; of two mounts at one place the later one shows."""
    longest, kind = "", ""
    for line in Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape").splitlines():
        fields, _, rest = line.partition(" - ")
        place = fields.split(" ")[4]
        for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            place = place.replace(code, character)
        if len(place) >= len(longest) and path.is_relative_to(place):
            longest, kind = place, rest.split(" ")[0]
    return kind
