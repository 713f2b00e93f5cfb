"""Something a plan, a preflight or a framework has to say, in a form that screens and machines can both use."""

from __future__ import annotations

from enum import Enum

from pydantic import BaseModel, ConfigDict


class Severity(str, Enum):
    """How bad a finding is; an error forbids the launch."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Finding(BaseModel):
    """Something a plan or a preflight has to say."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    code: str
    """Stable name, `cross-zone`."""
    severity: Severity
    """How bad it is."""
    subject: str
    """What it is about: a node, a key of the job."""
    message: str
    """What."""
    hint: str = ""
    """What to do."""


def error(code: str, subject: str, message: str, hint: str = "") -> Finding:
    """Return a finding that forbids the launch."""
    return Finding(code=code, severity=Severity.ERROR, subject=subject, message=message, hint=hint)


def warning(code: str, subject: str, message: str, hint: str = "") -> Finding:
    """Return a finding that a person should weigh."""
    return Finding(code=code, severity=Severity.WARNING, subject=subject, message=message, hint=hint)


def info(code: str, subject: str, message: str, hint: str = "") -> Finding:
    """Return a finding that only tells."""
    return Finding(code=code, severity=Severity.INFO, subject=subject, message=message, hint=hint)
