"""The owner's side of the rack: starts the program that holds the hosts, has them booted, and lets go of it."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from pathlib import Path

from tests.lab.blueprint import Blueprint
from tests.lab.commands import ENVIRONMENT, LabError
from tests.lab.inside_rack import MESSAGE_BYTES

_CHECKOUT = Path(__file__).parents[2]
_ANSWER_TIMEOUT_S = 30.0
_CREDENTIALS = struct.Struct("3i")


class Rack:
    """A process tree that ends when this object's socket is closed, by `close` or by the death of this process."""

    def __init__(self, directory: Path, disk_size: str) -> None:
        self.disks = directory / "disks"
        self._log = directory / "rack.log"
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._log.open("wb") as log:
            self._control.settimeout(_ANSWER_TIMEOUT_S)
            # The kernel then tells with each message the sender's pid as seen from here, across pid namespaces.
            self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            program = [sys.executable, "-S", "-B", "-m", "tests.lab.inside_rack"]
            arguments = [str(theirs.fileno()), str(directory), disk_size]
            self._process = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--net", "--", *program, *arguments],
                cwd=_CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=ENVIRONMENT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            self.pid = self._answers({"": "the rack"})["the rack"]
        except LabError:
            self.close()
            raise

    def boot(self, *blueprints: Blueprint) -> dict[str, int]:
        """Boot hosts side by side; return the pid of each one's PID 1, as seen from here, once sshd listens there."""
        for blueprint in blueprints:
            self._control.send(blueprint.to_json().encode())
        return self._answers({blueprint.boot_id: blueprint.name for blueprint in blueprints})

    def _answers(self, awaited: dict[str, str]) -> dict[str, int]:
        """Return the pid of each awaited boot by its host's name; reports of boots that nobody awaits are dropped."""
        pids: dict[str, int] = {}
        while len(pids) < len(awaited):
            try:
                answer, ancillary, _, _ = self._control.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
            except TimeoutError:
                answer = b""
            if not answer:
                raise LabError(f"the lab's rack gave no answer: {self._log.read_text(errors='replace').strip()}")
            report = json.loads(answer)
            name = awaited.get(report["boot_id"])
            if name is not None and report["failure"] is not None:
                raise LabError(f"{name} did not boot: {report['failure']}")
            if name is not None:
                pids[name], _, _ = _CREDENTIALS.unpack(ancillary[0][2])
        return pids

    def close(self) -> None:
        """Let go: every host ends, and their mounts, links and files with them."""
        self._control.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            # Takes the rack along: unshare's child dies with it.
            self._process.kill()
            self._process.wait(timeout=10)
