"""Optimizers: what each keeps of a parameter, and how weights are kept beside the precision that is computed in."""

from __future__ import annotations

from typing import Literal

Optimizer = Literal["adam", "adam-fused", "adam-8bit", "momentum", "sgd"]
"""`adam`: two moments; `adam-fused`: the same in one kernel; `adam-8bit`: both in a byte; `momentum`: one, as SGD with
momentum, Lion, Muon and RMSprop have; `sgd`: none."""
Weights = Literal["master", "autocast", "pure"]
"""Of a model in half precision. `master`: in fp32 beside those that are computed with, as Megatron-LM, DeepSpeed and
FSDP2 have it (16 bytes a parameter with gradients and Adam, Micikevicius et al. 2018, Rajbhandari et al. 2020);
`autocast`: in fp32 alone, and cast for each product (torch.autocast); `pure`: in half precision alone, gradients and
moments too."""

MOMENTS: dict[Optimizer, int] = {"adam": 2, "adam-fused": 2, "adam-8bit": 2, "momentum": 1, "sgd": 0}
"""Numbers an optimizer keeps of each parameter."""
_BYTES_IN_EIGHT_BITS = 1 + 4 / 256
"""Of a moment: a byte, and an fp32 scale a block of 256 (Dettmers et al. 2022); AdamW8bit of bitsandbytes 0.50 keeps
2.034 bytes of a parameter with its tables, measured."""


def moment_bytes(optimizer: Optimizer, weights: Weights) -> float:
    """Return the bytes of an optimizer's moments of one parameter: in fp32, or in the precision of pure weights."""
    each = _BYTES_IN_EIGHT_BITS if optimizer == "adam-8bit" else 2.0 if weights == "pure" else 4.0
    return MOMENTS[optimizer] * each
