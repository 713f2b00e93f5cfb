"""A module that a script imports: what a plan has of it, and what hosts are asked."""

from __future__ import annotations

from enum import Enum

from pydantic import BaseModel, ConfigDict


class Demand(str, Enum):
    """How much a module is wanted; each less than the one before it."""

    SURE = "sure"
    """The script cannot begin without it."""
    LIKELY = "likely"
    """So, unless it is found where the script itself has Python look."""
    LATE = "late"
    """In a function or under a condition: it may never come there."""


class NeededModule(BaseModel):
    """One module of the first level, `cv2`, and where it is first wanted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    module: str
    """Its name."""
    file: str
    """Relative to what is sent."""
    line: int
    """From 1."""
    demand: Demand
    """How much it is wanted."""
