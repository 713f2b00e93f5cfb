"""A network port that reaches memory by itself, as facts tell it and as plans choose it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RdmaPort:
    """A port of an InfiniBand or RoCE device."""

    device: str
    """`mlx5_0`, as NCCL_IB_HCA names it."""
    port: int
    state: str
    """`ACTIVE`, `DOWN`, `INIT`."""
    link_layer: str | None = None
    """`InfiniBand` or `Ethernet`, which is RoCE."""
    rate_gbit_s: float | None = None
    interface: str | None = None
    """The network interface on the same device."""
    gid: str | None = None
    """The first; InfiniBand's subnet and port in one."""
    numa_node: int | None = None
