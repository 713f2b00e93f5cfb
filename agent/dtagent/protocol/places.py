"""Where the agent keeps everything on a host: the usual place, or another where somebody else has that one.

Both sides share this, and it is pushed to hosts that have no agent yet: the standard library of Python 3.10 alone. The
same search stands as a shell's in dttui's `transport/remote_commands.py`.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False  # As typing's, whose import a person would wait for.
if TYPE_CHECKING:
    from collections.abc import Iterator

_NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "orangefs"}
    | {"panfs", "pvfs2", "smb3", "smbfs", "wekafs", "fuse.ceph", "fuse.ceph-fuse", "fuse.gcsfuse", "fuse.glusterfs"}
    | {"fuse.juicefs", "fuse.rclone", "fuse.s3fs"}
)
_ID_FILES = ("/etc/machine-id", "/proc/sys/kernel/random/boot_id")


def usual_root() -> str:
    """Local disk, never a home that several hosts may share; anybody may have made something of that name."""
    return f"/var/tmp/dtagent-{os.getuid()}"  # noqa: S108 - whoever uses it looks whose it is


def find_root() -> str | None:
    """Return the place in use, the usual one where nothing is; `None` where that is another's and none recorded.

    One of this user's to which others can write is returned too, for whoever uses it to refuse: jobs may run in it.
    """
    usual = usual_root()
    if _owned_mode(usual) is not None:
        return usual
    return next(recorded(), None if os.path.lexists(usual) else usual)


def new_root() -> str:
    """Return a place that nobody can have foreseen."""
    return f"{usual_root()}-{os.urandom(16).hex()}"


def is_network_file_system(kind: str) -> bool:
    """Whether a type of file system, as /proc/self/mountinfo names it, keeps its files on other hosts."""
    return kind in _NETWORK_FILE_SYSTEMS or kind.startswith("fuse.sshfs")


def take_root() -> str:
    """Return the place in use, having recorded another one where others have the usual one. Raises OSError."""
    found = find_root()
    if found is None:
        import fcntl

        directory = _made_records()
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            found = find_root()  # Somebody else of ours may just have taken one.
            if found is None:
                found = new_root()
                os.mkdir(found, 0o700)
                record(found)
        finally:
            os.close(descriptor)
    return found


def lets_exchange(directory: os.stat_result, owner: int = 0) -> bool:
    """Whether somebody else could put another thing in the place of what a directory holds.

    Args:
        directory: where that is.
        owner: uid that it belongs to; a directory as /tmp is protects what root and this user have in it.
    """
    protects = directory.st_mode & stat.S_ISVTX and _is_trusted(owner)
    return not _is_trusted(directory.st_uid) or bool(directory.st_mode & 0o022 and not protects)


def is_own(path: str) -> bool:
    """Whether a directory is this user's, is no link, and can be written by nobody else."""
    mode = _owned_mode(path)
    return mode is not None and not mode & 0o022


def recorded() -> Iterator[str]:
    """Yield the places taken instead that are here and this user's own: those of this boot of this machine first.

    A home may be shared by several hosts, whose places are then all recorded in it. They are told apart by machine and
    boot, and where images were cloned or containers share both, and after the next boot, by their names: nobody has a
    directory by such a name but who made it there.
    """
    directory, key = _records(), _key()
    if is_own(directory):
        names = sorted(os.listdir(directory))
        for name in sorted(names, key=lambda name: not name.startswith(f"{key}-")):
            path = _read(f"{directory}/{name}")
            if path.startswith(f"{usual_root()}-") and is_own(path):
                yield path


def record(path: str) -> None:
    """Keep a place that was taken where only this user writes. Raises OSError."""
    descriptor = os.open(
        f"{_made_records()}/{_key()}-{path.rpartition('-')[2]}",
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
    )
    try:
        os.write(descriptor, os.fsencode(path) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget(path: str) -> None:
    """Drop the record of a place that is gone."""
    directory = _records()
    if is_own(directory):
        for name in os.listdir(directory):
            if _read(f"{directory}/{name}") == path:
                os.unlink(f"{directory}/{name}")
        for emptied in (directory, os.path.dirname(directory)):
            if not os.listdir(emptied):
                os.rmdir(emptied)


def _is_trusted(uid: int) -> bool:
    return uid in (0, os.getuid()) or uid == _unmapped_user()


def _unmapped_user() -> int:
    """Return who owns what root does outside, in a container that has users of its own; else root."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as stream:
            if stream.read().split() == ["0", "0", str(2**32 - 1)]:
                return 0
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as stream:
            return int(stream.read())
    except (OSError, ValueError):
        return 0


def _owned_mode(path: str) -> int | None:
    """Return the mode of a directory of this user's; `None` for whatever else is there, a link too."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_mode if stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() else None


def _records() -> str:
    return os.path.expanduser("~/.local/state/dtagent/roots")


def _made_records() -> str:
    directory = _records()
    os.makedirs(directory, 0o700, exist_ok=True)
    if not is_own(directory):
        raise PermissionError(errno.EPERM, "others could write to it", directory)
    return directory


def _key() -> str:
    found = []
    for path in _ID_FILES:
        try:
            with open(path, encoding="ascii", errors="replace") as stream:
                found.append(stream.readline().strip())
        except OSError:  # A container's image may have no machine id.
            found.append("")
    return "-".join(found)


def _read(path: str) -> str:
    """Return the one line of a file that only this user can have written; empty where it is anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, "rb") as stream:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
            return ""
        return os.fsdecode(stream.readline(4096).rstrip(b"\n"))
