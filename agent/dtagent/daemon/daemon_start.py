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
from dtagent.daemon.dialling import dial, owner_of
from dtagent.errors import DtagentError, RootError
from dtagent.locations import own_python, secure_root, socket_path
from dtagent.names import ALREADY_RUNNING, ERROR_LOG
from dtagent.protocol import sentences
from dtagent.protocol.said import Said, said_at_end

START_DEADLINE_S = 20.0
AGAIN_S = 1.0
"""Until a daemon is started again where one was in the way that nobody can reach."""
MOST_SAID_BYTES = 4096


def wake(root: str, daemon_options: list[str]) -> socket.socket | None:
    """Return a connection to the daemon of a root, which is started where there is none; `None` where that failed.

    Raises:
        DtagentError: the root or the socket in it cannot be trusted, the daemon is stuck or said why it cannot start.
        ConnectionResetError: the client hung up meanwhile.
    """
    secure_root(Path(root))
    return _dial(root) or _start_and_dial(Path(root), daemon_options)


def _dial(root: str) -> socket.socket | None:
    channel = dial(root, (0, 1))
    if channel is not None and (owner := owner_of(channel)) != os.getuid():
        channel.close()
        raise RootError(sentences.DAEMON_OF_ANOTHER(owner=owner, path=str(socket_path(Path(root)))))
    return channel


def _start_and_dial(root: Path, daemon_options: list[str]) -> socket.socket | None:
    if linger.can_outlive_logout():
        try:
            linger.start_daemon(root, daemon_options)
        except (DtagentError, OSError) as error:
            sys.stderr.write(f"dtagent: no unit for the daemon, so it may end with this session: {error}\n")
        if channel := _dial(str(root)):
            return channel
    said_before = _size(root / ERROR_LOG)
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        child, output = _start(root, daemon_options)
        again_at = time.monotonic() + AGAIN_S
        while time.monotonic() < deadline:
            if channel := _dial(str(root)):
                return channel
            # Another daemon may have been quicker: its socket is about to come. One that has lost its socket ends.
            if child.poll() == ALREADY_RUNNING and time.monotonic() > again_at:
                break
            if child.poll() not in (None, 0, ALREADY_RUNNING):
                if reason := _last_said(root / ERROR_LOG, said_before, output):
                    raise DtagentError(sentences.DAEMON_DID_NOT_START(reason=reason, path=str(root / ERROR_LOG)))
                return None
            time.sleep(0.01)
        else:
            return None


def _start(root: Path, daemon_options: list[str]) -> tuple[subprocess.Popen[bytes], str]:
    """Start a daemon, and wait until it listens or has ended; return it, and what it wrote to stdout."""
    with open(root / ERROR_LOG, "ab") as errors:
        child = subprocess.Popen(
            [own_python(), "-I", "-m", "dtagent", "daemon", "--root", str(root), *daemon_options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd="/",
            start_new_session=True,
        )
    assert child.stdout is not None  # noqa: S101 - for mypy: it is a pipe
    with child.stdout:
        # The daemon closes its stdout when it listens, or by ending.
        has_told, _, _ = select.select([child.stdout], [], [], START_DEADLINE_S)
        output = os.read(child.stdout.fileno(), MOST_SAID_BYTES) if has_told else b""
    return child, output.decode(errors="replace")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _last_said(path: Path, start: int, output: str) -> Said:
    """Return the last line of a file from an offset on, without the program's own name; empty where there is none."""
    with open(path, "rb") as stream:
        stream.seek(max(start, os.fstat(stream.fileno()).st_size - MOST_SAID_BYTES))
        lines = stream.read().decode(errors="replace").strip().splitlines()
    return said_at_end(lines[-1], output.splitlines()) if lines else Said("")
