"""Speaks to an ssh-agent (draft-ietf-sshm-ssh-agent): lists its keys, and has it sign. Knows nothing of servers."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

import paramiko

TIMEOUT_S = 60.0
"""For an agent that hangs, or waits for a person to confirm a signature."""

_REQUEST_IDENTITIES, _IDENTITIES_ANSWER = 11, 12
_SIGN_REQUEST, _SIGN_RESPONSE = 13, 14
_MAX_ANSWER_BYTES = 1024 * 1024
MAX_KEYS = 256
_RSA_FLAGS = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}


class SshAgentError(Exception):
    """The agent refused, or what answered is none."""


@dataclass(frozen=True)
class AgentKey:
    """A key the agent holds."""

    blob: bytes
    comment: str


class SshAgent:
    """An agent behind a socket. Blocking, and for one thread at a time but for `close`."""

    def __init__(self, path: Path | None, timeout_s: float = TIMEOUT_S) -> None:
        """Remember where it listens, and for how long it is waited for; `None` stands for no agent."""
        self._path = path
        self._timeout_s = timeout_s
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def keys(self) -> list[AgentKey]:
        """Return the keys it offers; none where there is no agent or it does not answer as one."""
        if self._path is None:
            return []
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.connect(os.fspath(self._path))
            answer = self._ask(_REQUEST_IDENTITIES, b"", _IDENTITIES_ANSWER)
            count = min(answer.get_int(), MAX_KEYS)
            blobs = [(answer.get_binary(), answer.get_binary()) for _ in range(count)]
        except (OSError, SshAgentError):
            return []
        return [AgentKey(blob, comment.decode("utf-8", "replace")) for blob, comment in blobs if blob]

    def sign(self, key: AgentKey, data: bytes, algorithm: str | None) -> bytes:
        """Return a signature in SSH's encoding. Raises SshAgentError when the agent, or its owner, declines."""
        flags = _RSA_FLAGS.get((algorithm or "").removesuffix("-cert-v01@openssh.com"), 0)
        request = _string(key.blob) + _string(data) + struct.pack(">I", flags)
        return self._ask(_SIGN_REQUEST, request, _SIGN_RESPONSE).get_binary()

    def close(self) -> None:
        """Hang up; a thread that waits for an answer gets an error."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _ask(self, kind: int, body: bytes, expected: int) -> paramiko.Message:
        self._socket.sendall(struct.pack(">IB", len(body) + 1, kind) + body)
        size = struct.unpack(">I", self._read(4))[0]
        if not 1 <= size <= _MAX_ANSWER_BYTES:
            raise SshAgentError(f"an answer of {size} bytes")
        answer = self._read(size)
        if answer[0] != expected:
            raise SshAgentError(f"answer {answer[0]} to request {kind}")
        return paramiko.Message(answer[1:])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise SshAgentError("the agent hung up")
            data += part
        return data


class AgentSigner(paramiko.PKey):
    """An agent's key as paramiko wants it. A refused signature costs an attempt, instead of the connection."""

    def __init__(self, agent: SshAgent, key: AgentKey) -> None:
        super().__init__()
        self.public_blob = None
        self._agent = agent
        self._key = key
        self._name = paramiko.Message(key.blob).get_binary().decode("ascii", "replace")

    def get_name(self) -> str:
        """Return the key's type."""
        return self._name

    def asbytes(self) -> bytes:
        """Return the public key."""
        return self._key.blob

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> paramiko.Message:
        """Return a signature; an empty one, which no server takes, when the agent declines."""
        try:
            return paramiko.Message(self._agent.sign(self._key, data, algorithm))
        except (SshAgentError, OSError):
            return paramiko.Message(b"")


def _string(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value
