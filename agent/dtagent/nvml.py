"""NVIDIA GPUs through NVML: what they are, and one reading at a time. A failing driver raises nothing outwards."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import logging
import pwd
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dtagent.protocol.telemetry import GpuFacts, GpuProcess, GpuSample

_log = logging.getLogger(__name__)

LIBRARY = "libnvidia-ml.so.1"
MIB = 1024 * 1024

_GONE_CODES = frozenset({1, 9, 15, 16, 28})
"""nvmlReturn_t: uninitialised, driver not loaded, GPU lost, reset required, GPU not found. No metric will work."""

_DRIVER_NOTES = {
    4: "this user may not use the NVIDIA driver; ask for access to /dev/nvidia*",
    9: "the NVIDIA driver is installed but not loaded",
    12: f"no NVIDIA driver: {LIBRARY} is not installed",
    18: "the NVIDIA driver was updated while it was loaded; the host needs a reboot",
}
"""What a person is told when initialisation fails with one of these codes."""

_THROTTLE_REASONS = {
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability voltage",
}
"""nvmlClocksEventReason* of nvml.h. Bit 0, idle, is left out: a GPU without work is not held back."""


@dataclass(frozen=True)
class GpuInventory:
    """The GPUs that can be used, and a note on those that cannot."""

    gpus: list[GpuFacts] = field(default_factory=list)
    driver_version: str | None = None
    note: str | None = None


class _GpuGoneError(Exception):
    """The driver will answer nothing about this GPU."""


@dataclass
class _Device:
    index: int
    handle: Any = None
    facts: GpuFacts | None = None
    error: str | None = None
    """Why nothing can be read."""


class Nvml:
    """The driver, initialised once and its handles kept; tried again at a slow pace where it or a GPU is absent.

    A call into a broken driver can block for ever, so `sample` belongs on a thread of its own.

    Args:
        retry_s: how often an absent driver or a lost GPU is looked for again.
        clock: monotonic seconds.
    """

    def __init__(self, retry_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._retry_s = retry_s
        self._clock = clock
        self._retry_at = float("-inf")
        self._lock = threading.Lock()
        self._pynvml: Any = None
        self._failures: tuple[type[Exception], ...] = (_GpuGoneError,)
        self._devices: list[_Device] = []
        self._driver_version: str | None = None
        self._note: str | None = None

    def facts(self, wait_s: float = 5.0) -> GpuInventory:
        """Return the usable GPUs; asks the driver only when it has not answered before.

        Args:
            wait_s: how long to wait for a reading that is under way.
        """
        if not self._lock.acquire(timeout=wait_s):
            return GpuInventory(self._usable(), self._driver_version, "the NVIDIA driver does not answer")
        try:
            self._retry_if_due()
            unusable = [f"GPU {device.index}: {device.error}" for device in self._devices if device.error]
            return GpuInventory(self._usable(), self._driver_version, self._note or "; ".join(unusable) or None)
        finally:
            self._lock.release()

    def sample(self) -> list[GpuSample]:
        """Read every GPU; empty where there is no driver."""
        with self._lock:
            self._retry_if_due()
            return [self._sample(device) for device in self._devices]

    def close(self) -> None:
        """Let go of the driver, unless a call into it is stuck."""
        if self._lock.acquire(timeout=1.0):
            try:
                self._detach()
                self._devices = []
            finally:
                self._lock.release()

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
                self._open(device)
        else:
            self._attach()

    def _attach(self) -> None:
        self._detach()
        note = self._load() or self._initialise()
        if note is None:
            for device in self._devices:
                self._open(device)
            note = None if self._devices else "the NVIDIA driver sees no GPU"
        else:
            for device in self._devices:
                device.error = note
        if note != self._note:
            _log.info("GPUs: %s", note or f"{len(self._devices)}, driver {self._driver_version}")
        self._note = note

    def _initialise(self) -> str | None:
        try:
            self._pynvml.nvmlInit()
            count = self._pynvml.nvmlDeviceGetCount()
            version = self._first(self._pynvml.nvmlSystemGetDriverVersion)
        except self._failures as error:
            return _DRIVER_NOTES.get(_code(error), f"the NVIDIA driver fails: {_explain(error)}")
        self._driver_version = None if version is None else _text(version)
        self._devices = [_Device(index) for index in range(count)]
        return None

    def _detach(self) -> None:
        if self._pynvml is not None:
            for device in self._devices:
                device.handle = None
            with contextlib.suppress(_GpuGoneError):
                self._first(self._pynvml.nvmlShutdown)

    def _load(self) -> str | None:
        if self._pynvml is not None:
            return None
        try:
            ctypes.CDLL(LIBRARY)
        except OSError as error:
            absent = "No such file" in str(error)
            return _DRIVER_NOTES[12] if absent else f"the NVIDIA driver's library cannot be loaded: {error}"
        # Imported only where there is a driver: it costs 3 MiB, more than the rest of the sampler together.
        self._pynvml = importlib.import_module("pynvml")
        mismatch = getattr(self._pynvml, "NVMLLibraryMismatchError", self._pynvml.NVMLError)
        # AttributeError: the installed nvidia-ml-py lacks the function. UnicodeDecodeError: it decodes names strictly.
        self._failures = (self._pynvml.NVMLError, mismatch, AttributeError, UnicodeDecodeError, _GpuGoneError)
        return None

    def _open(self, device: _Device) -> None:
        nvml = self._pynvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(device.index)
            name = self._first(lambda: nvml.nvmlDeviceGetName(handle))
            uuid = self._first(lambda: nvml.nvmlDeviceGetUUID(handle))
            memory = self._memory(handle)
        except self._failures as error:
            device.handle, device.error = None, _explain(error)
            return
        device.handle, device.error = handle, None
        device.facts = GpuFacts(
            index=device.index,
            name="NVIDIA GPU" if name is None else _text(name),
            uuid=None if uuid is None else _text(uuid),
            memory_total_mib=None if memory is None else memory.total // MIB,
        )

    def _sample(self, device: _Device) -> GpuSample:
        if device.handle is None:
            return GpuSample(device.index, error=device.error)
        try:
            sample = self._read(device.index, device.handle)
            device.error = None
        except _GpuGoneError as error:
            sample = GpuSample(device.index, error=str(error))
            device.error = sample.error
        return sample

    def _read(self, index: int, handle: Any) -> GpuSample:
        nvml, first = self._pynvml, self._first
        memory = self._memory(handle)
        utilization = first(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        power_mw = first(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        limit_mw = first(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        reasons = first(
            lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
            lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        )
        processes = first(
            lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle),
            lambda: nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle),
        )
        sample = GpuSample(
            index=index,
            utilization_percent=None if utilization is None else utilization.gpu,
            memory_used_mib=None if memory is None else memory.used // MIB,
            memory_total_mib=None if memory is None else memory.total // MIB,
            temperature_c=first(
                lambda: nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU),
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            ),
            power_w=None if power_mw is None else power_mw / 1000,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            sm_clock_mhz=first(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            throttle_reasons=None if reasons is None else _throttle_reasons(reasons),
            ecc_uncorrected=first(
                lambda: nvml.nvmlDeviceGetTotalEccErrors(
                    handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                )
            ),
            processes=None if processes is None else [_process(process) for process in processes],
        )
        if sample == GpuSample(index):
            raise _GpuGoneError("the driver answers no question about this GPU")
        return sample

    def _memory(self, handle: Any) -> Any:
        nvml = self._pynvml
        # Version 2 counts what the driver keeps for itself apart, as nvidia-smi does; version 1 calls it used.
        return self._first(
            lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
            lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
        )

    def _first(self, *calls: Callable[[], Any]) -> Any:
        """Return what the first call gives that the driver and nvidia-ml-py both support, else `None`."""
        for call in calls:
            try:
                return call()
            except self._failures as error:
                if _code(error) in _GONE_CODES:
                    raise _GpuGoneError(_explain(error)) from error
        return None


def _code(error: Exception) -> int:
    return int(getattr(error, "value", 0))


def _explain(error: Exception) -> str:
    """Return the driver's own words, without its full stop."""
    return str(error).rstrip(".") or type(error).__name__


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _throttle_reasons(bits: int) -> list[str]:
    return [words for bit, words in _THROTTLE_REASONS.items() if bits & bit]


def _process(process: Any) -> GpuProcess:
    used = process.usedGpuMemory
    return GpuProcess(process.pid, _user_of(process.pid), None if used is None else used // MIB)


def _user_of(pid: int) -> str | None:
    # The owner of /proc/PID is root for a process that may not dump core; the Uid line always tells.
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            for line in stream:
                if line.startswith(b"Uid:"):
                    return _user_name(int(line.split()[1]))
    except (OSError, ValueError, IndexError):
        return None
    return None


@functools.lru_cache(maxsize=1024)
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
