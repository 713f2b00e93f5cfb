"""Ranks that a fork server forks, as torchrun sees them: processes that can be asked, waited for and signalled."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from typing import Any

from dtagent.payload.forking.channel import Channel


class ForkedRank:
    """A rank that the fork server forked, in the form of `subprocess.Popen` that torchrun uses."""

    def __init__(self, ranks: Ranks, pid: int, args: Any) -> None:
        self.pid = pid
        self.args = args
        self.returncode: int | None = None
        self._ranks = ranks

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; `None` while it runs."""
        if self.returncode is None:
            self.returncode = self._ranks.code_of(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._ranks.wait(self.pid, left_s)
        return code

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class Ranks:
    """The launcher's way to have ranks forked."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._codes: dict[int, int] = {}
        self._is_over = False

    def start(self, argv: tuple[str, ...], env: dict[str, str], *, session: bool) -> ForkedRank | None:
        """Return a rank that runs; `None` where the fork server is gone."""
        self._channel.send({"argv": list(argv), "env": env, "session": session})
        while (body := self._channel.receive()) is not None:
            if "pid" in body:
                return ForkedRank(self, body["pid"], argv)
            self._take(body)
        self._is_over = True
        return None

    def wait(self, pid: int, timeout_s: float | None) -> None:
        """Wait until there is something to be told of a rank; without the fork server, until the rank has ended."""
        limit_s = 1.0 if timeout_s is None else min(timeout_s, 1.0)
        if not self._is_over:
            select.select([self._channel.connection], [], [], limit_s)
            return
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                select.select([handle], [], [], limit_s)
            finally:
                os.close(handle)

    def code_of(self, pid: int) -> int | None:
        """Return how a rank ended; killed, where the fork server went without telling and it is not there any more."""
        for body in () if self._is_over else self._channel.pending():
            self._take(body)
        if pid not in self._codes and self._has_gone():
            self._is_over = True
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                self._codes[pid] = -signal.SIGKILL
        return self._codes.get(pid)

    def _has_gone(self) -> bool:
        if self._is_over:
            return True
        try:
            return self._channel.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _take(self, body: dict[str, Any]) -> None:
        if "exit" in body:
            self._codes[body["exit"]] = exit_code(body["status"])


def exit_code(status: int) -> int:
    """Return what `subprocess` makes of a status of wait(2): negative for a signal."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
