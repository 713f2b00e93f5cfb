"""What the estimates know of hardware: types of GPUs, and the links between them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from math import gcd
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from dttui.planning.cost.correction import Correction, Learned
from dttui.planning.cost.efficiency import Efficiency, efficiency_of
from dttui.planning.gpu_names import gpu_type
from dttui.spec.text import Label

GIB = 2**30

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]

_FALLBACK: dict[str, tuple[Precision, ...]] = {
    "fp8": ("fp8", "bf16", "fp16", "fp32"),
    "bf16": ("bf16", "fp16", "fp32"),
    "fp16": ("fp16", "bf16", "fp32"),
    "tf32": ("tf32", "fp32"),
    "fp32": ("fp32",),
}


class GpuType(BaseModel):
    """One type of GPU, as its maker describes it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Label
    """Type and memory, `A100-80GB`."""
    type: Label
    """What a host or an inventory calls it, `A100`."""
    memory_gib: float = Field(gt=0)
    """What NVML reports."""
    fp32: float = Field(gt=0)
    """Peak, TFLOP/s."""
    tf32: float | None = Field(default=None, gt=0)
    """Peak, TFLOP/s; `None` where the GPU lacks it."""
    fp16: float | None = Field(default=None, gt=0)
    """Peak, TFLOP/s."""
    bf16: float | None = Field(default=None, gt=0)
    """Peak, TFLOP/s."""
    fp8: float | None = Field(default=None, gt=0)
    """Peak, TFLOP/s."""
    memory_bandwidth: float = Field(gt=0)
    """GB/s."""
    link: Literal["nvlink", "xgmi", "pcie"]
    """How GPUs of one node reach each other."""
    link_bandwidth: float = Field(gt=0)
    """GB/s, one direction of one GPU."""
    domain: int | None = Field(default=None, gt=0)
    """GPUs of several nodes that this link joins as if they were of one; `None` for those of a node alone."""
    network: float | None = Field(default=None, gt=0)
    """GB/s, one direction: what one GPU usually has of its node's network cards; `None` for `INTER_BANDWIDTH`."""
    power: float | None = Field(default=None, gt=0)
    """W."""
    device: Literal["gpu", "cpu"] = "gpu"
    """`cpu` for ranks that compute on the processor, as on simulated GPUs: the figures are of what one rank has of it.
    """
    source: str = "gpus.yaml"
    """Where the figures are from."""

    @property
    def memory_bytes(self) -> float:
        """Memory of one GPU."""
        return self.memory_gib * GIB

    def nearest(self, precision: Precision) -> Precision:
        """Return the precision itself, or the nearest that the GPU has where it lacks this one."""
        return next(name for name in _FALLBACK[precision] if getattr(self, name) is not None)

    def peak_flops(self, precision: Precision) -> float:
        """Return the peak in FLOP/s: of the nearest precision the GPU has, where it lacks this one."""
        peak: float = getattr(self, self.nearest(precision))
        return peak * 1e12


def usual_precision(gpus: Iterable[GpuType]) -> Precision:
    """Return what training is in where nobody says: bf16, or the best half precision that all types have."""
    types = list(gpus)
    if all(gpu.bf16 for gpu in types):
        return "bf16"
    return "fp16" if all(gpu.fp16 for gpu in types) else "fp32"


