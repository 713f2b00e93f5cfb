"""What a plan has estimated of a job, beside what was measured of it: the same few figures wherever they are shown."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dttui.i18n import _
from dttui.jobs.aftermath import OUTCOME
from dttui.jobs.decoding import taken

STEP_TIME, TOKENS, SAMPLES, GPU_MEMORY = "step_time_s", "tokens_per_s", "samples_per_s", "memory_per_gpu_gb"
COMMUNICATION = "communication_percent"
"""Only of jobs that measure it."""
FIGURES = "figures"
"""Of an `AttemptOutcome`."""


@dataclass(frozen=True)
class Figure:
    """One of them; memory is that of the GPU that needs most, in GB (10⁹ bytes), speeds are of all ranks together."""

    estimated: float | None = None
    """`None` where the plan has no estimate."""
    low: float | None = None
    high: float | None = None
    """The estimate's range, where it has one."""
    measured: float | None = None
    """`None` where nobody could measure it."""


def figures_of(data: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures in the data of a job's state that tells the end of an attempt; of a torn one, none."""
    outcome = data.get(OUTCOME)
    found = outcome.get(FIGURES) if isinstance(outcome, dict) else None
    with contextlib.suppress(ValueError):
        return taken(dict[str, Figure], found if found is not None else {})
    return {}


def figure_names() -> dict[str, str]:
    """Return what figures are called, each with its unit."""
    return {
        STEP_TIME: _("seconds a step"),
        TOKENS: _("tokens a second"),
        SAMPLES: _("samples a second"),
        GPU_MEMORY: _("GB of the fullest GPU"),
        COMMUNICATION: _("% of the time in communication"),
    }
