"""Telemetry for the person on the host: from the daemon if it runs, else read on the spot. Starts no daemon."""

from __future__ import annotations

import os
import socket
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dacite import Config, DaciteError, from_dict

from dtagent import __version__
from dtagent.daemon.dialling import dial, owner_of
from dtagent.errors import DtagentError
from dtagent.facts import collection
from dtagent.protocol import rpc
from dtagent.protocol.facts import HostFacts
from dtagent.protocol.greeting import HelloReply
from dtagent.protocol.telemetry import HostSample
from dtagent.telemetry.host import HostReader
from dtagent.telemetry.nvml import Nvml
from dtagent.telemetry.sampler import Sampler

ANSWER_S = 15.0
KNOCK_S = 2.0
"""How long a daemon may take to make room, before it is done without."""
OWN_INTERVAL_S = 0.5
FIRST_WITH_RATES = 3
"""Number of the first sample of a sampler whose rates are over a whole interval."""

_Reply = TypeVar("_Reply")


class SampleSource(Protocol):
    """Where samples come from."""

    name: str
    """For a headline."""

    def facts(self) -> HostFacts:
        """Return what the host is. Raises DtagentError."""

    def sample(self) -> HostSample:
        """Return the newest reading. Raises DtagentError."""

    def close(self) -> None:
        """Let go of it."""


class NoDaemonError(DtagentError):
    """No daemon of this user can be asked under a root; the message says why."""


def open_source(root: Path) -> SampleSource:
    """Return the daemon under a root if it answers there, else one that reads by itself."""
    try:
        return DaemonSource(DaemonCalls(root))
    except DtagentError as error:
        return OwnSource(str(error))


class DaemonCalls:
    """A conversation with the daemon under a root, which speaks a version of the protocol that is known here.

    Raises:
        NoDaemonError: there is none.
        DtagentError: it does not answer, or in no version that is known here.
    """

    def __init__(self, root: Path) -> None:
        self._number = 0
        self._channel = _dial(root)
        self._channel.settimeout(ANSWER_S)
        self._lines = self._channel.makefile("rb")
        try:
            params = {"versions": list(rpc.VERSIONS), "client": f"dtagent {__version__}"}
            self.hello = decoded(HelloReply, self.call("hello", params))
        except DtagentError:
            self.close()
            raise

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a call. Raises DtagentError."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        try:
            self._channel.sendall(rpc.encode(request))
            line = self._lines.readline(rpc.MAX_FRAME_BYTES)
            if not line:
                raise DtagentError("the daemon has ended")
            reply = rpc.decode(line)
        except ConnectionError as error:
            raise DtagentError("the daemon has ended") from error
        except TimeoutError as error:
            raise DtagentError(f"the daemon has not answered for {ANSWER_S:g} s") from error
        except (OSError, rpc.FrameError) as error:
            raise DtagentError(f"the daemon does not answer: {error}") from error
        result = reply.get("result")
        if not isinstance(result, dict):
            refusal = reply.get("error")
            reason = refusal.get("message") if isinstance(refusal, dict) else refusal
            raise DtagentError(f"the daemon refuses: {reason}")
        return result

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._channel.close()


def decoded(kind: type[_Reply], value: Any) -> _Reply:
    """Return what a daemon, maybe of another version, has answered. Raises DtagentError."""
    try:
        return from_dict(kind, value, Config(cast=[Enum, tuple, float]))
    except (DaciteError, TypeError, ValueError) as error:
        raise DtagentError(f"the daemon's answer makes no sense: {error}") from error


class DaemonSource:
    """Asks the running daemon, which reads once for all who ask."""

    name = "the daemon"

    def __init__(self, calls: DaemonCalls) -> None:
        self._calls = calls

    def facts(self) -> HostFacts:
        """Return what the host is. Raises DtagentError."""
        return decoded(HostFacts, self._calls.call("facts", {}))

    def sample(self) -> HostSample:
        """Return the newest reading. Raises DtagentError."""
        samples = self._calls.call("telemetry", {"max_samples": 1, "wait_s": ANSWER_S / 2}).get("samples")
        if not samples:
            raise DtagentError("the daemon has no sample")
        return decoded(HostSample, samples[-1])

    def close(self) -> None:
        """Hang up."""
        self._calls.close()


class OwnSource:
    """Reads the host and its GPUs by itself, on threads of its own: a driver that hangs must not hang its user."""

    def __init__(self, reason: str) -> None:
        self.name = f"read here: {reason}"
        self._nvml = Nvml()
        self._sampler = Sampler(lambda: HostReader(Path("/")), self._nvml, dict, OWN_INTERVAL_S, ring_samples=60)
        self._sampler.start()

    def facts(self) -> HostFacts:
        """Return what the host is."""
        return collection.collect([], self._nvml)

    def sample(self) -> HostSample:
        """Return the newest reading; the first one waits until there are rates."""
        sample = self._sampler.wait_for(lambda latest: latest.seq >= FIRST_WITH_RATES, ANSWER_S)
        if sample is None or sample.seq < FIRST_WITH_RATES:
            raise DtagentError("this host cannot be read")
        return sample

    def close(self) -> None:
        """Stop to read."""
        self._sampler.stop()


def _dial(root: Path) -> socket.socket:
    try:
        owner = os.lstat(root).st_uid
    except OSError as error:
        raise NoDaemonError(f"no daemon runs in {root}: {error.strerror}") from error
    channel = dial(str(root), patience_s=KNOCK_S)
    if channel is not None and (owner := owner_of(channel)) != os.getuid():
        channel.close()
        channel = None
    if owner != os.getuid():
        raise NoDaemonError(f"the daemon of {root} is for uid {owner} alone")
    if channel is None:
        raise NoDaemonError(f"no daemon runs in {root}")
    return channel
