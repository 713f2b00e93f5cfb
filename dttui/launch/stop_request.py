"""Having a job stopped by its controller: one request over its socket, for which nothing else need be imported."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
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
        NotFinishedError: no controller could be reached or started.
    """
    for _attempt in range(ATTEMPTS):
        ensure_controller(directory, cleans_up=True)
        try:
            link = _dialled(directory)
        except NotFinishedError:
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


def _dialled(directory: JobDirectory) -> socket.socket:
    """Return a connection to the controller; wait for one that is only just starting. Raises NotFinishedError."""
    deadline = time.monotonic() + DIAL_DEADLINE_S
    while True:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with address_of(directory) as address:
                link.settimeout(REPLY_DEADLINE_S)
                link.connect(address)
                return link
        except OSError as error:
            link.close()
            # It has its lock before it has its socket.
            if time.monotonic() >= deadline or not directory.has_controller():
                raise no_controller(directory) from error
            time.sleep(RETRY_S)


def _is_noted(link: socket.socket, directory: JobDirectory, *, force: bool) -> bool:
    """Ask; return whether the controller has answered."""
    frames = rpc.FrameReader()
    with contextlib.suppress(OSError, rpc.FrameError):
        for message in (greeting(directory, prompts=False), {"method": "stop", "force": force, "id": 1}):
            link.sendall(rpc.encode(message))
        while data := link.recv(READ_BYTES):
            if any(rpc.decode(line).get("method") == "reply" for line in frames.feed(data)):
                return True
    return False


def _secrets_here(directory: JobDirectory, known: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a job's secrets that the caller has: a controller that took over may not know them."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        names = json.loads(directory.plan.read_bytes()).get("secrets", [])
        return {name: known[name] for name in names if name in known}
    return {}
