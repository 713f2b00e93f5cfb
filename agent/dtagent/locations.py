"""The one place that knows the file names under the agent's root, and that the root is safe to use."""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from dtagent.errors import RootError
from dtagent.names import ERROR_LOG, SOCKET
from dtagent.protocol import sentences
from dtagent.protocol.places import is_network_file_system, lets_exchange
from dtagent.system import mounts

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
"""What a job id or a stream may be called, since both become file names."""
MAX_ATTEMPT = 10**9 - 1
_RANK = re.compile(r"[0-9]{1,7}")

_ELSEWHERE = sentences.ELSEWHERE()
_OWN_NAMES = frozenset({SOCKET, ERROR_LOG, "agents", "jobs", "store"})
"""What the agent, or its deployment, makes in its root first."""


def secure_root(root: Path) -> Path:
    """Make the root if it is absent, else check that it is the agent's and that nobody else can get at it.

    What is there stays as it is: it may be something that the agent has no business with.

    Raises:
        RootError: it is a link, another user's, open to others, holds something else, or is on a network file system.
    """
    try:
        make_private(root)
        info = root.lstat()
        open_parent = _find_open_parent(root)
    except OSError as error:
        raise RootError(sentences.ROOT_NOT_MADE(root=str(root), error=str(error.strerror))) from error
    if not stat.S_ISDIR(info.st_mode):
        raise RootError(sentences.ROOT_NO_DIRECTORY(root=str(root), elsewhere=_ELSEWHERE))
    if info.st_uid != os.getuid():
        raise RootError(sentences.ROOT_OF_ANOTHER(root=str(root), owner=info.st_uid, elsewhere=_ELSEWHERE))
    if open_parent is not None:
        raise RootError(sentences.ROOT_EXCHANGEABLE(root=str(root), parent=str(open_parent), elsewhere=_ELSEWHERE))
    if info.st_mode & 0o022:
        raise RootError(sentences.ROOT_WRITABLE(root=str(root), elsewhere=_ELSEWHERE))
    if info.st_mode & 0o077:
        raise RootError(sentences.ROOT_READABLE(root=str(root), elsewhere=_ELSEWHERE))
    try:
        names = set(os.listdir(root))
    except OSError as error:
        raise RootError(sentences.ROOT_NOT_READ(root=str(root), error=str(error.strerror))) from error
    if names and not names & _OWN_NAMES:
        raise RootError(sentences.ROOT_WITH_OTHERS(root=str(root), elsewhere=_ELSEWHERE))
    kind = file_system_of(root)
    if is_network_file_system(kind):
        raise RootError(sentences.ROOT_ON_NETWORK(root=str(root), kind=kind))
    return root


def _find_open_parent(root: Path) -> Path | None:
    """Return a directory above, on the way that the root is named by or where it is, in which others can exchange it.

    A link on the way counts as whose it is.
    """
    for path in (root.absolute(), root.resolve()):
        for part in (path, *path.parents[:-1]):
            if lets_exchange(part.parent.stat(), part.lstat().st_uid):
                return part.parent
    return None


def make_private(directory: Path) -> None:
    """Make a directory, and what is missing above it, for this user alone; what is there stays as it is."""
    if not directory.is_dir():
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def file_system_of(path: Path, mountinfo: Path = mounts.MOUNTINFO) -> str:
    """Return the type of the file system that holds a path, as /proc/self/mountinfo names it."""
    target = str(path.resolve())
    best, kind = "", "unknown"
    for mount in mounts.read(mountinfo):
        point = mount.point
        if len(point) >= len(best) and (target == point or target.startswith(point.rstrip("/") + "/")):
            best, kind = point, mount.kind
    return kind


def own_python() -> str:
    """Return the interpreter that children of the agent run under.

    Not by way of the link to the version in use: after an upgrade that would lead a running daemon's children, and what
    they import, to another version than its own.
    """
    if sys.prefix == sys.base_prefix:
        return sys.executable
    return str(Path(sys.prefix).resolve() / "bin" / Path(sys.executable).name)


def socket_path(root: Path) -> Path:
    """The daemon's socket; used by its bare name from inside the root, since paths have a limit of 107 bytes."""
    return root / SOCKET


def store_path(root: Path) -> Path:
    """Where the contents of files are kept between launches."""
    return root / "store"


def removed_path(root: Path) -> Path:
    """Where that lies which is only still to be removed."""
    return root / "removed"


