"""How bad a finding is. A module of its own, so that who reads events need not load the models."""

from __future__ import annotations

from enum import Enum


class Severity(str, Enum):
    """How bad a finding is; an error forbids the launch."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
