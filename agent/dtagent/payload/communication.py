"""Measures which share of a step a rank has collectives under way, and reports it to `DTTUI_METRICS`.

Whatever calls torch's collectives is seen: a script, DistributedDataParallel, DeepSpeed, Megatron-LM, and those of
`dttui_collectives`. Torch's dispatcher is asked to come by before it carries one out; nothing of what it does changes.
Nothing is imported earlier than the script does. What goes wrong here is kept from the script: then nothing is told.
"""

from __future__ import annotations

import _thread
import functools
import json
import os
import time
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

METRIC = "communication_percent"
LEAST_REPORT_S = 5.0
"""Between two reports of a rank; each is of whole steps."""
REPORTS_PER_S = 20.0
"""Of all ranks together, at most."""
STEPLESS = 6
"""So many times as long a rank is waited for that makes no step of an optimizer."""
LEAST_REST_S = 0.5
"""What is left at the end, and is told."""
LAST_S = 5.0
"""How long the end waits for collectives that are under way."""
SETTLED_S = 0.02
MOST_PENDING = 4096
"""Collectives on GPUs whose times are not known yet."""
COLLECTIVES = (
    "_allgather_base_",
    "_reduce_scatter_base_",
    "allgather_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "allreduce_",
    "allreduce_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "broadcast_",
    "gather_",
    "reduce_",
    "reduce_scatter_",
    "reduce_scatter_tensor_coalesced_",
    "scatter_",
)
"""What torch calls them; not the messages between two ranks: who waits for one in a pipeline has no work either way."""


def prepare(path: str, rank: int, world_size: int) -> tuple[dict[str, Callable[[Any], None]], Callable[[], bool]]:
    """Return module → what is to be called with it once it was imported, and what is to be called at the end.

    The latter reports what is left, and returns whether nothing is under way any more: gloo's threads tell us when it
    is over, and an interpreter that is being taken down would crash by that.

    Args:
        path: where reports go, a line each.
        rank: of this process.
        world_size: how many ranks report.
    """
    pid = os.getpid()

    def report(percent: float) -> None:
        if os.getpid() == pid:  # Else it is a child that the script forked.
            _append(path, {"rank": rank, "time": time.time(), METRIC: round(percent, 2)})

    meter = Meter(report, max(LEAST_REPORT_S, world_size / REPORTS_PER_S))
    hooks: dict[str, Callable[[Any], None]] = {
        "torch": lambda module: _hook_torch(module, meter),
        "torch.optim.optimizer": lambda module: _hook_steps(module, meter),
    }
    for package in ("dttui_collectives", "dtagent.payload.collectives"):  # Beside this file; as it is installed.
        hooks[f"{package}.communicator"] = lambda module: _hook_operators(module, meter)
    return hooks, meter.close


