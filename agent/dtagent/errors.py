"""Errors the agent raises on purpose; each becomes a JSON-RPC error or a line on stderr.

AgentError
├── RootError        the state directory cannot be used
└── RpcError         a call that is answered with an error; carries its code
"""

from __future__ import annotations

TYPE_CHECKING = False  # As typing's: importing that would double the time that `dtagent connect` needs.
if TYPE_CHECKING:
    from typing import Any

    from dtagent.protocol.rpc import ErrorCode


class AgentError(Exception):
    """Base of all; the message says what, and what to do where something can be done."""


class RootError(AgentError):
    """The state directory is on a network file system, not ours, or open to others."""


class RpcError(AgentError):
    """A call that cannot be carried out; `data` is what a program makes of it, such as the versions spoken here.

    Where `values` fill the message, both go along, so that dttui can say it in another language.
    """

    def __init__(self, code: ErrorCode, message: str, data: dict[str, Any] | None = None, **values: str | int) -> None:
        super().__init__(message.format(**values) if values else message)
        self.code = code
        self.data = {**(data or {}), "told": {"id": message, "values": values}} if values else data
