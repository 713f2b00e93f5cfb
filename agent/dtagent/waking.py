"""Reaching a daemon that does not answer: look at its root, start it, wait until it listens."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

from dtagent import linger
from dtagent.bridge import dial, owner_of
from dtagent.errors import AgentError, RootError
from dtagent.locations import own_python, secure_root
from dtagent.names import SOCKET

START_DEADLINE_S = 20.0


def wake(root: str, daemon_options: list[str]) -> socket.socket | None:
    """Return a connection to the daemon of a root, which is started where there is none; `None` where that failed.

    Raises:
        AgentError: the root or the socket in it cannot be trusted.
    """
    secure_root(Path(root))
    os.chdir(root)
    return _dial() or _start_and_dial(Path(root), daemon_options)


def _dial() -> socket.socket | None:
    channel = dial()
    if channel is not None and (owner := owner_of(channel)) != os.getuid():
        channel.close()
        raise RootError(f"uid {owner} listens on {Path.cwd() / SOCKET}, not you; remove it")
    return channel


def _start_and_dial(root: Path, daemon_options: list[str]) -> socket.socket | None:
    if linger.can_outlive_logout():
        try:
            linger.start_daemon(root, daemon_options)
        except (AgentError, OSError) as error:
            sys.stderr.write(f"dtagent: no unit for the daemon, so it may end with this session: {error}\n")
        if channel := _dial():
            return channel
    with open("daemon.err", "ab") as errors:
        child = subprocess.Popen(
            [own_python(), "-I", "-m", "dtagent", "daemon", "--root", str(root), *daemon_options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd="/",
            start_new_session=True,
        )
    deadline = time.monotonic() + START_DEADLINE_S
    assert child.stdout is not None  # noqa: S101 - for mypy: it is a pipe
    with child.stdout:
        # The daemon closes its stdout when it listens, or by ending.
        select.select([child.stdout], [], [], START_DEADLINE_S)
    while time.monotonic() < deadline:
        if channel := _dial():
            return channel
        # Status 3: another bridge's daemon was quicker, and its socket is about to come.
        if child.poll() not in (None, 0, 3):
            return None
        time.sleep(0.01)
    return None