class GpuTable(BaseModel):
    """Types of GPUs, of which the first of a type is meant where only the type is named."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpus: tuple[GpuType, ...] = ()
    """The types."""

    def find(self, name: str, memory_bytes: float | None = None) -> GpuType | None:
        """Return the type that a name stands for: `A100`, `A100-80GB` or `NVIDIA A100-SXM4-80GB`.

        Args:
            name: as the driver, an inventory or a person says it.
            memory_bytes: memory of one, which tells variants of one type apart; the name's own figure is used without.
        """
        wanted = _plain(name)
        exact = next((gpu for gpu in self.gpus if _plain(gpu.name) == wanted), None)
        if exact is not None:
            return exact
        called = _plain(gpu_type(name))
        pcie = [gpu for gpu in self.gpus if _plain(gpu.type) == called + "pcie"] if "pcie" in wanted else []
        variants = pcie or [gpu for gpu in self.gpus if _plain(gpu.type) in (called, wanted)]
        if not variants:
            return None
        said = re.search(r"(\d+)\s*G", name, re.IGNORECASE)
        memory_gib = memory_bytes / GIB if memory_bytes else float(said[1]) if said else None
        if memory_gib is None:
            return variants[0]
        return min(variants, key=lambda gpu: abs(gpu.memory_gib - memory_gib))

    def extended(self, own: GpuTable) -> GpuTable:
        """Return this table with a person's own types before it; one of the same name takes another's place."""
        names = {_plain(gpu.name) for gpu in own.gpus}
        return GpuTable(gpus=(*own.gpus, *(gpu for gpu in self.gpus if _plain(gpu.name) not in names)))


@cache
def gpu_table() -> GpuTable:
    """Return the types that dttui knows."""
    text = files(__package__).joinpath("gpu_types.yaml").read_text(encoding="utf-8")
    return GpuTable.model_validate(yaml.safe_load(text))


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower().removeprefix("nvidia"))


STORAGE_BANDWIDTH = 2e9
"""Bytes a second that a node writes: for the 2,048 nodes of Llama 3 storage took 1 GB/s each lastingly and 3.4 at most
(Dubey et al. 2024, §3.3.1)."""


@dataclass(frozen=True, slots=True)
class Interconnect:
    """How data gets from one GPU to another."""

    bandwidth: float
    """Bytes a second, one direction, what one GPU has of it."""
    latency_s: float
    """What a message of no size costs."""

    def slowed(self, times: float) -> Interconnect:
        """Return a link over which all takes so many times as long."""
        return Interconnect(self.bandwidth / times, self.latency_s * times)


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs of one type on nodes that are alike, and what joins them."""

    gpu: GpuType
    gpus: int
    gpus_per_node: int
    intra: Interconnect
    """Between GPUs of one node."""
    inter: Interconnect
    """Between nodes: bandwidth is a GPU's share of its node's network cards."""
    sizes: tuple[int, ...] = ()
    """GPUs of each node, the most first, where they are unequal: then `gpus_per_node` is what goes into all of them."""
    measured: Efficiency | None = None
    """How much of peaks is reached here, where something of it was measured; `None` for what this type of GPU does."""
    storage: float = STORAGE_BANDWIDTH
    """Bytes a second of a checkpoint that each node writes."""
    learned: Learned | None = field(default=None, compare=False)
    """What jobs that are over have shown of hosts of this kind."""
    correction: Correction | None = field(default=None, compare=False)
    """What of it is in these numbers already."""
    uncorrected: Hardware | None = field(default=None, compare=False)
    """How it was before."""

    @property
    def efficiency(self) -> Efficiency:
        """How much of the peaks is reached."""
        return self.measured or efficiency_of(self.gpu.type)

    def corrected_for(self, precision: Precision) -> Hardware:
        """Return it as jobs in a precision have shown it to be; as data sheets have it where there were none."""
        base = self.uncorrected or self
        found = base.learned.of(precision) if base.learned is not None else None
        if found is None:
            return base
        corrected = replace(base, correction=found, uncorrected=base)
        if (time := found.time) is None:
            return corrected
        intra, inter = base.intra.slowed(time.traffic), base.inter.slowed(time.traffic)
        return replace(corrected, intra=intra, inter=inter, measured=base.efficiency.slowed(time.compute))

    def with_nodes(self, count: int) -> Hardware:
        """Return it with so many of its nodes, those with most GPUs."""
        if not self.sizes:
            return replace(self, gpus=min(self.gpus, count * self.gpus_per_node))
        sizes = self.sizes[:count]
        share = gcd(*sizes)
        inter = replace(self.inter, bandwidth=self.inter.bandwidth * self.gpus_per_node / share)
        return replace(self, gpus=sum(sizes), gpus_per_node=share, inter=inter, sizes=sizes)

    @property
    def linked(self) -> int:
        """GPUs, one after the other, that reach each other by the link inside nodes: a node's, or several nodes'."""
        return max(self.gpus_per_node, self.gpu.domain or 0)

    @property
    def nodes(self) -> int:
        """Nodes, the last of which may be part full."""
        return len(self.sizes) or -(-self.gpus // self.gpus_per_node)


INTRA_LATENCY_S = 2e-6
"""A hop of a ring over NVLink, as NCCL's own tuning table has it to one digit."""
PCIE_LATENCY_S = 5e-6
INTER_LATENCY_S = 1.5e-5
"""A hop of a ring over InfiniBand, from NCCL's tuning table."""
INTER_BANDWIDTH = {"nvlink": 25e9, "xgmi": 25e9, "pcie": 3.125e9}
"""Bytes a second a GPU, where its type says nothing: a 200 Gbit/s card each, as in a DGX A100; or one such card for the
node's eight GPUs."""


def default_links(gpu: GpuType) -> tuple[Interconnect, Interconnect]:
    """Return links inside a node and between nodes, as they usually are with this type of GPU."""
    latency = PCIE_LATENCY_S if gpu.link == "pcie" else INTRA_LATENCY_S
    inter = Interconnect(gpu.network * 1e9 if gpu.network else INTER_BANDWIDTH[gpu.link], INTER_LATENCY_S)
    return Interconnect(gpu.link_bandwidth * 1e9, latency), inter
