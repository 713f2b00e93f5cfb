"""Telemetry for the person on the host: from the daemon if it runs, else read on the spot. Starts no daemon."""

from __future__ import annotations

import os
import socket
import struct
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dacite import Config, DaciteError, from_dict

from dtagent import facts as host_facts
from dtagent.errors import AgentError
from dtagent.host import HostProbe
from dtagent.locations import socket_path
from dtagent.nvml import Nvml
from dtagent.protocol import rpc
from dtagent.protocol.telemetry import HostFacts, HostSample
from dtagent.sampler import Sampler

ANSWER_S = 15.0
OWN_INTERVAL_S = 0.5
FIRST_WITH_RATES = 3
"""Number of the first sample of a sampler whose rates are over a whole interval."""

_Reply = TypeVar("_Reply")


class Source(Protocol):
    """Where samples come from."""

    name: str
    """For a headline."""

    def facts(self) -> HostFacts:
        """Return what the host is. Raises AgentError."""

    def sample(self) -> HostSample:
        """Return the newest reading. Raises AgentError."""

    def close(self) -> None:
        """Let go of it."""


def open_source(root: Path) -> Source:
    """Return the daemon under a root if it answers there, else one that reads by itself."""
    channel = _dial(root)
    return DaemonSource(channel) if channel is not None else OwnSource()


class DaemonSource:
    """Asks the running daemon, which reads once for all who ask."""

    name = "the daemon"

    def __init__(self, channel: socket.socket) -> None:
        channel.settimeout(ANSWER_S)
        self._channel = channel
        self._lines = channel.makefile("rb")
        self._number = 0

    def facts(self) -> HostFacts:
        """Return what the host is. Raises AgentError."""
        return self._decode(HostFacts, self._call("facts", {}))

    def sample(self) -> HostSample:
        """Return the newest reading. Raises AgentError."""
        samples = self._call("telemetry", {"max_samples": 1, "wait_s": ANSWER_S / 2}).get("samples")
        if not samples:
            raise AgentError("the daemon has no sample")
        return self._decode(HostSample, samples[-1])

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._channel.close()

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        try:
            self._channel.sendall(rpc.encode(request))
            reply = rpc.decode(self._lines.readline(rpc.MAX_FRAME_BYTES) or b"null")
        except (OSError, rpc.FrameError) as error:
            raise AgentError(f"the daemon does not answer: {error}") from error
        result = reply.get("result")
        if not isinstance(result, dict):
            raise AgentError(f"the daemon refuses: {reply.get('error')}")
        return result

    def _decode(self, kind: type[_Reply], value: Any) -> _Reply:
        try:
            return from_dict(kind, value, Config(cast=[Enum, tuple, float]))
        except (DaciteError, TypeError, ValueError) as error:
            raise AgentError(f"the daemon's answer makes no sense: {error}") from error


class OwnSource:
    """Reads the host and its GPUs by itself, on threads of its own: a driver that hangs must not hang its user."""

    name = "read here, no daemon runs"

    def __init__(self) -> None:
        self._nvml = Nvml()
        self._sampler = Sampler(HostProbe(Path("/")), self._nvml, dict, OWN_INTERVAL_S, ring_samples=60)
        self._sampler.start()

    def facts(self) -> HostFacts:
        """Return what the host is."""
        return host_facts.collect([], self._nvml)

    def sample(self) -> HostSample:
        """Return the newest reading; the first one waits until there are rates."""
        sample = self._sampler.wait_for(lambda latest: latest.seq >= FIRST_WITH_RATES, ANSWER_S)
        if sample is None or sample.seq < FIRST_WITH_RATES:
            raise AgentError("this host cannot be read")
        return sample

    def close(self) -> None:
        """Stop to read."""
        self._sampler.stop()


def _dial(root: Path) -> socket.socket | None:
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.chdir(root)  # The socket goes by its bare name: paths have a limit of 107 bytes.
        channel.connect(socket_path(Path()).name)
        credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        channel.close()
        return None
    finally:
        os.fchdir(here)
        os.close(here)
    if struct.unpack("3i", credentials)[1] != os.getuid():
        channel.close()
        return None
    return channel
