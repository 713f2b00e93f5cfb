"""For whom a call of the face is, and how hosts are reached for it.

What comes with a call instead of with the process, language and environment variables, is its `Caller`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from dttui.i18n import speaking
from dttui.time_limits import ending
from dttui.variables import bringing

if TYPE_CHECKING:
    from dttui.transport.base import Transport
    from dttui.transport.routes import Transports

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Caller:
    """Whom a call is for: what comes with it, and not with the process. Directories of dttui are the process's."""

    language: str | None = None
    """`en` or `zh`; `None` for that of the process."""
    variables: Mapping[str, str] | None = None
    """Environment variables, the secrets of jobs among them; `None` for those of the process."""

    until: float | None = None
    """By when all must be done, on the monotonic clock; `None` without a bound."""

    @contextlib.contextmanager
    def speaks(self) -> Iterator[None]:
        """Have language, variables and bound count inside; other tasks and threads keep their own."""
        with speaking(self.language), bringing(self.variables), ending(self.until):
            yield


class Ways:
    """How hosts are reached: connections are made when they are asked for, and kept until `close`."""

    def __init__(self, transport: Transport | None) -> None:
        """Reach them by `transport`; as the inventory says, where none is given."""
        self._given = transport
        self._own: Transports | None = None

    @property
    def routes(self) -> Transports:
        """As the inventory says, whatever was given."""
        if self._own is None:
            from dttui.transport.routes import Transports

            self._own = Transports()
        return self._own

    @property
    def transport(self) -> Transport:
        """What reaches them."""
        return self._given or self.routes

    async def close(self) -> None:
        """Close the connections."""
        if self._own is not None:
            await self._own.close()


class ForCaller:
    """A part of the face.

    Args:
        caller: for whom.
        ways: how hosts are reached.
    """

    def __init__(self, caller: Caller, ways: Ways) -> None:
        self.caller = caller
        self._ways = ways


def for_caller(method: Callable[P, R]) -> Callable[P, R]:
    """Have a method of a part of the face run with what came with the call."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def wait(self: ForCaller, *arguments: Any, **named: Any) -> Any:
            with self.caller.speaks():
                return await method(self, *arguments, **named)  # type: ignore[arg-type]  # P begins with self

        return cast("Callable[P, R]", wait)

    @functools.wraps(method)
    def call(self: ForCaller, *arguments: Any, **named: Any) -> Any:
        with self.caller.speaks():
            return method(self, *arguments, **named)  # type: ignore[arg-type]  # P begins with self

    return cast("Callable[P, R]", call)
