"""What failures cost: how often they come, and how often a checkpoint pays (Young 1974, Daly 2006)."""

from __future__ import annotations

from math import sqrt

from pydantic import BaseModel, ConfigDict

from dttui.planning.cost.hardware import STORAGE_BANDWIDTH

HOURS_PER_GPU_FAILURE = 50_700.0
"""419 unexpected interruptions in 54 days on 16,384 GPUs (Dubey et al. 2024, Llama 3)."""
CHECKPOINT_BYTES_PER_PARAMETER = 14
"""Parameters in half precision and Adam's states in fp32."""
RESTART_S = 300.0
"""To notice, start anew and load: a default until it is measured."""


class FailureCost(BaseModel):
    """Interruptions, and what they take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hours_between_failures: float
    """Of the whole job."""
    checkpoint_bytes: float = 0.0
    """Size of one; 0 in records of before."""
    checkpoint_s: float
    """What writing one takes."""
    checkpoint_interval_s: float
    """Between two, so that least time is lost."""
    lost_share: float
    """Of the time, 0 to 1: writing, work done again, restarts."""


def checkpoint_interval_s(checkpoint_s: float, between_failures_s: float) -> float:
    """Return Daly's optimum: √(2δM)·(1 + ⅓·√(δ/2M) + δ/18M) − δ, or M where δ ≥ 2M (Daly 2006, equation 37).

    Args:
        checkpoint_s: δ, what writing a checkpoint takes.
        between_failures_s: M, mean time between failures.
    """
    delta, mean = checkpoint_s, between_failures_s
    if delta >= 2 * mean:
        return mean
    return sqrt(2 * delta * mean) * (1 + sqrt(delta / (2 * mean)) / 3 + delta / (18 * mean)) - delta


def failure_cost(parameters: float, gpus: int, bandwidth: float = STORAGE_BANDWIDTH) -> FailureCost:
    """Return what failures cost a job.

    Args:
        parameters: of the model.
        gpus: of the job.
        bandwidth: at which a checkpoint is written, bytes a second, by all nodes together that write a part of it.
    """
    between_s = HOURS_PER_GPU_FAILURE * 3600 / gpus
    size = parameters * CHECKPOINT_BYTES_PER_PARAMETER
    writing_s = size / bandwidth
    interval_s = checkpoint_interval_s(writing_s, between_s)
    lost = writing_s / (interval_s + writing_s) + (interval_s / 2 + RESTART_S) / between_s
    return FailureCost(
        hours_between_failures=between_s / 3600,
        checkpoint_bytes=size,
        checkpoint_s=writing_s,
        checkpoint_interval_s=interval_s,
        lost_share=min(lost, 1.0),
    )
