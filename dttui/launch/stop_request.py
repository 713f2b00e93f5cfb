"""Having a job stopped by its controller: one request over its socket, for which nothing else need be imported."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dtagent.protocol import rpc

from dttui.errors import NotFinishedError
from dttui.i18n import _
from dttui.jobs.directory import JobDirectory
from dttui.launch.starting import ensure_controller
from dttui.variables import variables

DIAL_DEADLINE_S = 60.0
"""A cold Python on a login node that many share takes its time."""
REPLY_DEADLINE_S = 20.0
RETRY_S = 0.02
ATTEMPTS = 3
"""Controllers that may die before one has noted what it is asked."""
READ_BYTES = 1 << 18


def stop_job(directory: JobDirectory, *, force: bool) -> None:
    """Have a job stopped by its controller or, where that has died, by a new one.

    Of a job that is over, the hosts that were lost are looked at again. Returns once the controller has noted what is
    asked, so that it will be done even if that one dies; the job's events tell the rest. Nobody is asked anything.

    Raises:
        NotFinishedError: no controller could be reached or started, or the one that is there does not answer.
    """
    for _attempt in range(ATTEMPTS):
        ensure_controller(directory, cleans_up=True)
        link = _dialled(directory)
        if link is None:
            if directory.is_over():
                return  # It ended by itself meanwhile.
            continue
        with link:
            if _is_noted(link, directory, force=force):
                return
    raise no_controller(directory)


def no_controller(directory: JobDirectory) -> NotFinishedError:
    """Return what is said where nobody watches a job."""
    return NotFinishedError(
        _("no controller watches job {id}").format(id=directory.job_id),
        _("See {path}.").format(path=directory.controller_log),
    )


def unanswered(directory: JobDirectory, pid: int | None) -> NotFinishedError:
    """Return what is said where the controller of a job is there and does not answer.

    Args:
        directory: of the job.
        pid: of the controller, as far as it is known.
    """
    job = directory.job_id
    if pid is None:
        message = _("the controller of job {id} does not answer").format(id=job)
        return NotFinishedError(message, _("`dttui doctor` names its process and what to do."))
    if is_halted(pid):
        message = _("the controller of job {id}, process {pid}, is halted by a signal or a debugger").format(
            id=job, pid=pid
        )
        hint = _(
            "`kill -CONT {pid}` lets it go on, and it does then what it was asked. Or `kill -9 {pid}`, and then "
            "`dttui stop {id}`: another controller takes over."
        )
    else:
        message = _("the controller of job {id}, process {pid}, does not answer").format(id=job, pid=pid)
        hint = _(
            "If that lasts: `kill -9 {pid}`, and then `dttui stop {id}`: another controller takes over. "
            "Ranks do not end with a controller."
        )
    return NotFinishedError(message, hint.format(pid=pid, id=job))


def hanging(directory: JobDirectory) -> NotFinishedError | None:
    """Return what is to be said of a controller that gives no sign of life; `None` where it does, or is gone."""
    if not directory.has_controller() or not directory.silence(time.time()):
        return None
    return unanswered(directory, controller_pid(directory))


def controller_pid(directory: JobDirectory) -> int | None:
    """Return the process of a job's controller; `None` where none listens here, or it is of another container."""
    with contextlib.suppress(OSError), _connected(directory) as link:
        return _peer_of(link)
    return None


def is_halted(pid: int) -> bool:
    """Whether a process is stopped by a signal or by who traces it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2][:1] in "Tt"
    return False


def greeting(directory: JobDirectory, *, prompts: bool) -> dict[str, Any]:
    """Return the first message of a client: with the caller's ssh-agent and secrets, which a controller may lack."""
    known = variables()
    message = {"method": "attach", "prompts": prompts, "agent_socket": known.get("SSH_AUTH_SOCK", "")}
    if secrets := _secrets_here(directory, known):
        message["secrets"] = secrets  # Its socket is this user's alone.
    return message


@contextlib.contextmanager
def address_of(directory: JobDirectory) -> Iterator[str]:
    """Give the socket's address through a descriptor of its directory: a path may be longer than an address allows."""
    descriptor = os.open(directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{directory.socket.name}"
    finally:
        os.close(descriptor)


def _connected(directory: JobDirectory) -> socket.socket:
    """Return a connection to the controller. Raises OSError."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address_of(directory) as address:
            link.settimeout(REPLY_DEADLINE_S)
            link.connect(address)
    except OSError:
        link.close()
        raise
    return link


def _dialled(directory: JobDirectory) -> socket.socket | None:
    """Return a connection to the controller, `None` where none is there; wait for one that is only just starting.

    Raises:
        NotFinishedError: it does not come to listen.
    """
    deadline = time.monotonic() + DIAL_DEADLINE_S
    while True:
        try:
            return _connected(directory)
        except OSError as error:
            # It has its lock before it has its socket.
            if not directory.has_controller():
                return None
            if time.monotonic() >= deadline:
                raise unanswered(directory, None) from error
            time.sleep(RETRY_S)


def _is_noted(link: socket.socket, directory: JobDirectory, *, force: bool) -> bool:
    """Ask; return whether the controller has answered: else it is gone.

    Raises:
        NotFinishedError: it is there, and does not answer.
    """
    frames = rpc.FrameReader()
    try:
        for message in (greeting(directory, prompts=False), {"method": "stop", "force": force, "id": 1}):
            link.sendall(rpc.encode(message))
        while data := link.recv(READ_BYTES):
            if any(rpc.decode(line).get("method") == "reply" for line in frames.feed(data)):
                return True
    except TimeoutError as error:
        if directory.has_controller():
            raise unanswered(directory, _peer_of(link)) from error
    except (OSError, rpc.FrameError):
        pass
    return False


def _peer_of(link: socket.socket) -> int | None:
    """Return the process that listens at the other end; `None` where it is of another container."""
    pid, _user, _group = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid or None


def _secrets_here(directory: JobDirectory, known: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a job's secrets that the caller has: a controller that took over may not know them."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        names = json.loads(directory.plan.read_bytes()).get("secrets", [])
        return {name: known[name] for name in names if name in known}
    return {}
