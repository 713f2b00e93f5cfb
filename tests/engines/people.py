"""Who runs dttui in a test: root as it is, or an ordinary user of a name, ids and home that only the test knows."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

USER, USER_ID = "dttui-test", 47641
CDI = "/run/cdi"
"""Where engines look for what devices there are, beside the person's own in /etc."""
MADE = (Path(CDI), Path("/dev/mqueue"), Path("/etc/subuid"), Path("/etc/subgid"))
"""Where something is mounted for a person, and is made to be mounted on where the host has none."""
_SUBORDINATE_IDS = f"{USER}:2000000000:65536\n"
ENTER = """\
#!/bin/sh
# Host files that know the user, and whatever only root may see but its programs need, in a mount namespace.
exec unshare --mount sh -ec '
  umount /sys/fs/cgroup/unified 2>/dev/null || :
  mkdir -p /dev/mqueue
  mountpoint -q /dev/mqueue || mount -t mqueue none /dev/mqueue
  {mounts}
  exec setpriv --reuid={id} --regid={id} --clear-groups "$@"
' - {words} "$@"
"""


@dataclass(frozen=True)
class Person:
    """Somebody whose agents and engines a test uses."""

    user_id: int
    home: Path
    python: Path
    """Starts Python as this person."""
    enter: tuple[str, ...] = ()
    """What stands before a command that is to run as this person."""

    def owns(self, path: Path) -> None:
        """Give a directory and what is in it to this person."""
        for each in (path, *path.rglob("*")):
            os.chown(each, self.user_id, self.user_id)


def root(home: Path) -> Person:
    """Return whoever runs the tests."""
    return Person(0, home, Path(sys.executable))


def ordinary(directory: Path, cdi: Path) -> Person:
    """Return a user without rights but to its own ids and those below it.

    Args:
        directory: where its home will be.
        cdi: says what devices containers of this user can have.
    """
    known = {name: (Path("/etc") / name).read_text() for name in ("passwd", "group")}
    known["passwd"] += f"{USER}:x:{USER_ID}:{USER_ID}::{directory / 'home'}:/bin/sh\n"
    known["group"] += f"{USER}:x:{USER_ID}:\n"
    known |= dict.fromkeys(("subuid", "subgid"), _SUBORDINATE_IDS)
    for name, text in known.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o644)
    mounts = [f"touch -a /etc/{name} && mount --bind {directory / name} /etc/{name}" for name in known]
    mounts.append(f"mkdir -p {CDI} && mount --bind {cdi} {CDI}")
    mounts += _opened(directory / "seen", [sys.base_prefix, sys.prefix, str(Path(__file__).parents[2])])
    for name, words in (("enter", ""), ("python", sys.executable)):
        told = ENTER.format(mounts="\n  ".join(mounts), id=USER_ID, words=words)
        (directory / name).write_text(told)
        (directory / name).chmod(0o755)
    person = Person(USER_ID, directory / "home", directory / "python", (str(directory / "enter"),))
    person.home.mkdir()
    person.owns(person.home)
    return person


def _opened(hold: Path, wanted: Sequence[str]) -> list[str]:
    """Return commands by which everybody can reach these paths, though they lie in a directory that is root's alone."""
    closed: dict[Path, list[Path]] = {}
    for path in sorted({Path(item) for item in wanted}):
        above = [item for item in reversed(path.parents) if not item.stat().st_mode & 0o001]
        if above and not any(path.is_relative_to(other) for other in closed.get(above[0], ())):
            closed.setdefault(above[0], []).append(path)
    commands = []
    for index, (top, paths) in enumerate(closed.items()):
        held = [hold / str(index) / str(number) for number in range(len(paths))]
        commands += [f"mkdir -p {at} && mount --bind {path} {at}" for path, at in zip(paths, held, strict=True)]
        commands.append(f"mount -t tmpfs -o mode=755 none {top}")
        commands += [f"mkdir -p {path} && mount --move {at} {path}" for path, at in zip(paths, held, strict=True)]
    return commands
