"""What an attempt was estimated to cost, beside what was measured of it while it ran. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dttui.jobs.figures import COMMUNICATION, GPU_MEMORY, SAMPLES, STEP_TIME, TOKENS, Figure
from dttui.jobs.training_speed import TrainingSpeed
from dttui.planning.models import BoundPlan

GB_PER_MIB = (1 << 20) / 1e9


def compare_with_estimate(
    bound: BoundPlan,
    speed: TrainingSpeed,
    gpu_peaks_mib: Mapping[str, Mapping[int, int]],
    process_peaks_mib: Iterable[int] = (),
) -> dict[str, Figure]:
    """Return the figures of an attempt, each with what is known of it.

    Args:
        bound: what ran.
        speed: of its training.
        gpu_peaks_mib: node → GPU → the most memory that was seen in use there, of whoever used it.
        process_peaks_mib: the most that each process of the job has held in the memory of its host, which is what
            counts where ranks compute on a CPU that has an estimate.
    """
    basis = bound.plan.cost_basis
    is_on_cpu = basis is not None and basis.device == "cpu"
    peak_mib = max(process_peaks_mib if is_on_cpu else _of_job(bound, gpu_peaks_mib), default=None)
    estimate = bound.plan.estimate
    found = {
        STEP_TIME: Figure(measured=speed.step_time_s),
        TOKENS: Figure(measured=speed.of(TOKENS)),
        SAMPLES: Figure(measured=speed.of(SAMPLES)),
        GPU_MEMORY: Figure(measured=None if peak_mib is None else peak_mib * GB_PER_MIB),
    }
    if (share := speed.of(COMMUNICATION)) is not None:
        found[COMMUNICATION] = Figure(measured=share)
    if estimate is None:
        return found
    time, memory = estimate.step_time_s, estimate.memory_per_gpu_gb
    estimated = {
        STEP_TIME: Figure(time.value, time.low, time.high),
        TOKENS: Figure(estimate.tokens_per_s),
        SAMPLES: Figure(estimate.samples_per_s),
        GPU_MEMORY: Figure(memory.low, memory.low, memory.high),
        COMMUNICATION: Figure(100 * estimate.communication_share),
    }
    return {
        name: Figure(figure.estimated, figure.low, figure.high, found[name].measured)
        for name, figure in estimated.items()
        if name in found
    }


def _of_job(bound: BoundPlan, gpu_peaks_mib: Mapping[str, Mapping[int, int]]) -> Iterable[int]:
    for name, binding in bound.bindings.nodes.items():
        peaks = gpu_peaks_mib.get(name, {})
        yield from (peaks[gpu] for gpu in binding.gpu_ids if gpu in peaks)
