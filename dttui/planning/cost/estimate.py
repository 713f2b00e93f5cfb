"""An estimate as people and programs read it: memory and time as ranges, with parts, inputs and what is left out."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from dttui.planning.cost.assumptions import Input, Inputs
from dttui.planning.cost.failures import FailureCost, failure_cost
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.memory import MemoryEstimate, leaves_out, memory_per_gpu
from dttui.planning.cost.shape import ModelShape
from dttui.planning.cost.step_time import UNCERTAINTY, TimeEstimate, step_time

GB = 1e9


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class MemoryRange(_Value):
    """Memory of the GPU that needs most, in GB (10⁹ bytes)."""

    low: float
    """Sum of the parts."""
    high: float
    """With the largest usual context and a fragmented allocator; "fits" means this."""
    parts: dict[str, float]
    """What it is made of."""
    excludes: list[str]
    """What is not counted."""


class TimeRange(_Value):
    """Seconds of one step."""

    value: float
    """Sum of the parts."""
    low: float
    """If it goes better than published runs usually do."""
    high: float
    """If worse."""
    parts: dict[str, float]
    """What it is made of."""


class Scaling(_Value):
    """The same global batch on so many nodes, the degrees within a replica kept."""

    nodes: int
    """Nodes."""
    speed_up: float
    """Over the fewest nodes that hold one replica."""
    efficiency: float
    """Speed-up over how many times as many nodes."""


class Estimate(_Value):
    """What a job costs."""

    memory_per_gpu_gb: MemoryRange
    """Memory."""
    gpu_memory_gb: float
    """What one GPU has."""
    fits: bool
    """Whether the upper end is within that."""
    host_memory_per_gpu_gb: float
    """What offloading puts into the host's memory."""
    step_time_s: TimeRange
    """Time."""
    tokens_per_s: float
    """All GPUs together."""
    samples_per_s: float
    """Sequences, all GPUs together."""
    tflops_per_gpu: float
    """Recomputed operations count."""
    mfu: float
    """Model FLOP/s utilisation, 0 to 1; recomputed operations do not count."""
    communication_share: float
    """Of the step, 0 to 1: collectives, transfers."""
    scaling: list[Scaling] = Field(default_factory=list)
    """Speed-up by nodes."""
    failures: FailureCost
    """What failures cost, and how often to write a checkpoint."""
    inputs: dict[str, Input]
    """Every number that went in."""


def estimate(shape: ModelShape, layout: Layout, hardware: Hardware, inputs: Inputs) -> Estimate:
    """Return what a layout costs on some hardware."""
    return describe(shape, layout, hardware, inputs, step_time(shape, layout, hardware), memory_per_gpu(shape, layout))


def describe(
    shape: ModelShape,
    layout: Layout,
    hardware: Hardware,
    inputs: Inputs,
    time: TimeEstimate,
    memory: MemoryEstimate,
) -> Estimate:
    """Return an estimate of what is computed already."""
    talking = sum(time.parts[name] for name in ("tensor_parallel", "pipeline_transfer", "data_parallel"))
    return Estimate(
        memory_per_gpu_gb=MemoryRange(
            low=memory.low / GB,
            high=memory.high / GB,
            parts={name: size / GB for name, size in memory.parts.items()},
            excludes=leaves_out(),
        ),
        gpu_memory_gb=hardware.gpu.memory_bytes / GB,
        fits=memory.high <= hardware.gpu.memory_bytes,
        host_memory_per_gpu_gb=memory.host_bytes / GB,
        step_time_s=TimeRange(
            value=time.value, low=time.value * (1 - UNCERTAINTY), high=time.value * (1 + UNCERTAINTY), parts=time.parts
        ),
        tokens_per_s=time.tokens / time.value,
        samples_per_s=layout.global_batch / time.value,
        tflops_per_gpu=time.tflops_per_gpu,
        mfu=time.mfu,
        communication_share=talking / time.value,
        scaling=scaling(shape, layout, hardware),
        failures=failure_cost(shape.parameters, hardware.gpus),
        inputs=inputs,
    )


def scaling(shape: ModelShape, layout: Layout, hardware: Hardware) -> list[Scaling]:
    """Return speed-ups from the fewest nodes that hold one replica, doubling, up to those there are.

    Amdahl's serial part is in it: bubble, latencies and the optimizer's step do not get shorter with more replicas.
    """
    replica = layout.tensor * layout.pipeline
    fewest = max(replica, hardware.gpus_per_node)
    counts: list[tuple[int, float]] = []
    gpus = fewest
    while gpus <= hardware.gpus:
        data, rest = divmod(gpus, replica)
        if not rest and layout.global_batch % (data * layout.micro_batch) == 0:
            time = step_time(shape, replace(layout, data=data), replace(hardware, gpus=gpus))
            counts.append((gpus, time.value))
        gpus = hardware.gpus if gpus < hardware.gpus < gpus * 2 else gpus * 2
    if not counts:
        return []
    first, base_s = counts[0]
    return [
        Scaling(
            nodes=-(-gpus // hardware.gpus_per_node),
            speed_up=base_s / seconds,
            efficiency=base_s / seconds / (gpus / first),
        )
        for gpus, seconds in counts
    ]


def amdahl(parallel_share: float, units: int) -> float:
    """Return 1 / ((1−P) + P/N) (seed 002 §3.1)."""
    return 1 / ((1 - parallel_share) + parallel_share / units)
