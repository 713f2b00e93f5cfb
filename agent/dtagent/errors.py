"""Errors the agent raises on purpose; each becomes a JSON-RPC error or a line on stderr.

DtagentError
├── RootError        the state directory cannot be used
└── RpcError         a call that is answered with an error; carries its code
"""

from __future__ import annotations

from dtagent.protocol.said import Said

TYPE_CHECKING = False  # As typing's: importing that would double the time that `dtagent connect` needs.
if TYPE_CHECKING:
    from typing import Any

    from dtagent.protocol.rpc import ErrorCode


class DtagentError(Exception):
    """Base of all; the message says what, and what to do where something can be done."""

    @property
    def said(self) -> Said:
        """The message; with its code where dttui may come to show it."""
        return self.args[0] if self.args and isinstance(self.args[0], Said) else Said(str(self))


class RootError(DtagentError):
    """The state directory is on a network file system, not ours, or open to others."""

    def __init__(self, said: Said) -> None:
        super().__init__(said)


class RpcError(DtagentError):
    """A call that cannot be carried out; `data` is what a program makes of it, such as the versions spoken here.

    The code of what is said goes along in it, as `notice`.
    """

    def __init__(self, code: ErrorCode, said: Said, data: dict[str, Any] | None = None) -> None:
        super().__init__(said)
        self.code = code
        self.data = data if said.notice is None else {**(data or {}), "notice": said.notice}