class Meter:
    """Adds up the time in which at least one collective was under way, and reports its share of all time.

    Args:
        report: takes percents.
        interval_s: between two reports.
        clock: seconds.
    """

    def __init__(
        self, report: Callable[[float], None], interval_s: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._report, self._interval_s, self._clock = report, interval_s, clock
        self._lock = _thread.allocate_lock()
        self._began: float | None = None
        """When what is reported next began: with the first collective, then where the report before ended."""
        self._under_way = 0
        self._since = 0.0
        self._busy_s = 0.0
        self._on_gpu: list[tuple[Any, Any]] = []
        """Events before and after each."""

    def begin(self) -> None:
        """Note that a collective is under way."""
        with self._lock:
            now = self._clock()
            if self._began is None:
                self._began = now
            if not self._under_way:
                self._since = now
            self._under_way += 1

    def end(self) -> None:
        """Note that one is over."""
        with self._lock:
            now = self._clock()
            self._under_way -= 1
            if not self._under_way:
                self._busy_s += now - self._since
        self._tell(STEPLESS * self._interval_s)

    def add_on_gpu(self, before: Any, after: Any) -> None:
        """Take the events between which a GPU carries one out; what it has done is looked at later."""
        with self._lock:
            if self._began is None:
                self._began = self._clock()
            if len(self._on_gpu) < MOST_PENDING:
                self._on_gpu.append((before, after))

    def step(self) -> None:
        """Note that a step is over."""
        self._tell(self._interval_s)

    def close(self) -> bool:
        """Report what is left; wait a little for what is under way, and return whether it is over."""
        if self._began is None:
            return True
        self._tell(LEAST_REST_S)
        deadline = time.monotonic() + LAST_S
        while self._under_way and time.monotonic() < deadline:
            time.sleep(SETTLED_S)
        time.sleep(SETTLED_S)  # Until the thread that has told it is out of here.
        return not self._under_way

    def _tell(self, least_s: float) -> None:
        with self._lock:
            now = self._clock()
            if self._began is None or now - self._began < least_s:
                return
            if self._under_way:
                self._busy_s, self._since = self._busy_s + now - self._since, now
            told = [(pair, pair[1].query()) for pair in self._on_gpu]
            self._on_gpu = [pair for pair, is_over in told if not is_over]
            done = [pair for pair, is_over in told if is_over]
            share = (self._busy_s + _covered_s(done)) / (now - self._began)
            self._began, self._busy_s = now, 0.0
        self._report(100 * min(share, 1.0))


def _covered_s(pairs: list[tuple[Any, Any]]) -> float:
    """Return the seconds that intervals between events cover, each counted once."""
    if not pairs:
        return 0.0
    first = pairs[0][0]
    spans = sorted((first.elapsed_time(before), first.elapsed_time(after)) for before, after in pairs)
    covered, end = 0.0, spans[0][0]
    for begin, until in spans:
        covered += max(0.0, until - max(begin, end))
        end = max(end, until)
    return covered / 1e3


def _softly(act: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call what must not disturb the script; return `None` where it fails."""
    try:
        return act(*arguments, **named)
    except Exception:  # noqa: BLE001 - any version of any library may do otherwise than is expected here
        return None


def _hook_torch(torch: Any, meter: Meter) -> None:
    """Have torch's dispatcher come by before each collective, from Python as from C++."""
    key = torch._C.DispatchKey.BackendSelect  # noqa: SLF001 - of all keys the one that nobody leaves out
    after = torch._C._dispatch_keyset_full_after(key)  # noqa: SLF001 - as above
    library = torch.library.Library("c10d", "IMPL")
    for name in COLLECTIVES:
        packet = getattr(torch.ops.c10d, name, None)
        if packet is not None:
            _softly(library.impl, name, _watched(packet.default, after, meter), "BackendSelect", with_keyset=True)
    _kept.append(library)


_kept: list[Any] = []
"""As long as the process runs: the dispatcher forgets what a library said once that is gone."""


def _watched(operation: Any, after: Any, meter: Meter) -> Callable[..., Any]:
    def call(keys: Any, *arguments: Any, **named: Any) -> Any:
        finish = _softly(_start, meter, arguments)
        result = None
        try:
            result = operation.redispatch(keys & after, *arguments, **named)
        finally:
            if finish is not None:
                _softly(finish, result)
        return result

    return call


def _start(meter: Meter, arguments: tuple[Any, ...]) -> Callable[[Any], None]:
    """Begin to measure; return what takes the collective's result, with its work, and ends it when that is over."""
    if _device_of(arguments) == "cuda":
        return _start_on_gpu(meter)
    meter.begin()

    def finish(result: Any) -> None:
        work = _softly(_future_of, result)
        if work is None or _softly(_then, work, lambda _future: meter.end()) is None:
            meter.end()

    return finish


def _start_on_gpu(meter: Meter) -> Callable[[Any], None]:
    """Do the same by events: of what a GPU is told, it is known later when it has done it."""
    import torch

    if torch.cuda.is_current_stream_capturing():  # What is recorded into a graph happens later, and again.
        return lambda _result: None
    before = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's
    before.record()

    def end(_future: Any) -> None:
        after = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # as above
        after.record()  # On a stream that waits for the collective, where torch calls this.
        meter.add_on_gpu(before, after)

    def finish(result: Any) -> None:
        _then(_future_of(result), end)

    return finish


def _future_of(result: Any) -> Any:
    from torch.distributed import Work

    boxed = result[-1] if isinstance(result, (tuple, list)) else result
    return Work.unbox(boxed).get_future()


def _then(future: Any, call: Callable[[Any], None]) -> bool:
    future.add_done_callback(functools.partial(_softly, call))
    return True


def _device_of(arguments: tuple[Any, ...]) -> str:
    first = arguments[0]
    while isinstance(first, (list, tuple)):
        first = first[0]
    return str(first.device.type)


def _hook_steps(module: Any, meter: Meter) -> None:
    """Be told of the steps of any optimizer."""
    module.register_optimizer_step_post_hook(lambda *_arguments: _softly(meter.step))


def _hook_operators(module: Any, meter: Meter) -> None:
    """Take part in what dttui's own operators do, messages between two ranks."""
    plain = module.DistributedCommunicator.call

    @functools.wraps(plain)
    def call(*arguments: Any, **named: Any) -> Any:
        _softly(meter.begin)
        try:
            return plain(*arguments, **named)
        finally:
            _softly(meter.end)

    module.DistributedCommunicator.call = call


def _append(path: str, body: dict[str, Any]) -> None:
    """Append a line in one write, whoever else writes there."""
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(opened, (json.dumps(body) + "\n").encode())
        finally:
            os.close(opened)
    except OSError:
        pass  # A full disk is told of elsewhere.
