"""What all sections of a job file have in common. Frozen; an unknown key is an error."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

MOST_PARAMETERS = 1e18
MOST_LAYERS = 10_000
MOST_COUNT = 10**9
"""Bounds of what an estimate is made of: far above all models there are, and small enough to be searched."""


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
