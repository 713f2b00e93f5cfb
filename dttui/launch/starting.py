"""Starting the controller of a job as a process of its own, detached from this terminal and session.

Its interpreter may be started ahead, so that its imports are done while the job is still being read and planned.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dtagent.protocol.events import EventKind

from dttui.errors import NotFinishedError
from dttui.i18n import _
from dttui.jobs.left_to_do import lost_nodes, unfetched_nodes
from dttui.variables import are_brought, for_a_process

if TYPE_CHECKING:
    from dttui.jobs import JobDirectory

SPARE = "--spare"
"""Argument of a controller that is told its job on a socket, which is its stdin."""
MESSAGE_BYTES = 64 * 1024
TAKING_S = 20.0
"""How long it may need for its imports until it has taken the job."""
_TAKEN = b"y"


class SpareController:
    """A controller that has no job yet; it ends by itself where none comes, and where this process dies.

    Raises:
        OSError: this host starts no more processes.
    """

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                _spawn([SPARE], stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            except BaseException:
                self._link.close()
                raise

    def __enter__(self) -> SpareController:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.close()

    def take(self, arguments: list[str], lock: int, log: int) -> bool:
        """Give it a job, by its command line and descriptors; return whether it has taken it.

        One that has not will not: as long as nobody hears it say so, it cannot.
        """
        self._link.settimeout(TAKING_S)
        with contextlib.suppress(OSError):
            socket.send_fds(self._link, [json.dumps(arguments).encode()], [lock, log])
            return self._link.recv(1) == _TAKEN
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RD)
            return self._link.recv(1) == _TAKEN  # It came at the last moment.
        return False


def wait_for_job() -> list[str] | None:
    """In a spare: wait for a job and take over its descriptors; return its command line, `None` where none comes."""
    with socket.socket(fileno=os.dup(0)) as link:
        message, descriptors, _flags, _address = socket.recv_fds(link, MESSAGE_BYTES, 2)
        if not message:
            return None
        lock, log = descriptors
        try:
            link.send(_TAKEN)
        except OSError:
            return None  # Nobody waits for that any more: another one has the job.
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    arguments: list[str] = json.loads(message)
    return [*arguments, f"--lock={lock}"]


def start_controller(
    directory: JobDirectory,
    lock: int | None,
    *,
    launches: bool = False,
    expects_client: bool = False,
    spare: SpareController | None = None,
) -> None:
    """Start the controller process of a job, detached from this terminal and session.

    Args:
        directory: the job.
        lock: what claiming the job gave; it is handed on, and closed here.
        launches: whether the controller is the first, and starts the job.
        expects_client: whether a client that can ask a person is about to attach.
        spare: to be used, where it is still there and the call brings no variables of its own.

    Raises:
        OSError: it was not started.
    """
    arguments = [str(directory.path), *["--launch"] * launches, *["--expects-client"] * expects_client]
    with contextlib.ExitStack() as opened:
        if lock is not None:
            opened.callback(os.close, lock)
            if not launches:
                arguments.append(f"--seen-at={os.fstat(lock).st_mtime}")
            os.utime(lock)  # It gives its first sign of life now, however long it takes to start.
        log = os.open(directory.controller_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        opened.callback(os.close, log)
        if lock is None:
            _spawn(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        elif spare is None or are_brought() or not spare.take(arguments, lock, log):
            arguments.append(f"--lock={lock}")
            _spawn(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[lock])


def would_start_controller(directory: JobDirectory, *, cleans_up: bool = False) -> bool:
    """Whether `ensure_controller` would start one for a job now; changes nothing."""
    if directory.has_controller() or not directory.launch.exists():
        return False
    if directory.is_over() and not (cleans_up and _has_something_left(directory)):
        return False
    # Another user's, or on a disk that is read-only: there is nothing to look at it with.
    return os.access(directory.lock if directory.lock.exists() else directory.path, os.W_OK)


def ensure_controller(directory: JobDirectory, *, expects_client: bool = False, cleans_up: bool = False) -> bool:
    """Start a controller for a job whose own has died; return whether one was started.

    It starts nothing on the hosts: it finds out what has become of the job, and follows it.

    Args:
        directory: the job.
        expects_client: whether a client that can ask a person is about to attach.
        cleans_up: also for a job that is over, so that it looks once at the hosts that were lost, and fetches what a
            forced stop, silence or a full disk left of logs on any.

    Raises:
        NotFinishedError: none can be started here now.
    """
    if not would_start_controller(directory, cleans_up=cleans_up):
        return False
    try:
        lock = directory.claim()
    except OSError:
        return False  # Its disk has become read-only, or has no locks.
    if lock is None:
        return False  # Somebody else has just started one.
    try:
        start_controller(directory, lock, expects_client=expects_client)
    except OSError as fault:
        message = _("no controller of job {id} can be started: {reason}")
        raise NotFinishedError(
            message.format(id=directory.job_id, reason=fault.strerror or str(fault)),
            _("End processes of yours on this login node, or free memory there, and try again."),
        ) from fault
    return True


def _has_something_left(directory: JobDirectory) -> bool:
    events = directory.read_events(EventKind.NODE_STATE, EventKind.FINDING)
    return bool(lost_nodes(events) or unfetched_nodes(events))


def _spawn(arguments: list[str], **options: Any) -> None:
    from dttui.launch.login_session import own_scope  # Who finds a controller there starts none.

    process = subprocess.Popen(
        [*own_scope(), sys.executable, "-m", "dttui.engine", *arguments],
        cwd="/",
        env=for_a_process(),
        start_new_session=True,
        **options,
    )
    # Where this process is still there at the controller's end, somebody has to take note of it; where there can be no
    # thread, Popen does so at its next start of a process.
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=process.wait, name="controller", daemon=True).start()
