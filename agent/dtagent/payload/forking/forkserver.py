"""The parent of one attempt's launcher and ranks: forked from the template, it answers the attempt's supervisor."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
from typing import Any, NamedTuple

from dtagent.payload.forking.channel import Channel, notice
from dtagent.payload.forking.fork_safety import objection
from dtagent.payload.forking.place import PlaceError, enter
from dtagent.payload.forking.ranks import Ranks, exit_code

PR_SET_CHILD_SUBREAPER = 36


class ChildProgram(NamedTuple):
    """What a child is to become."""

    argv: list[str]
    env: dict[str, str]
    reason: dict[str, Any] | None
    """Why it is to be executed; `None` where the fork will do."""
    ranks: Ranks | None = None
    """For a launcher: starts its ranks."""


class ForkServer:
    """The parent of one attempt's launcher and ranks."""

    def __init__(self, supervisor: Channel) -> None:
        self._supervisor = supervisor
        self._launcher: Channel | None = None
        self._launcher_pid: int | None = None
        self._told: list[dict[str, Any]] = []

    def run(self) -> ChildProgram:
        """Serve until nothing is left, which ends the process; return in a child, what that is to become."""
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._supervisor.send({"stem": os.getpid()})
        request = self._supervisor.receive()
        if request is None:  # Whoever asked has given up, and starts without us.
            os._exit(0)
        try:
            self._settle(request)
        except PlaceError as error:
            self._supervisor.send({"refused": error.notice})
            os._exit(0)
        except (OSError, ValueError) as error:
            self._supervisor.send({"refused": str(error)})
            os._exit(0)
        target = self._launch(request)
        return target if target is not None else self._serve(wake_read)

    def _settle(self, request: dict[str, Any]) -> None:
        """Become what a child of the supervisor would be: cgroup, limits, mask, working directory, standard streams."""
        enter(request["cgroup"], request["home"], request["cgroups"])
        for number, limits in request["limits"]:
            if resource.getrlimit(number) != tuple(limits):
                resource.setrlimit(number, tuple(limits))
        if os.nice(0) != request["nice"]:
            raise PlaceError(notice("warm-priority"))
        os.sched_setaffinity(0, request["cpus"])
        os.umask(request["umask"])
        os.chdir(request["cwd"])
        for place, descriptor in enumerate(self._supervisor.descriptors[:3]):
            os.dup2(descriptor, place)

    def _launch(self, request: dict[str, Any]) -> ChildProgram | None:
        ours, theirs = socket.socketpair()
        reason = objection(request["argv"], request["env"])
        pid = self._fork()
        if pid == 0:
            ours.close()
            self._leave(theirs.fileno())
            return ChildProgram(request["argv"], request["env"], reason, Ranks(Channel(theirs)))
        theirs.close()
        self._launcher, self._launcher_pid = Channel(ours), pid
        self._supervisor.send({"started": pid})
        self._note(reason)
        return None

    def _serve(self, wake: int) -> ChildProgram:
        while True:
            poll = select.poll()
            poll.register(wake, select.POLLIN)
            if self._launcher is not None:
                poll.register(self._launcher.connection, select.POLLIN)
            for descriptor, _event in poll.poll():
                if descriptor == wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake, 4096)
                    self._reap()
                elif self._launcher is not None:
                    body = self._launcher.receive()
                    if body is None:
                        self._launcher.connection.close()
                        self._launcher = None
                    else:
                        target = self._start_rank(self._launcher, body)
                        if target is not None:
                            return target

    def _start_rank(self, launcher: Channel, body: dict[str, Any]) -> ChildProgram | None:
        reason = objection(body["argv"], body["env"])
        pid = self._fork()
        if pid == 0:
            self._leave(None)
            if body["session"]:
                os.setsid()
            return ChildProgram(body["argv"], body["env"], reason)
        launcher.send({"pid": pid})
        self._note(reason)
        return None

    def _fork(self) -> int:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # None goes to our handlers there.
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return pid

    def _leave(self, kept: int | None) -> None:
        """Let go, in a child, of everything that belongs to the fork server."""
        for channel in (self._supervisor, self._launcher):
            if channel is not None:
                channel.connection.close()
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != kept:
                with contextlib.suppress(OSError):
                    os.close(int(name))

    def _reap(self) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                # Nothing is below us any more.
                self._supervisor.send({"usage": _usage(resource.getrusage(resource.RUSAGE_CHILDREN))})
                os._exit(0)
            if pid == 0:
                return
            if pid == self._launcher_pid:
                self._supervisor.send({"exit": exit_code(status), "usage": _usage(used)})
            elif self._launcher is not None:
                self._launcher.send({"exit": pid, "status": status})

    def _note(self, reason: dict[str, Any] | None) -> None:
        if reason is not None and reason not in self._told:
            self._told.append(reason)
            self._supervisor.send({"note": reason})


def _usage(used: resource.struct_rusage) -> list[float]:
    return [used.ru_utime, used.ru_stime, used.ru_maxrss]
