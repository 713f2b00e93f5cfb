"""The one process of an attempt that a fork server starts and waits for, not the supervisor. Standard library only."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from dtagent.protocol import sentences
from dtagent.protocol.jobs import ProcessSpec
from dtagent.protocol.said import Said
from dtagent.supervision import usage
from dtagent.supervision.family import KILL_DEADLINE_S, Family, kill_all
from dtagent.supervision.forkserver_client import ForkServerClient, WarmError, usage_of
from dtagent.system import processes

END_S = 2.0
"""How long a fork server may take to end once nothing is below it."""

Ended = Callable[[int, "dict[str, Any] | None"], None]
"""Told the exit status of the process, below zero for a signal, and what it has used where that is known."""


class ForkedProcess:
    """One process, from the moment it runs to the end of the fork server that forked it.

    Args:
        forkserver: that forked it.
        pid: of the process.
        warn: told what is not as usual.
        ended: told once how the process ended.
    """

    def __init__(self, forkserver: ForkServerClient, pid: int, warn: Callable[[Said], None], ended: Ended) -> None:
        self.pid = pid
        self.id = processes.identify(pid)
        self.keepers = (forkserver.id,) if forkserver.id is not None else ()
        """Who adopts what is left below the process."""
        self.orphans: tuple[processes.ProcessId, ...] = ()
        """The process, where the fork server died before it and nobody waits for it any more."""
        self._forkserver = forkserver
        self._is_heard = True
        self._has_ended = False
        self._warn = warn
        self._ended = ended

    @property
    def awaited(self) -> list[Any]:
        """What becomes readable when there is something to hear."""
        return [self._forkserver.connection] if self._is_heard else []

    @property
    def used_below(self) -> usage.Exit:
        """What all has used that the fork server waited for; complete once it has ended."""
        return self._forkserver.below

    def terminate(self) -> None:
        """Send TERM to the process and to no other: who waits for it may have done so, and its pid be anybody's."""
        if self.id is not None:
            with contextlib.suppress(OSError):
                processes.send(self.id, signal.SIGTERM)

    def hear(self) -> None:
        """Take what the fork server tells; one that is gone before its time tells no more how the process ends."""
        for body in self._forkserver.messages() if self._is_heard else ():
            if "note" in body:
                self._warn(sentences.NO_WARM_START_OF_SOME(reason=sentences.say(body["note"])))
            elif "exit" in body and not self._has_ended:
                self._end(int(body["exit"]), usage.of_exit(usage_of(body)))
            elif "gone" in body:
                self._forkserver.connection.close()
                self._is_heard = False
                if not self._has_ended:
                    self._warn(sentences.FORK_SERVER_DIED())
                    self.orphans = (self.id,) if self.id is not None else ()
                    self._end(-signal.SIGKILL, None)
                return

    def await_forkserver(self) -> None:
        """Wait for the fork server's end, which comes when nothing is below it, and see to it otherwise."""
        deadline = time.monotonic() + END_S
        while self._is_heard and (remaining_s := deadline - time.monotonic()) > 0:
            select.select(self.awaited, [], [], remaining_s)
            self.hear()
        if self._is_heard and self._forkserver.id is not None:
            processes.send(self._forkserver.id, signal.SIGKILL)

    def _end(self, code: int, used: dict[str, Any] | None) -> None:
        self._has_ended = True
        self._ended(code, used)


def fork(
    forkserver: ForkServerClient,
    spec: ProcessSpec,
    environment: dict[str, str],
    streams: tuple[int, int],
    family: Family,
    warn: Callable[[Said], None],
    ended: Ended,
) -> ForkedProcess | None:
    """Have a process forked that has its imports done; return `None` where it does not run: nothing of it is left then.

    Args:
        forkserver: that is to do it.
        spec: of the process.
        environment: all of it.
        streams: descriptors of its stdout and stderr.
        family: of the attempt.
        warn: told what is not as usual.
        ended: told once how the process ended.
    """
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pid = forkserver.start(spec.argv, environment, spec.cwd, [null, *streams], family.cgroup)
    except (WarmError, OSError) as error:
        # Not those who died alone: a fork server that hangs must not start anything any more.
        if forkserver.id is not None:
            kill_all(dataclasses.replace(family, members=(forkserver.id,)), KILL_DEADLINE_S)
        forkserver.connection.close()
        warn(sentences.NO_WARM_START(reason=error.said if isinstance(error, WarmError) else str(error)))
        return None
    finally:
        os.close(null)
    return ForkedProcess(forkserver, pid, warn, ended)
