"""Which GPUs nobody uses, by what the sampler has seen of them."""

from __future__ import annotations

from dtagent.telemetry.nvml import Nvml
from dtagent.telemetry.sampler import Sampler

WAIT_S = 8.0


def idle_gpus(nvml: Nvml, sampler: Sampler) -> list[int]:
    """Return the GPUs that no process holds memory of; one whose driver will not say counts as free."""
    # A daemon that is only just starting has not heard from the driver yet.
    wait_s = WAIT_S if nvml.facts(WAIT_S).gpus else 0.0
    sample = sampler.wait_for(lambda latest: bool(latest.gpus), wait_s)
    return [gpu.index for gpu in sample.gpus if not gpu.processes and not gpu.error] if sample else []
