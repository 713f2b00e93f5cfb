"""What tests let a child process do with the stub: `python -m tests.agent.nvml_stub.child SCENE` prints JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtagent.facts import collection
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.telemetry import GpuSample, HostSample, TelemetryRequest
from dtagent.telemetry import host, xid
from dtagent.telemetry.nvml import Nvml
from dtagent.telemetry.sampler import Sampler

from tests.agent.nvml_stub import change
from tests.agent.sampling import follow


class Clock:
    """Seconds that pass when a scene says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def read_all(nvml: Nvml) -> list[GpuSample]:
    return [nvml.read(index) for index in range(nvml.refresh())]


def read() -> Any:
    """Facts and one sample."""
    nvml = Nvml()
    samples = read_all(nvml)
    inventory = nvml.facts()
    return {"samples": samples, "facts": inventory}


def each_call_failing(code: str) -> Any:
    """For each function of the driver: the sample of GPU 0 while that one fails."""
    functions = (
        "MemoryInfo_v2 UtilizationRates TemperatureV PowerUsage EnforcedPowerLimit ClockInfo RemappedRows "
        "CurrentClocksEventReasons TotalEccErrors ComputeRunningProcesses_v3 PcieThroughput CurrPcieLinkWidth MigMode"
    )
    samples = {}
    for name in functions.split():
        # The older twin is refused as well, or it would answer in its stead.
        twins = {
            "TemperatureV": "Temperature",
            "CurrentClocksEventReasons": "CurrentClocksThrottleReasons",
            "RemappedRows": "RetiredPagesPendingStatus",
        }
        names = {name, twins.get(name, name), name.replace("_v3", "_v2"), name.replace("_v2", "")}
        settings = {f"fail.nvmlDeviceGet{each}": code for each in names}
        change(os.environ, settings)
        samples[name] = read_all(Nvml())[0]
        change(os.environ, dict.fromkeys(settings))
    return samples


def changing(retry_s: str, *steps: str) -> Any:
    """A sample and the facts at first and after each step `SECONDS:KEY=VALUE`, time and settings changed by it."""
    clock = Clock()
    nvml = Nvml(float(retry_s), clock)
    seen = []
    for step in ("0:", *steps):
        at, _, setting = step.partition(":")
        clock.now = float(at)
        if setting:
            key, _, value = setting.partition("=")
            change(os.environ, {key: value or None})
        seen.append({"samples": read_all(nvml), "facts": nvml.facts(), "numbers": [*nvml.uuids()]})
    return seen


def driver_installed_later(library: str) -> Any:
    """Facts before the library is there, and after."""
    clock = Clock()
    nvml = Nvml(60.0, clock)
    before = nvml.facts()
    (Path(os.environ["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1").symlink_to(library)
    too_early = nvml.facts()
    clock.now = 60.0
    return [before, too_early, nvml.facts()]


def names_as_bytes() -> Any:
    """Facts by a pynvml that hands out bytes, as releases before 11.515 do."""
    import pynvml

    def as_bytes(original: Callable[..., str]) -> Callable[..., bytes]:
        return lambda *arguments: original(*arguments).encode()

    for name in ("nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlSystemGetDriverVersion"):
        setattr(pynvml, name, as_bytes(getattr(pynvml, name)))
    return read()


def host_facts(wait_s: str) -> Any:
    """All facts, and how long they took, while the driver may hang."""
    began = time.monotonic()
    gathered = collection.collect([], Nvml(), float(wait_s))
    return {"facts": gathered, "took_s": time.monotonic() - began}


def facts_during_a_hang() -> Any:
    """The GPU facts while a sample is stuck in the driver."""
    nvml = Nvml()
    read_all(nvml)
    change(os.environ, {"hang": "nvmlDeviceGetPowerUsage"})
    threading.Thread(target=read_all, args=(nvml,), daemon=True).start()
    deadline = time.monotonic() + 20
    # Where the reading was held up before, it is another function for a moment.
    while "PowerUsage" not in str((inventory := nvml.facts(wait_s=0.05)).note) and time.monotonic() < deadline:
        time.sleep(0.05)
    return inventory


def reading_kernel_log(path: str) -> Any:
    """A sample where the kernel's log is that file."""
    xid.KERNEL_LOG = path
    nvml = Nvml()
    read_all(nvml)
    return read_all(nvml)


async def sampling_through_a_hang() -> Any:
    """Samples before the driver hangs, while it does, and after."""
    sampler = Sampler(lambda: host.HostReader(Path("/")), Nvml(), lambda: {}, interval_s=0.05)
    sampler.start()

    async def until(wanted: Callable[[HostSample], bool]) -> HostSample:
        deadline = time.monotonic() + 20
        after = None
        while time.monotonic() < deadline:
            reply = await follow(sampler, TelemetryRequest(after_seq=after))
            for sample in reply.samples:
                after = sample.seq
                if wanted(sample):
                    return sample
        raise TimeoutError

    before = await until(lambda sample: len(sample.gpus) == 2 and not any(gpu.error for gpu in sample.gpus))
    change(os.environ, {"hang": "nvmlDeviceGetUtilizationRates"})
    during = await until(lambda sample: all(gpu.error for gpu in sample.gpus))
    later = await until(lambda sample: sample.seq >= during.seq + 5)
    change(os.environ, {"hang": None})
    after = await until(lambda sample: not any(gpu.error for gpu in sample.gpus))
    sampler.stop()
    return [before, during, later, after]


def main() -> None:
    """Play the scene named on the command line."""
    scene = globals()[sys.argv[1]]
    result = scene(*sys.argv[2:])
    if asyncio.iscoroutine(result):
        result = asyncio.run(result)
    json.dump(to_wire(result), sys.stdout)


if __name__ == "__main__":
    main()
