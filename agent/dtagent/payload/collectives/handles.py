"""Collectives that are not waited for: what a rank has begun, in the order in which it began it.

Ranks match calls by their order, so one rank's calls are carried out one after another, in a thread that is there as
long as there are any. A call that is waited for takes its turn behind those that are not.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import torch

from .errors import CollectiveTimeoutError, ThreadRefusedError
from .pending import PendingTensor

if TYPE_CHECKING:
    from .backend import Backend

Result = TypeVar("Result")

IDLE_S = 0.5
"""How long the thread stays without a call, as starting one takes longer than a small collective."""


class CollectiveHandle(Protocol):
    """A collective that has been begun, as `torch.distributed.Work` is one."""

    def is_completed(self) -> bool:
        """Return whether `wait` returns or raises at once."""

    def wait(self, timeout: float | None = None) -> torch.Tensor:
        """Return the result.

        Args:
            timeout: seconds after which this gives up waiting, though the collective goes on; by default it waits as
                long as the collective itself does.

        Raises:
            CollectiveTimeoutError: it has not completed in that time, or ranks have not answered in theirs.
            CollectiveError: as the call that waits raises it, on every rank.
        """


class PendingHandle:
    """A collective of ranks that are called one after another in one thread: complete when the last one has called."""

    def __init__(self, work: Callable[[], torch.Tensor]) -> None:
        self._error: Exception | None = None
        try:
            self._result = work()
        except Exception as error:  # noqa: BLE001  it is raised to who waits
            self._error = error

    def is_completed(self) -> bool:
        """Return whether all ranks have called, or it has failed."""
        if self._error is not None or not isinstance(self._result, PendingTensor):
            return True
        return self._result.known is not None or self._result.has_failed

    def wait(self, timeout: float | None = None) -> torch.Tensor:
        """Return the result; no time makes the others call, so it raises PendingError where some have not."""
        if self._error is not None:
            raise self._error
        return self._result.read() if isinstance(self._result, PendingTensor) else self._result


class UnwatchedHandle:
    """A message that is on its way, and that nobody looks after before it is waited for.

    Args:
        work: waits for it, and returns it.
    """

    def __init__(self, work: Callable[[], torch.Tensor]) -> None:
        self._call = QueuedCall(work)

    def is_completed(self) -> bool:
        """Return whether it was waited for."""
        return self._call.is_completed()

    def wait(self, timeout: float | None = None) -> torch.Tensor:
        """Return the message once it has gone, in the time that the communicator gives it."""
        self._call.run()
        return self._call.wait(timeout)


class QueuedCall(Generic[Result]):
    """A collective that is carried out when those before it are."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work: Callable[[], Result] | None = work
        self._done = threading.Event()
        self._result: Result | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Carry it out; what goes wrong is raised to who waits."""
        work, self._work = self._work, None  # With what it holds: a handle may be kept for long.
        if work is None:
            return
        try:
            self._result = work()
        except BaseException as error:  # noqa: BLE001  it is raised to who waits
            self._error = error
        self._done.set()

    def is_completed(self) -> bool:
        """Return whether it is over, with a result or an error."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> Result:
        """Return the result, as `CollectiveHandle.wait`."""
        if not self._done.wait(timeout):
            raise CollectiveTimeoutError(f"the collective has not completed within {timeout:g} s, and goes on")
        if self._error is not None:
            raise self._error
        return cast(Result, self._result)


class CallQueue:
    """The calls of one rank."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[QueuedCall[Any]] = deque()
        self._unfinished = 0
        self._one_at_a_time = threading.RLock()
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], Result]) -> QueuedCall[Result]:
        """Have work done after what was begun before; return without waiting for it.

        Raises ThreadRefusedError where the system has no thread for it; then it is not done.
        """
        call = QueuedCall(work)
        with self._changed:
            self._waiting.append(call)
            self._unfinished += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._carry_out, name="dttui-collectives", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as error:
                    self._thread = None
                    self._waiting.remove(call)
                    self._unfinished -= 1
                    message = "the system has no thread for what is not waited for, and it was not begun"
                    raise ThreadRefusedError(f"{message}: {error}") from error
            self._changed.notify_all()
        return call

    def in_turn(self, work: Callable[[], Result], timeout_s: float | None = None) -> Result:
        """Return the result of work that is done after what was begun before.

        Where there is nothing, or this is part of what was begun, it is done here.

        Args:
            work: what is done.
            timeout_s: how long what was begun before may take together with this, which goes on all the same.

        Raises CollectiveTimeoutError where that is not enough.
        """
        with self._changed:
            is_next = not self._unfinished or threading.current_thread() is self._thread
        if not is_next:
            return self.start(work).wait(timeout_s)
        with self._one_at_a_time:
            return work()

    def _carry_out(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting, IDLE_S):
                    self._thread = None
                    return
                call = self._waiting.popleft()
            with self._one_at_a_time:
                call.run()
            with self._changed:
                self._unfinished -= 1


_Lines = weakref.WeakValueDictionary[tuple[object, ...], CallQueue]
_queues: weakref.WeakKeyDictionary[object, _Lines] = weakref.WeakKeyDictionary()
"""Group → its lines, each for as long as its thread is there or somebody calls it: scripts number tags by steps."""
_opening = threading.Lock()


def queue_of(group: Backend, rank: int, *line: object) -> CallQueue:
    """Return the calls of a rank: one line for all that goes over the same messages, those of the group's `carrier`.

    Args:
        group: of which it is.
        rank: whose.
        line: what has a line of its own, as it may be matched before what was begun earlier: messages of one tag.
    """
    with _opening:
        lines = _queues.setdefault(getattr(group, "carrier", group), _Lines())
        return lines.setdefault((rank, *line), CallQueue())
