"""Time of kernels on one GPU: operations over the reached peak, bytes over the reached bandwidth, and their start.

So small ones are slow.
"""

from __future__ import annotations

from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import Layout

COMPILED_TRAFFIC = 0.5
"""What element-wise operations read and write once compiled, by eager ones: of two that follow each other the second
reads nothing."""


class Kernels:
    """Seconds of kernels on one GPU."""

    def __init__(self, hardware: Hardware, layout: Layout) -> None:
        reached, gpu = hardware.efficiency, hardware.gpu
        is_fp8 = layout.precision == "fp8" and gpu.fp8 is not None
        half = "bf16" if layout.precision == "fp8" else layout.precision
        peak = gpu.peak_flops(half)
        self._wide_flops = peak * reached.matmul
        self._flops = gpu.peak_flops("fp8") * reached.fp8_matmul if is_fp8 else self._wide_flops
        self._fused_flops = peak * ((layout.tuned_attention and reached.tuned_flash) or reached.flash)
        self._bandwidth = hardware.gpu.memory_bandwidth * 1e9 * reached.memory
        self._ramp = reached.matmul_ramp
        self._start_s = reached.kernel_s
        self.width = layout.bytes_per_parameter

    def product(
        self, rows: float, inner: float, columns: float, count: float = 1.0, *, of_weights: bool = True
    ) -> float:
        """A matrix product, `count` times in one kernel; fp8 is for those with the weights of layers alone."""
        operations = 2 * rows * inner * columns * count
        if self._ramp:
            ramp = self._ramp * (2 if of_weights and self._flops != self._wide_flops else 1)
            operations *= 1 + ramp / 3 * (1 / rows + 1 / inner + 1 / columns)
        size = self.width * (rows * inner + inner * columns + rows * columns) * count
        return operations / (self._flops if of_weights else self._wide_flops) + size / self._bandwidth + self._start_s

    def convolved(self, operations: float, size: float) -> float:
        """Convolutions, which reach what matrix products do; none is in fp8."""
        return operations / self._wide_flops + size / self._bandwidth

    def fused(self, operations: float, size: float) -> float:
        """Flash attention."""
        return operations / self._fused_flops + size / self._bandwidth + self._start_s

    def move(self, size: float) -> float:
        """A kernel that reads and writes so many bytes."""
        return size / self._bandwidth + self._start_s
