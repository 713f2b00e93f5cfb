"""What is read of one GPU, by which NVML function and how often. Knows handles and nothing of how they are come by."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from dtagent.protocol import sentences
from dtagent.protocol.said import Said
from dtagent.protocol.telemetry import GpuProcess, GpuSample, MigInstance
from dtagent.system import processes, users
from dtagent.system.units import KIB, MIB
from dtagent.telemetry.rates import rounded
from dtagent.telemetry.xid import Seen

SLOW_S = 10.0
"""Between two readings of what seldom changes."""
PROCESSES_S = 3.0
"""Between two looks at who uses the GPU, which costs more than all the rest."""
UNSUPPORTED_S = 600.0
"""How long a function that this GPU lacks is not asked again; MIG mode, for one, changes which those are."""
MOST_NVLINKS = 36
"""Of one GPU: 18 on Hopper and Blackwell, and room for what comes."""

GONE_CODES = frozenset({1, 9, 15, 16, 28})
"""nvmlReturn_t: uninitialised, driver not loaded, GPU lost, reset required, GPU not found. No metric will work."""

_UNSUPPORTED_CODES = frozenset({0, 2, 3, 4, 13, 25})
"""Not in this nvidia-ml-py, invalid argument, not supported, no permission, not in this driver or in another form."""

_THROTTLE_REASONS = {
    0x002: sentences.APPLICATION_CLOCKS.code,
    0x004: sentences.POWER_CAP.code,
    0x008: sentences.HARDWARE_SLOWDOWN.code,
    0x010: sentences.SYNC_BOOST.code,
    0x020: sentences.SOFTWARE_THERMAL_SLOWDOWN.code,
    0x040: sentences.HARDWARE_THERMAL_SLOWDOWN.code,
    0x080: sentences.POWER_BRAKE.code,
    0x100: sentences.DISPLAY_CLOCKS.code,
    0x200: sentences.BOARD_LIMIT.code,
    0x400: sentences.RELIABILITY_VOLTAGE.code,
}
"""nvmlClocksEventReason* of nvml.h. Bit 0, idle, is left out: a GPU without work is not held back."""

_RECOVERY_ACTIONS = {
    0: "none",
    1: sentences.GPU_RESET.code,
    2: sentences.NODE_REBOOT.code,
    3: sentences.DRAIN_P2P.code,
    4: sentences.DRAIN_AND_RESET.code,
    5: sentences.RECOVER_IMEX_DOMAIN.code,
    6: sentences.BUS_RESET.code,
    7: sentences.SYSTEM_REBOOT.code,
}
"""nvmlDeviceGpuRecoveryAction_t of nvml.h."""

# Field ids of nvml.h; not every release of nvidia-ml-py has all of them.
_NVLINK_SENT_KIB, _NVLINK_RECEIVED_KIB = 138, 139
_PCIE_SENT_BYTES, _PCIE_RECEIVED_BYTES = 197, 198
_RECOVERY_ACTION = 230
_ALL_LINKS = 0xFFFFFFFF
_FIELD_VALUE = struct.Struct("24xiiQ")
"""nvmlFieldValue_t: ids and times, then the type and the code, in this order, and the value."""
_64_BIT = frozenset({2, 3, 4})
"""nvmlValueType_t whose counters do not wrap within a second."""

_COUNTERS = {
    "nvlink_transmit_bytes_per_s": (_NVLINK_SENT_KIB, _ALL_LINKS, KIB),
    "nvlink_receive_bytes_per_s": (_NVLINK_RECEIVED_KIB, _ALL_LINKS, KIB),
    "pcie_transmit_bytes_per_s": (_PCIE_SENT_BYTES, 0, 1),
    "pcie_receive_bytes_per_s": (_PCIE_RECEIVED_BYTES, 0, 1),
}
"""Sample field → field id of the counter it is the rate of, its scope and the bytes in its unit."""


class GpuGoneError(Exception):
    """The driver will answer nothing about this GPU, and why."""

    def __init__(self, said: Said) -> None:
        super().__init__(said)
        self.said = said


class _Question(NamedTuple):
    """One function of the driver, and the fields of the sample that its answer fills."""

    call: str
    fields: tuple[str, ...]
    ask: Callable[[Any, Any], tuple[Any, ...]]
    """From the pynvml module and a handle."""


def _memory(used: int, total: int) -> tuple[int, int]:
    return used // MIB, total // MIB


def _throttle(bits: int) -> tuple[list[str]]:
    return ([words for bit, words in _THROTTLE_REASONS.items() if bits & bit],)


def _memory_v2(nvml: Any, handle: Any) -> tuple[int, int]:
    # Version 2 counts what the driver keeps for itself apart, as nvidia-smi does; version 1 calls it used.
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return _memory(memory.used, memory.total)


def _memory_v1(nvml: Any, handle: Any) -> tuple[int, int]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return _memory(memory.used, memory.total)


def _utilization(nvml: Any, handle: Any) -> tuple[int, int]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu, rates.memory


def _remapped(nvml: Any, handle: Any) -> tuple[bool, bool]:
    _, _, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return bool(pending), bool(failed)


def _nvlinks(nvml: Any, handle: Any) -> tuple[int, int]:
    active = 0
    for link in range(MOST_NVLINKS):
        try:
            active += bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError as error:
            if link == 0 or error.value in GONE_CODES:
                raise
            return active, link
    return active, MOST_NVLINKS


def _recovery_action(nvml: Any, handle: Any) -> tuple[str | None]:
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [_RECOVERY_ACTION])
    if value.nvmlReturn != 0:
        raise nvml.NVMLError(value.nvmlReturn)
    action = value.value.uiVal
    return (_RECOVERY_ACTIONS.get(action) or sentences.OTHER_ACTION(number=action),)


def _mig(nvml: Any, handle: Any) -> tuple[bool, list[MigInstance] | None]:
    current, _ = nvml.nvmlDeviceGetMigMode(handle)
    if not current:
        return False, None
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            uuid = text(nvml.nvmlDeviceGetUUID(instance))
        except nvml.NVMLError as error:
            if error.value in GONE_CODES:
                raise
            continue
        name = used = total = None
        try:
            name = text(nvml.nvmlDeviceGetName(instance))
            used, total = _memory_v1(nvml, instance)
        except nvml.NVMLError as error:
            if error.value in GONE_CODES:
                raise
        found.append(MigInstance(uuid, name, used, total))
    return True, found


# Of two with the same fields the second is asked where the first is refused: an older driver has only that one.
_FAST = (
    _Question("nvmlDeviceGetUtilizationRates", ("utilization_percent", "memory_utilization_percent"), _utilization),
    _Question("nvmlDeviceGetMemoryInfo_v2", ("memory_used_mib", "memory_total_mib"), _memory_v2),
    _Question("nvmlDeviceGetMemoryInfo", ("memory_used_mib", "memory_total_mib"), _memory_v1),
    _Question("nvmlDeviceGetTemperatureV", ("temperature_c",), lambda n, h: (n.nvmlDeviceGetTemperatureV(h, 0),)),
    _Question("nvmlDeviceGetTemperature", ("temperature_c",), lambda n, h: (n.nvmlDeviceGetTemperature(h, 0),)),
    _Question("nvmlDeviceGetPowerUsage", ("power_w",), lambda n, h: (round(n.nvmlDeviceGetPowerUsage(h) / 1000, 1),)),
    _Question("nvmlDeviceGetClockInfo SM", ("sm_clock_mhz",), lambda n, h: (n.nvmlDeviceGetClockInfo(h, 1),)),
    _Question(
        "nvmlDeviceGetCurrentClocksEventReasons",
        ("throttle_reasons",),
        lambda n, h: _throttle(n.nvmlDeviceGetCurrentClocksEventReasons(h)),
    ),
    _Question(
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        ("throttle_reasons",),
        lambda n, h: _throttle(n.nvmlDeviceGetCurrentClocksThrottleReasons(h)),
    ),
)

_SLOW = (
    _Question("nvmlDeviceGetClockInfo memory", ("memory_clock_mhz",), lambda n, h: (n.nvmlDeviceGetClockInfo(h, 2),)),
    _Question(
        "nvmlDeviceGetEnforcedPowerLimit",
        ("power_limit_w",),
        lambda n, h: (n.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,),
    ),
    _Question(
        "nvmlDeviceGetTotalEccErrors corrected",
        ("ecc_corrected",),
        lambda n, h: (n.nvmlDeviceGetTotalEccErrors(h, 0, 0),),
    ),
    _Question(
        "nvmlDeviceGetTotalEccErrors uncorrected",
        ("ecc_uncorrected",),
        lambda n, h: (n.nvmlDeviceGetTotalEccErrors(h, 1, 0),),
    ),
    _Question("nvmlDeviceGetRemappedRows", ("memory_repair_pending", "memory_repair_failed"), _remapped),
    # GPUs before Ampere retire pages.
    _Question(
        "nvmlDeviceGetRetiredPagesPendingStatus",
        ("memory_repair_pending",),
        lambda n, h: (bool(n.nvmlDeviceGetRetiredPagesPendingStatus(h)),),
    ),
    _Question(
        "nvmlDeviceGetCurrPcieLinkGeneration",
        ("pcie_generation",),
        lambda n, h: (n.nvmlDeviceGetCurrPcieLinkGeneration(h),),
    ),
    _Question("nvmlDeviceGetCurrPcieLinkWidth", ("pcie_lanes",), lambda n, h: (n.nvmlDeviceGetCurrPcieLinkWidth(h),)),
    _Question("nvmlDeviceGetNvLinkState", ("nvlinks_active", "nvlinks"), _nvlinks),
    _Question("nvmlDeviceGetFieldValues", ("recovery_action",), _recovery_action),
    _Question("nvmlDeviceGetMigMode", ("mig_enabled", "mig_instances"), _mig),
)

_PROCESSES = (
    _Question(
        "nvmlDeviceGetComputeRunningProcesses_v3",
        ("processes",),
        lambda n, h: (n.nvmlDeviceGetComputeRunningProcesses(h),),
    ),
    _Question(
        "nvmlDeviceGetComputeRunningProcesses_v2",
        ("processes",),
        lambda n, h: (n.nvmlDeviceGetComputeRunningProcesses_v2(h),),
    ),
)

# Where there are no byte counters: this takes the driver 20 ms a direction, so not every second.
_PCIE = (
    _Question(
        "nvmlDeviceGetPcieThroughput",
        ("pcie_transmit_bytes_per_s", "pcie_receive_bytes_per_s"),
        lambda n, h: (n.nvmlDeviceGetPcieThroughput(h, 0) * KIB, n.nvmlDeviceGetPcieThroughput(h, 1) * KIB),
    ),
)


class GpuMetrics:
    """One GPU's readings; remembers what it lacks, what seldom changes and the counters that rates follow from.

    Args:
        nvml: the pynvml module, initialised.
        handle: the GPU's.
        failures: what pynvml raises where a function fails or is absent.
    """

    def __init__(self, nvml: Any, handle: Any, failures: tuple[type[Exception], ...]) -> None:
        self._nvml = nvml
        self._handle = handle
        self._failures = failures
        self._unsupported: set[str] = set()
        self._unsupported_until = float("-inf")
        self._slow: dict[str, Any] = {}
        self._slow_until = float("-inf")
        self._counters = dict(_COUNTERS)
        self._counted: tuple[float, dict[str, int]] | None = None
        self._users: dict[int, str | None] = {}
        self._processes: list[GpuProcess] | None = None
        self._processes_until = float("-inf")
        self.call = ""
        """The function that is being asked, or was last."""

    def read(self, index: int, now: float, xids: Seen | None = None) -> GpuSample:
        """Return one reading at monotonic time `now`, with the errors that came meanwhile. May block.

        Raises:
            GpuGoneError: the driver answers nothing about this GPU.
        """
        if now >= self._unsupported_until:
            self._unsupported.clear()
            self._counters = dict(_COUNTERS)
            self._unsupported_until = now + UNSUPPORTED_S
        values: dict[str, Any] = {}
        self._ask(_FAST, values)
        if not values:
            raise GpuGoneError(sentences.GPU_ANSWERS_NOTHING())
        self._rates(values, now)
        if now >= self._slow_until:
            self._slow_until = now + SLOW_S
            self._slow = {}
            self._users = {}
            self._ask(_SLOW, self._slow)
            if "pcie_transmit_bytes_per_s" not in self._counters:
                self._ask(_PCIE, self._slow)
        values.update(self._slow)
        if now >= self._processes_until:
            self._processes_until = now + PROCESSES_S
            found: dict[str, Any] = {}
            self._ask(_PROCESSES, found)
            self._processes = [self._process(each) for each in found["processes"]] if found else None
        values["processes"] = self._processes
        if xids is not None:
            values["xid_count"], values["xid_last"] = xids.count, xids.last
        return GpuSample(index, **values)

    def _ask(self, questions: tuple[_Question, ...], values: dict[str, Any]) -> None:
        for question in questions:
            if question.fields[0] in values or question.call in self._unsupported:
                continue
            self.call = question.call
            try:
                answer = question.ask(self._nvml, self._handle)
            except self._failures as error:
                code = code_of(error)
                if code in GONE_CODES:
                    raise GpuGoneError(Said(explain(error))) from error
                if code in _UNSUPPORTED_CODES:
                    self._unsupported.add(question.call)
            else:
                values.update(zip(question.fields, answer, strict=True))

    def _rates(self, values: dict[str, Any], now: float) -> None:
        if not self._counters:
            return
        self.call = "nvmlDeviceGetFieldValues"
        names = list(self._counters)
        try:
            fields = [self._counters[name][:2] for name in names]
            counted = self._nvml.nvmlDeviceGetFieldValues(self._handle, fields)
        except self._failures as error:
            if code_of(error) in GONE_CODES:
                raise GpuGoneError(Said(explain(error))) from error
            if code_of(error) in _UNSUPPORTED_CODES:
                self._counters = {}
            return
        current = {}
        # Not by the structure's attributes: pynvml wraps each of them, and this runs for every GPU every second.
        for name, (kind, code, count) in zip(names, _FIELD_VALUE.iter_unpack(bytes(counted)), strict=True):
            if code == 0 and kind in _64_BIT:
                current[name] = count * self._counters[name][2]
            elif code in _UNSUPPORTED_CODES:  # 0, success, is among them: a counter too narrow is none.
                del self._counters[name]
        before, self._counted = self._counted, (now, current)
        if before is not None and now > before[0]:
            for name, count in current.items():
                # Smaller than before: the counter was set back, so this interval says nothing.
                if count >= before[1].get(name, count + 1):
                    values[name] = rounded((count - before[1][name]) / (now - before[0]))

    def _process(self, process: Any) -> GpuProcess:
        pid = process.pid
        if pid not in self._users:
            uid = processes.owner_of(pid)
            self._users[pid] = users.name_of(uid) if uid is not None else None
        used = process.usedGpuMemory
        return GpuProcess(pid, self._users[pid], None if used is None else used // MIB)


def code_of(error: Exception) -> int:
    """Return the driver's code of an error, 0 where it is not the driver's."""
    return int(getattr(error, "value", 0))


def explain(error: Exception) -> str:
    """Return the driver's own words, without its full stop."""
    return str(error).rstrip(".") or type(error).__name__


def text(value: str | bytes) -> str:
    """Return a name of the driver's; releases of pynvml before 11.515 hand out bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
