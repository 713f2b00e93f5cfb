"""How far from estimates measured runs were, by what they are alike in, and where none was ever measured."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dttui.i18n import _
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.shape import ModelShape
from dttui.words import parameters

BEYOND = 1.5
"""What each end of a range is moved out by, as a factor of its distance, where an estimate extrapolates."""
LONGEST, MOST_GPUS, LARGEST, SMALLEST = 524_288, 16_384, 1.1e12, 1e8
"""Tokens of a sequence, GPUs, and parameters of the runs that estimates were held against."""


@dataclass(frozen=True, slots=True)
class Residuals:
    """Measured step times over estimated ones, of runs that are alike: the 10th and the 90th percentile.

    And a little more, as the constants are from the same runs.
    """

    low: float
    high: float

    def range_s(self, best_s: float, worst_s: float) -> tuple[float, float]:
        """Return the range of a step time that is so much at best and at worst."""
        return best_s * self.low, worst_s * self.high


EXPERTS = Residuals(0.74, 1.42)
"""61 runs of models with experts, of 24 groups (a source's runs of a model on a GPU)."""
SHARDED = Residuals(0.91, 1.12)
"""96 runs that shard gradients, 35 groups, beside what may hide or not."""
PLAIN = Residuals(0.85, 1.15)
"""Plain attention: the 109 runs of Bang et al. 2024, and three of today. Those that the constants are from are missed
by 2%."""
ADAPTERS = Residuals(0.70, 1.55)
"""49 runs of LoRA and QLoRA, 16 groups, most on RTX 3090 and 4090; three quarters of them of the half `end`."""
_OF_ADAPTERS = r"RTX ([34]090|A[56]000)"
"""Further types of GPUs that they ran on."""
CONVOLUTIONS = Residuals(0.77, 1.31)
"""26 figures of ResNet-50 on one and on eight A100 and V100, by PyTorch, TensorFlow and MXNet, 12 of them in fp32 or
TF32 (NVIDIA DeepLearningExamples); `tests/unit/planning/test_cost_convolutions.py` has them."""
_OF_CONVOLUTIONS = r"A100|A800|V100"
OFFLOAD = Residuals(0.60, 1.40)
"""Nine runs with optimizer, parameters or activations in host memory."""
FLASH = (
    (r"A100|A800", Residuals(0.95, 1.18)),  # 26 runs of 6 groups.
    (r"G?H[128]00|GH200|H20", Residuals(0.85, 1.12)),  # 34 runs of 20 groups.
    (r"G?B[23]00", Residuals(0.88, 1.17)),  # 11 runs of 5 groups, all by cuDNN's attention.
)
"""Flash attention, by type of GPU. These and those with experts are of the half `fit` of bench/measured_runs."""
OTHERS = Residuals(0.70, 1.40)
"""By likeness: no run, or one."""


def residuals_of(shape: ModelShape, layout: Layout, hardware: Hardware) -> Residuals:
    """Return how far from an estimate a run may be, eight times in ten; further where the estimate extrapolates."""
    found = _measured(shape, layout, hardware)
    if not extrapolations(shape, layout, hardware):
        return found
    return Residuals(1 - (1 - found.low) * BEYOND, 1 + (found.high - 1) * BEYOND)


def _measured(shape: ModelShape, layout: Layout, hardware: Hardware) -> Residuals:
    if layout.offload != "none" or layout.offload_activations:
        return OFFLOAD
    if shape.lora is not None:
        return ADAPTERS
    if shape.convolutions is not None:
        return CONVOLUTIONS
    known = next((found for names, found in FLASH if re.match(rf"({names})", hardware.gpu.type, re.IGNORECASE)), None)
    if known is None:
        return OTHERS
    if shape.experts is not None:
        return EXPERTS
    if shape.attention == "plain":
        return PLAIN
    return SHARDED if layout.zero_stage >= 2 else known


def extrapolations(shape: ModelShape, layout: Layout, hardware: Hardware) -> list[str]:
    """Return in what an estimate is beyond all runs that estimates were held against."""
    told = []
    known = [names for names, _found in FLASH] + ([_OF_ADAPTERS] if shape.lora is not None else [])
    if shape.convolutions is not None:
        known = [_OF_CONVOLUTIONS]
    if not any(re.match(rf"({names})", hardware.gpu.type, re.IGNORECASE) for names in known):
        told.append(_("{gpu} GPUs").format(gpu=hardware.gpu.type))
    if shape.seq_length > LONGEST:
        told.append(_("sequences of {count} tokens").format(count=f"{shape.seq_length:,}"))
    if hardware.gpus > MOST_GPUS:
        told.append(_("{count} GPUs").format(count=f"{hardware.gpus:,}"))
    if shape.convolutions is None and not SMALLEST <= shape.parameters <= LARGEST:
        told.append(_("{count} parameters").format(count=parameters(shape.parameters, 3)))
    if layout.tensor > hardware.linked:
        told.append(_("tensors split across nodes"))
    return told
