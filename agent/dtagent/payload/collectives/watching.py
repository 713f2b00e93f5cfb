"""Collectives that are watched: with a bound in time, and with the time that they took."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .errors import CollectiveTimeoutError, named

if TYPE_CHECKING:
    from .operators import AllReduceOperator

Result = TypeVar("Result")


def safe_all_reduce(
    tensor: torch.Tensor, all_reduce_op: AllReduceOperator, timeout: float | None = 30, *, op: str = "sum"
) -> torch.Tensor:
    """Return the reduced tensor, in time.

    Args:
        tensor: of this rank.
        all_reduce_op: of this rank.
        timeout: seconds for which other ranks are waited for, by `None` as long as the communicator says; no signal is
            used, so any thread may call.
        op: as of `AllReduceOperator.all_reduce`.

    Raises:
        TimeoutError: ranks have not called in time; its notes name them.
        CollectiveError: as of `AllReduceOperator.all_reduce`.
    """
    try:
        return all_reduce_op.all_reduce(tensor, op, timeout=timeout)
    except CollectiveTimeoutError as error:
        told = TimeoutError("All-Reduce operation timed out")
        limit_s = all_reduce_op.comm.timeout_s if timeout is None else timeout
        why = f"{named(error.missing)} did not answer within {limit_s:g} s" if error.missing else str(error)
        vars(told)["__notes__"] = [why]  # As `add_note` of Python 3.11, which prints them, does.
        raise told from error


def monitor_communication(func: Callable[..., Result]) -> Callable[..., Result]:
    """Have a function print how long each of its calls takes."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Result:
        began = time.perf_counter()
        result = func(*args, **kwargs)
        print(f"{func.__name__} took {time.perf_counter() - began:.4f}s")
        return result

    return wrapper
