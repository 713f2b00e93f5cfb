"""How much of a GPU's peaks its kernels and links reach: one set by kind of GPU, each number with its source."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache


@dataclass(frozen=True, slots=True)
class Efficiency:
    """How much of a peak is reached; as they are here, of a GPU that nothing else is known of."""

    matmul: float = 0.81
    """Of the peak, by a large matrix product: the A100's. Makers' peaks of consumers' cards are with fp32 sums, which
    they reach."""
    flash: float = 0.5
    """Of the peak, by flash attention, forward and backward together."""
    tuned_flash: float | None = None
    """Likewise by kernels made for that GPU, cuDNN's or FlashAttention 3, as Transformer Engine takes them; `None` for
    as `flash`."""
    fp8_matmul: float = 0.65
    """Of the peak in fp8, by a large matrix product, with the scaling of what goes in."""
    matmul_ramp: float = 0.0
    """Elements, in half precision, by which a product is as if its inner dimension were longer: what the start and end
    of each tile cost. On average over the three passes, each dimension being the inner one of one of them."""
    memory: float = 0.77
    """Of the memory's bandwidth, by a kernel that only moves data."""
    intra_node: float = 0.80
    """Of the link's bandwidth, by a collective inside a node."""
    inter_node: float = 0.75
    """Of the network's bandwidth, by a collective between nodes."""
    kernel_s: float = 5.5e-6
    """What starting a kernel costs."""
    host_pass_s: float = 0.85e-3
    """What the host takes to issue one pass over a layer: some 25 operations of eager PyTorch, of 30 µs or so. From
    runs that the host holds up: with 1,024 hidden units a layer took 3.4 to 3.7 ms a micro-batch, four passes, however
    it was divided over one to four GPUs (Bang et al. 2024, single-node runs)."""

    def slowed(self, times: float) -> Efficiency:
        """Return what is reached where kernels, and the host that starts them, take so many times as long."""
        return replace(
            self,
            matmul=self.matmul / times,
            flash=self.flash / times,
            tuned_flash=self.tuned_flash / times if self.tuned_flash is not None else None,
            fp8_matmul=self.fp8_matmul / times,
            memory=self.memory / times,
            kernel_s=self.kernel_s * times,
            host_pass_s=self.host_pass_s * times,
        )

    def limited(self, share: float) -> Efficiency:
        """Return what is reached where a power limit leaves a share of the board's power.

        Large products run into the limit even on the whole board, and power goes with the clock's cube, since voltage
        follows it; memory and links have clocks of their own.
        """
        clock = min(share, 1.0) ** (1 / 3)
        return replace(
            self,
            matmul=self.matmul * clock,
            flash=self.flash * clock,
            tuned_flash=self.tuned_flash * clock if self.tuned_flash is not None else None,
            fp8_matmul=self.fp8_matmul * clock,
        )


OTHERS = Efficiency()
_AMPERE = Efficiency(matmul=0.81, flash=0.33)
"""A100, A800, V100. Matrix products, memory, links and the start of a kernel: least mean absolute error over the 18
runs of Narayanan et al. 2021 (Table 1) and Korthikanti et al. 2022 (Table 5), within what micro-benchmarks of the parts
give; `tests/unit/planning/test_cost_time.py` holds the errors. Flash attention: fitted to bench/measured_runs/fit.yaml.
"""
_HOPPER = Efficiency(matmul=0.74, flash=0.18, tuned_flash=0.31, fp8_matmul=0.68, memory=0.70, intra_node=0.85)
"""H100, H800, H200. Fitted to bench/measured_runs/fit.yaml, within what the best shape of a product is measured to
reach: 0.80 in bf16 and 0.71 in fp8 (Bekman, Machine Learning Engineering, "Maximum Achievable FLOPS", 2026). Flash
attention is that of PyTorch and FlashAttention 2, 0.18 to 0.25 by program, and for Megatron's programs cuDNN's.
Links: as collectives over NVLink 4 with its switches are said to reach, a little more of it than over NVLink 3; the
runs would have it higher still."""
_BLACKWELL = Efficiency(matmul=0.76, flash=0.43, fp8_matmul=0.90, matmul_ramp=800.0, memory=0.69, intra_node=0.85)
"""B200, B300, GB200, GB300. Fitted to bench/measured_runs/fit.yaml (cuDNN's attention, most in fp8). A product of 8,192
each way comes to 0.69 in bf16 and 0.75 in fp8; the best shape is measured to reach 0.73 to 0.79 and 0.72 to 0.76
(Bekman, as above)."""
_CDNA_3 = Efficiency(matmul=0.50, flash=0.25, fp8_matmul=0.45)
"""MI300X, MI325X. The best shape of a product reaches 0.51 and 0.60 in bf16 (Bekman, as above); the rest by likeness,
fitted to no run."""
_CDNA_4 = Efficiency(matmul=0.45, flash=0.20, fp8_matmul=0.45, memory=0.69)
"""MI350X, MI355X. The best shape of a product reaches 0.68 in bf16 (Bekman, as above); these are nearer to three runs
with experts (bench/measured_runs/fit.yaml), which reach less still: 0.2 to 0.3 faster than they were."""
_KINDS = (
    (r"A100|A800|V100", _AMPERE),
    (r"G?H[128]00|GH200|H20", _HOPPER),
    (r"G?B[23]00", _BLACKWELL),
    (r"MI3[02]\d", _CDNA_3),
    (r"MI35\d", _CDNA_4),
)


@cache
def efficiency_of(gpu: str) -> Efficiency:
    """Return what a type of GPU reaches, by the name of the type: `H100`, `RTX 4090`."""
    return next((found for names, found in _KINDS if re.match(rf"({names})", gpu, re.IGNORECASE)), OTHERS)
