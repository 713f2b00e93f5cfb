"""Processes that keep torch imported, as dttui asks for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from dtagent.protocol.notices import Notice


class WarmState(str, Enum):
    """How far a process is that holds torchrun's imports for jobs to come."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class WarmRequest:
    """Asks for such a process under an interpreter. Idempotent; it is not waited for."""

    python: str
    """Interpreter of the job's processes, as in `PrepareRequest`."""
    env: dict[str, str] = field(default_factory=dict)
    """What the job adds to the environment; those variables count that Python and torch read when they start."""


@dataclass(frozen=True)
class WarmReply:
    """One such process."""

    python: str
    """Absolute path of the interpreter."""
    state: WarmState
    reason: str = ""
    """Why there is none."""
    torch: str | None = None
    """Version of what is imported."""
    pid: int | None = None
    memory_mib: int | None = None
    """What it holds now, its share where pages are shared with what was forked from it."""
    reason_notice: Notice | None = None
