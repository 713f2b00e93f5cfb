"""The NVIDIA driver: initialised once, its GPUs opened and kept. A failing driver raises nothing outwards."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from dtagent.protocol import sentences
from dtagent.protocol.facts import GpuFacts
from dtagent.protocol.said import Said
from dtagent.protocol.telemetry import GpuSample
from dtagent.system.units import MIB
from dtagent.telemetry import gpu_topology
from dtagent.telemetry.gpu_metrics import GONE_CODES, GpuGoneError, GpuMetrics, code_of, explain, text
from dtagent.telemetry.xid import XidListener

_log = logging.getLogger(__name__)

LIBRARY = "libnvidia-ml.so.1"
SILENT_S = 3.0
"""A call that takes so long hangs."""

DRIVER_NOTES = {
    4: sentences.DRIVER_FORBIDDEN(),
    9: sentences.DRIVER_NOT_LOADED(),
    12: sentences.DRIVER_MISSING(library=LIBRARY),
    18: sentences.DRIVER_UPDATED(),
}
"""What a person is told when initialisation fails with one of these codes."""


@dataclass(frozen=True)
class GpuInventory:
    """The GPUs that can be used, and a note on those that cannot."""

    gpus: list[GpuFacts] = field(default_factory=list)
    driver_version: str | None = None
    note: Said | None = None
    cuda_version: str | None = None
    """The newest that the driver runs, `12.8`."""


@dataclass
class _Device:
    index: int
    handle: Any = None
    metrics: GpuMetrics | None = None
    facts: GpuFacts | None = None
    error: Said | None = None
    """Why nothing can be read."""
    asked_at: float | None = None
    """When the reading under way began."""

    def hang(self, now: float) -> Said | None:
        """Return which call has not returned, once that is clear."""
        if self.asked_at is None or self.metrics is None or now - self.asked_at < SILENT_S:
            return None
        return silence(now - self.asked_at, self.metrics.call)


def silence(seconds: float, call: str = "") -> Said:
    """Return what to say of a GPU whose reading does not end."""
    whole = f"{seconds:.0f}"
    return sentences.GPU_HANGS(seconds=whole, call=call) if call else sentences.GPU_SILENT(seconds=whole)


class Nvml:
    """The driver; tried again at a slow pace where it or a GPU is absent, but never while one of its GPUs works.

    A call into a broken driver can block for ever, so `refresh` and `read` belong on threads that nobody waits for.
    Different GPUs may be read at the same time.

    Args:
        retry_s: how often an absent driver or a lost GPU is looked for again.
        clock: monotonic seconds.
    """

    def __init__(self, retry_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._retry_s = retry_s
        self._clock = clock
        self._retry_at = float("-inf")
        self._lock = threading.Lock()
        """Held over calls that find the driver and its GPUs, not over readings."""
        self._pynvml: Any = None
        self._failures: tuple[type[Exception], ...] = (GpuGoneError,)
        self._devices: list[_Device] = []
        self._driver_version: str | None = None
        self._cuda_version: str | None = None
        self._note: Said | None = None
        self._xids: XidListener | None = None

    def facts(self, wait_s: float = 5.0) -> GpuInventory:
        """Return the usable GPUs; asks the driver only when it has not answered before.

        Args:
            wait_s: how long to wait for one who is asking it.
        """
        if not self._lock.acquire(timeout=wait_s):
            silent = sentences.DRIVER_SILENT()
            return GpuInventory(self._usable(), self._driver_version, silent, self._cuda_version)
        try:
            self._retry_if_due()
        finally:
            self._lock.release()
        now = self._clock()
        problems = [(device.index, device.error or device.hang(now)) for device in self._devices]
        unusable = [sentences.GPU_UNUSABLE(index=index, error=problem) for index, problem in problems if problem]
        note = self._note or (sentences.GPUS_UNUSABLE(gpus=unusable) if unusable else None)
        return GpuInventory(self._usable(), self._driver_version, note, self._cuda_version)

    def uuids(self) -> dict[int, str]:
        """Return number → UUID of the GPUs, of such too as cannot be used now."""
        self.facts()
        known = [device.facts for device in self._devices if device.facts is not None]
        return {gpu.index: gpu.uuid for gpu in known if gpu.uuid}

    def refresh(self) -> int:
        """Look for what is due to be looked for; return how many GPUs there are. May block."""
        with self._lock:
            self._retry_if_due()
            if self._xids is not None:
                self._xids.poll()
            return len(self._devices)

    def read(self, index: int) -> GpuSample:
        """Read a GPU. May block."""
        device = self._devices[index]
        if device.metrics is None:
            return GpuSample(index, error=device.error)
        device.asked_at = self._clock()
        xids = self._xids.seen(index) if self._xids is not None else None
        try:
            sample = device.metrics.read(index, device.asked_at, xids)
            device.error = None
        except GpuGoneError as error:
            device.error = error.said
            # The error that took it away is worth to know just then.
            count, last = (xids.count, xids.last) if xids is not None else (None, None)
            sample = GpuSample(index, error=device.error, xid_count=count, xid_last=last)
        finally:
            device.asked_at = None
        return sample

    def asking(self, index: int) -> str:
        """Return the name of the function a GPU is being asked by."""
        metrics = self._devices[index].metrics if index < len(self._devices) else None
        return metrics.call if metrics is not None else ""

    def _is_busy(self) -> bool:
        return any(device.asked_at is not None for device in self._devices)

    def _usable(self) -> list[GpuFacts]:
        return [device.facts for device in self._devices if device.facts and not device.error]

    def _retry_if_due(self) -> None:
        broken = [device for device in self._devices if device.error]
        if self._clock() < self._retry_at or (self._devices and not broken):
            return
        self._retry_at = self._clock() + self._retry_s
        if len(broken) < len(self._devices):
            # Initialising anew could number the healthy GPUs differently, so only the lost ones are opened again.
            for device in broken:
                if device.asked_at is None:
                    self._open(device)
        elif not self._is_busy():
            self._attach()

    def _attach(self) -> None:
        self._detach()
        note = self._load() or self._initialise()
        if note is None:
            for device in self._devices:
                self._open(device)
            self._place()
            note = None if self._devices else sentences.DRIVER_SEES_NONE()
        else:
            for device in self._devices:
                device.error = note
        if note != self._note:
            _log.info("GPUs: %s", note or f"{len(self._devices)}, driver {self._driver_version}")
        self._note = note

    def _initialise(self) -> Said | None:
        try:
            self._pynvml.nvmlInit()
            count = self._pynvml.nvmlDeviceGetCount()
        except self._failures as error:
            return DRIVER_NOTES.get(code_of(error)) or sentences.DRIVER_FAILS(error=explain(error))
        version = None
        with contextlib.suppress(*self._failures):
            version = text(self._pynvml.nvmlSystemGetDriverVersion())
        self._driver_version = version
        self._cuda_version = gpu_topology.cuda_version(self._pynvml, self._failures)
        self._xids = XidListener(self._pynvml, self._failures)
        self._devices = [_Device(index) for index in range(count)]
        return None

    def _detach(self) -> None:
        if self._xids is not None:
            self._xids.close()
            self._xids = None
        for device in self._devices:
            device.handle = device.metrics = None
        if self._pynvml is not None:
            with contextlib.suppress(*self._failures):
                self._pynvml.nvmlShutdown()

    def _load(self) -> Said | None:
        if self._pynvml is not None:
            return None
        try:
            ctypes.CDLL(LIBRARY)
        except OSError as error:
            absent = "No such file" in str(error)
            return DRIVER_NOTES[12] if absent else sentences.DRIVER_NOT_LOADABLE(error=str(error))
        # Imported only where there is a driver: it costs 2 MiB, more than the rest of the sampler together.
        self._pynvml = importlib.import_module("pynvml")
        mismatch = getattr(self._pynvml, "NVMLLibraryMismatchError", self._pynvml.NVMLError)
        # AttributeError: the installed nvidia-ml-py lacks the function. UnicodeDecodeError: it decodes names strictly.
        self._failures = (self._pynvml.NVMLError, mismatch, AttributeError, UnicodeDecodeError, GpuGoneError)
        return None

    def _open(self, device: _Device) -> None:
        nvml = self._pynvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(device.index)
            metrics = GpuMetrics(nvml, handle, self._failures)
            name = self._asked(nvml.nvmlDeviceGetName, handle)
            uuid = self._asked(nvml.nvmlDeviceGetUUID, handle)
            total = self._total_mib(handle)
        except self._failures as error:
            device.handle, device.metrics = None, None
            device.error = error.said if isinstance(error, GpuGoneError) else Said(explain(error))
            return
        device.handle, device.metrics, device.error = handle, metrics, None
        device.facts = GpuFacts(index=device.index, name=name or "NVIDIA GPU", uuid=uuid, memory_total_mib=total)
        if self._xids is not None:
            self._xids.listen(device.index, handle)

    def _place(self) -> None:
        """Add to the facts of each GPU where it is and how it reaches the others."""
        handles = {device.index: device.handle for device in self._devices if device.handle is not None}
        for index, place in gpu_topology.places(self._pynvml, handles, self._failures).items():
            facts = self._devices[index].facts
            if facts is not None:
                self._devices[index].facts = replace(facts, **place)

    def _total_mib(self, handle: Any) -> int | None:
        memory = self._asked(self._pynvml.nvmlDeviceGetMemoryInfo, handle)
        return None if memory is None else memory.total // MIB

    def _asked(self, ask: Callable[[Any], Any], handle: Any) -> Any:
        """Return an answer, names as text; `None` where this one is refused."""
        try:
            answer = ask(handle)
        except self._failures as error:
            if code_of(error) in GONE_CODES:
                raise GpuGoneError(Said(explain(error))) from error
            return None
        return text(answer) if isinstance(answer, (bytes, str)) else answer
