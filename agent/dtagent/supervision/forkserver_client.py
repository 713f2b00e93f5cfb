"""The supervisor's end of a fork server: a process forked from one with torch imported, its launcher's parent.

Whatever goes wrong before the launcher runs ends in `WarmError`, and the supervisor starts it itself. Standard library
only.
"""

from __future__ import annotations

import array
import json
import os
import resource
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtagent.protocol import sentences
from dtagent.protocol.said import Said
from dtagent.system import cgroup, processes
from dtagent.system.processes import ProcessId

MEET_S = 15.0
"""How long a template may take that is still importing; it began before the job did."""
READY_S = 3.0
"""How long one may take that has done so."""
START_S = 10.0
MOST_BYTES = 1 << 20
"""Of what it has told and is not read yet."""
_LIMITS = sorted(value for name, value in vars(resource).items() if name.startswith("RLIMIT_"))


class WarmError(Exception):
    """The launcher cannot be forked; it has to be started as usual."""

    def __init__(self, said: Said) -> None:
        super().__init__(said)
        self.said = said


@dataclass(frozen=True)
class ChildUsage:
    """What a process that the fork server waited for has used, named as in `resource.struct_rusage`."""

    ru_utime: float = 0.0
    ru_stime: float = 0.0
    ru_maxrss: int = 0


class ForkServerClient:
    """What the supervisor knows of one fork server, from its first word to its end.

    Args:
        connection: what the daemon handed over; a template is at the other end, or a refusal lies in it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.below = ChildUsage()
        """What all that it waited for has used; complete once it has ended."""
        self.id: ProcessId | None = None
        self._rest = b""

    def start(
        self, argv: list[str], env: dict[str, str], cwd: str, streams: list[int], own: cgroup.Cgroup | None
    ) -> int:
        """Have the launcher started as a child of the supervisor would be; return its pid.

        Args:
            argv: command and arguments.
            env: the whole environment.
            cwd: working directory.
            streams: descriptors of stdin, stdout and stderr.
            own: the attempt's cgroup.

        Raises:
            WarmError: it does not run, and will not.
        """
        pid = self._expect("stem", MEET_S)
        self.id = processes.identify(pid)
        if self.id is None:
            raise WarmError(sentences.WARM_ENDED_AT_ONCE())
        home = cgroup.own_directory()
        body = {
            "argv": argv,
            "env": env,
            "cwd": cwd,
            "cgroup": str(own.path) if own is not None else None,
            "home": str(home) if home is not None else None,
            "cgroups": Path("/proc/self/cgroup").read_text().splitlines(),
            "limits": [(number, resource.getrlimit(number)) for number in _LIMITS],
            "nice": os.nice(0),
            "cpus": sorted(os.sched_getaffinity(0)),
            "umask": processes.umask(),
        }
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        try:
            data = json.dumps(body).encode() + b"\n"
            self.connection.settimeout(START_S)
            sent = self.connection.sendmsg([data], rights)
            self.connection.sendall(data[sent:])
            return self._expect("started", START_S)
        except OSError as error:
            raise WarmError(sentences.WARM_SILENT(error=str(error))) from error

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield what it has told since; `{"gone": True}` is the last word, also of one that tells nonsense."""
        while b"\n" in self._rest or select.select([self.connection], [], [], 0)[0]:
            # Not `_receive`: where only half a line has come, nobody waits for the rest.
            if b"\n" not in self._rest and self._read():
                continue
            body = self._parse()
            if body is None:
                yield {"gone": True}
                return
            if "usage" in body and "exit" not in body:
                self.below = usage_of(body)
            yield body

    def _expect(self, key: str, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            self.connection.settimeout(left_s)
            try:
                body = self._receive()
            except OSError:
                break
            if body is None:
                raise WarmError(sentences.WARM_ENDED())
            if "refused" in body:
                raise WarmError(sentences.say(body["refused"], body.get("notice")))
            if "ready" in body:  # Said by the daemon before it handed the socket over.
                deadline = min(deadline, time.monotonic() + READY_S)
                timeout_s = READY_S
            if isinstance(body.get(key), int):
                return int(body[key])
        raise WarmError(sentences.WARM_TOO_SLOW(seconds=f"{timeout_s:g}"))

    def _receive(self) -> dict[str, Any] | None:
        while b"\n" not in self._rest:
            if not self._read():
                return None
        return self._parse()

    def _read(self) -> bool:
        """Take what comes next; return whether anything does."""
        try:
            data = self.connection.recv(65536)
        except ConnectionError:
            return False
        self._rest += data
        return bool(data) and len(self._rest) <= MOST_BYTES

    def _parse(self) -> dict[str, Any] | None:
        """Return the next message; `None` for none, or one that no fork server sends."""
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            body = json.loads(line)
            if "exit" in body or "usage" in body:
                usage_of(body)
                int(body.get("exit", 0))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            return None
        return body if isinstance(body, dict) else None


def usage_of(body: dict[str, Any]) -> ChildUsage:
    """Return what a message tells of a process that was waited for."""
    user_s, system_s, peak_kib = body["usage"]
    return ChildUsage(float(user_s), float(system_s), int(peak_kib))