@dataclass(frozen=True)
class AttemptFiles:
    """The files of one attempt of a job on this host."""

    directory: Path

    @classmethod
    def of(cls, root: Path, job_id: str, attempt: int) -> AttemptFiles:
        """Name the directory of an attempt. Raises ValueError for an id that is no file name."""
        if not NAME.fullmatch(job_id):
            raise ValueError(f"not a job id: {job_id!r}")
        if not 0 <= attempt <= MAX_ATTEMPT:
            raise ValueError(f"an attempt's number is from 0 to {MAX_ATTEMPT}")
        return cls(root / "jobs" / job_id / str(attempt))

    @property
    def tools(self) -> Path:
        """Programs that a deployment has brought beside the agent; of its root, and of no attempt."""
        return self.directory.parents[2] / "tools"

    @property
    def prepared(self) -> Path:
        """The prepare request and its reply."""
        return self.directory / "prepared.json"

    @property
    def start(self) -> Path:
        """The start request; its presence means that the attempt was started."""
        return self.directory / "start.json"

    @property
    def rendezvous_key(self) -> Path:
        """What the nodes of an elastic attempt know each other by; the launcher removes it once it has read it."""
        return self.directory / "rendezvous.key"

    @property
    def discarded(self) -> Path:
        """Tombstone: a start that comes after it is refused."""
        return self.directory / "discarded"

    @property
    def stop(self) -> Path:
        """`stop` or `kill`, once that was asked for: a supervisor that is only just starting reads it."""
        return self.directory / "stop"

    @property
    def keep(self) -> Path:
        """Empty; there where the directory is not to be removed when its time has come."""
        return self.directory / "keep"

    @property
    def heard(self) -> Path:
        """Empty; touched when the controller asks after the attempt. Only of one that ends itself without a word."""
        return self.directory / "heard"

    @property
    def lock(self) -> Path:
        """Held by the supervisor for as long as it lives."""
        return self.directory / "supervisor.lock"

    @property
    def supervisor(self) -> Path:
        """Identity of the supervisor: boot id, pid, start time."""
        return self.directory / "supervisor.json"

    @property
    def supervisor_errors(self) -> Path:
        """What the supervisor prints."""
        return self.directory / "supervisor.err"

    @property
    def own_names(self) -> frozenset[str]:
        """Names of what the agent itself has in the directory, where a job's processes may write besides."""
        names = (
            name for name, kind in vars(AttemptFiles).items() if isinstance(kind, property) and name != "own_names"
        )
        paths = (getattr(self, name) for name in names)
        return frozenset(path.name for path in paths if path.parent == self.directory)

    @property
    def journal(self) -> Path:
        """What the supervisor has seen."""
        return self.directory / "journal.jsonl"

    @property
    def logs(self) -> Path:
        """`<rank>.out`, `<rank>.err`, `launcher.out`, `launcher.err`."""
        return self.directory / "logs"

    @property
    def rescued(self) -> Path:
        """Log → inode of the file that took the place of one which was removed, and of that one."""
        return self.directory / "rescued.json"

    @property
    def ranks(self) -> Path:
        """What each rank has written: `<rank>.json`, `<rank>.ended.json`, `<rank>.group.json`.

        Pid and start time of its process; when it ended with 0; the process groups that it has formed.
        """
        return self.directory / "ranks"

    @property
    def asked(self) -> Path:
        """What ranks are asked by where they stand: `<rank>.json`, `<rank>.sock`, `<rank>.dump`; each makes its own."""
        return self.directory / "asked"

    @property
    def failures(self) -> Path:
        """`<rank>.json`, `launcher.json`: what went wrong, as those saw it who were there."""
        return self.directory / "failures"

    @property
    def health(self) -> Path:
        """What the job's own command has last said of this host."""
        return self.directory / "health.json"

    @property
    def metrics(self) -> Path:
        """What the script appends to, `DTTUI_METRICS`."""
        return self.directory / "metrics.jsonl"

    @property
    def trainer(self) -> Path:
        """The metrics found in the ranks' logs, where the script reports none itself; in the same form."""
        return self.directory / "trainer.jsonl"

    @property
    def payload(self) -> Path:
        """Copies of dtagent's payload scripts, so that an upgrade cannot pull them away."""
        return self.directory / "payload"

    @property
    def checkpoints(self) -> Path:
        """Where `DTTUI_CHECKPOINT_DIR` leads unless the job says otherwise; there before the script runs."""
        return self.directory / "checkpoints"

    @property
    def work(self) -> Path:
        """The working directory that was sent along."""
        return self.directory / "work"

    @property
    def tree(self) -> Path:
        """SHA-256 of the list of files in `work`, once all of them are there."""
        return self.directory / "tree"


def rank_of(path: Path) -> int | None:
    """Return which rank a file `<rank>.json` of an attempt is of; `None` for any other name."""
    return int(path.stem) if _RANK.fullmatch(path.stem) else None


def write_atomic(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all, also after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with open(temporary, "w", encoding="utf-8", opener=_private) as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)  # Else a power cut may take the name back.
    finally:
        os.close(directory)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
