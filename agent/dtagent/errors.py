"""Errors the agent raises on purpose; each becomes a JSON-RPC error or a line on stderr.

AgentError
├── RootError        the state directory cannot be used
└── RpcError         a call that is answered with an error; carries its code
"""

from __future__ import annotations

from dtagent.protocol.rpc import ErrorCode


class AgentError(Exception):
    """Base of all; the message says what, and what to do where something can be done."""


class RootError(AgentError):
    """The state directory is on a network file system, not ours, or open to others."""


class RpcError(AgentError):
    """A call that cannot be carried out."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
