"""What a method of the agent is: its request, its limits, and the threads that its blocking part runs on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from dacite import Config, DaciteError, MissingValueError, WrongTypeError, from_dict

from dtagent import __version__
from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.bounds import OutOfRangeError, check_numbers
from dtagent.protocol.rpc import ErrorCode

LOG = logging.getLogger("dtagent")
SMALL_BYTES = 64 * 1024
"""Longest request of a method that says nothing else."""
LIMIT_S = 25.0
"""How long a call of a method may take that says nothing else: less than a client waits, so that it is told why."""

_DACITE = Config(cast=[Enum, tuple])
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_NO_HANDLES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
Value = TypeVar("Value")

Later = Callable[[], Awaitable[Any]]
"""The bulky part of an answer: made once the client has taken the one before, so that at most one waits for it."""


@dataclass(frozen=True)
class Method:
    """One method of the agent."""

    request: type | None
    """What its params are decoded to; `None` for no params."""
    call: Callable[[Any], Awaitable[Any]]
    """Returns the result, or a `Later` that does."""
    limit_s: float = LIMIT_S
    max_bytes: int = SMALL_BYTES
    """Longest request frame."""


async def perform(methods: dict[str, Method], frame: dict[str, Any], size: int, brought: bytes = b"") -> Any:
    """Carry out the call that a frame of `size` bytes asks for; return its result or a `Later`.

    What bytes it brought along are the `data` of its params.

    Raises:
        RpcError: it cannot be carried out, or not within its limits.
    """
    name = frame.get("method")
    method = methods.get(name) if isinstance(name, str) else None
    if method is None:
        raise RpcError(
            ErrorCode.UNKNOWN_METHOD, sentences.UNKNOWN_METHOD(method=repr(str(name)[:100]), version=__version__)
        )
    if size > method.max_bytes:
        said = sentences.REQUEST_TOO_LARGE(method=str(name), size=size, limit=method.max_bytes)
        raise RpcError(ErrorCode.TOO_LARGE, said)
    params = frame.get("params", {})
    if brought and isinstance(params, dict):
        params = {**params, "data": brought}
    request = decode_params(str(name), method.request, params)
    try:
        return await asyncio.wait_for(method.call(request), method.limit_s)
    except asyncio.TimeoutError as error:
        LOG.warning("%s took longer than %g s", name, method.limit_s)
        said = sentences.CALL_TOO_SLOW(method=str(name), seconds=f"{method.limit_s:g}")
        raise RpcError(ErrorCode.TIMED_OUT, said) from error
    except OSError as error:
        raise _refusal(str(name), error) from error


def decode_params(name: str, kind: type | None, params: Any) -> Any:
    """Return the request that params stand for. Raises RpcError INVALID_PARAMS where they stand for none."""
    if kind is None:
        return None
    if not isinstance(params, dict):
        said = sentences.PARAMS_NO_OBJECT(method=name, kind=type(params).__name__)
        raise RpcError(ErrorCode.INVALID_PARAMS, said)
    try:
        check_numbers(params)
        return from_dict(kind, params, _DACITE)
    except MissingValueError as error:
        said = sentences.PARAM_MISSING(method=name, field=str(error.field_path))
        raise RpcError(ErrorCode.INVALID_PARAMS, said) from error
    except WrongTypeError as error:
        # Not dacite's own words: they hold the value, which may be a secret.
        wanted = getattr(error.field_type, "__name__", str(error.field_type))
        said = sentences.PARAM_OF_OTHER_KIND(
            method=name, field=str(error.field_path), wanted=wanted, kind=type(error.value).__name__
        )
        raise RpcError(ErrorCode.INVALID_PARAMS, said) from error
    except OutOfRangeError as error:
        said = sentences.PARAM_OUT_OF_RANGE(method=name, error=str(error))
        raise RpcError(ErrorCode.INVALID_PARAMS, said) from error
    except (DaciteError, TypeError, ValueError, AttributeError) as error:
        raise RpcError(ErrorCode.INVALID_PARAMS, sentences.PARAMS_DO_NOT_FIT(method=name)) from error


def _refusal(name: str, error: OSError) -> Exception:
    if error.errno in _NO_ROOM:
        if error.filename is None:
            return RpcError(ErrorCode.REFUSED, sentences.AGENT_WITHOUT_ROOM(method=name))
        return RpcError(ErrorCode.REFUSED, sentences.DISK_WITHOUT_ROOM(method=name, path=str(error.filename)))
    if error.errno in _NO_HANDLES:
        return RpcError(ErrorCode.BUSY, sentences.HOST_IS_SHORT(method=name, error=str(error.strerror)))
    return error


class Workers:
    """Runs blocking calls, each on a thread of its own that never keeps the process from ending.

    One that hangs, on a dead network disk or in a driver, costs its thread and its place here, and nothing else.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._places = asyncio.Semaphore(most)

    async def run(self, act: Callable[[], Value]) -> Value:
        """Return what `act` returns. Whoever gives up waiting leaves it to run; its place is free when it ends."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Value] = loop.create_future()

        def deliver(value: Value | None, error: BaseException | None) -> None:
            self._places.release()
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)  # type: ignore[arg-type]  # it is a Value where there is no error

        def work() -> None:
            value, failure = None, None
            try:
                value = act()
            except BaseException as error:  # noqa: BLE001 - whatever it is belongs to whoever waits
                failure = error
            with contextlib.suppress(RuntimeError):  # The loop was closed meanwhile, and nobody waits.
                loop.call_soon_threadsafe(deliver, value, failure)

        try:
            threading.Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError as error:
            self._places.release()
            raise RpcError(ErrorCode.BUSY, sentences.NO_MORE_THREADS()) from error
        return await future
