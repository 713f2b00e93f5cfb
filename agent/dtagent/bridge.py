"""`dtagent connect`: carries bytes between stdio and the daemon's socket, starting the daemon when there is none.

Imports as little as it can, since a person waits for it.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

from dtagent.locations import own_python, secure_root, socket_path
from dtagent.protocol.rpc import MAGIC

SILENCE_S = 60.0
"""A client that has sent nothing for so long is gone, even if its connection does not know yet."""
START_DEADLINE_S = 20.0


def connect(root: Path, daemon_options: list[str]) -> int:
    """Bridge until either side ends; return the exit status."""
    secure_root(root)
    os.chdir(root)  # The socket goes by its bare name: paths have a limit of 107 bytes.
    channel = _dial() or _start_and_dial(root, daemon_options)
    if channel is None:
        sys.stderr.write(f"dtagent: the daemon did not start; see {root / 'daemon.err'}\n")
        return 1
    os.write(1, MAGIC)
    return _carry(channel)


def _dial() -> socket.socket | None:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.connect(socket_path(Path()).name)
    except OSError:
        channel.close()
        return None
    return channel


def _start_and_dial(root: Path, daemon_options: list[str]) -> socket.socket | None:
    with open("daemon.err", "ab") as errors:
        child = subprocess.Popen(
            [own_python(), "-I", "-m", "dtagent", "daemon", "--root", str(root), *daemon_options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd="/",
            start_new_session=True,
        )
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        channel = _dial()
        if channel is not None:
            return channel
        # Status 3: another bridge's daemon was quicker, and its socket is about to come.
        if child.poll() not in (None, 0, 3):
            return None
        time.sleep(0.01)
    return None


def _carry(channel: socket.socket) -> int:
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(channel, select.POLLIN)
    heard = time.monotonic()
    while True:
        ready = poll.poll(5000)
        for descriptor, _ in ready:
            if descriptor == 0:
                data = os.read(0, 65536)
                if not data:
                    return 0
                heard = time.monotonic()
                channel.sendall(data)
            else:
                data = channel.recv(65536)
                if not data:
                    return 0
                while data:
                    data = data[os.write(1, data) :]
        if time.monotonic() - heard > SILENCE_S:
            sys.stderr.write("dtagent: no word from the client for a minute\n")
            return 1
