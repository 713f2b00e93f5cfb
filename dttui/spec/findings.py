"""Something a plan, a preflight or a framework has to say, in a form that screens and machines can both use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, ValidatorFunctionWrapHandler, WrapValidator

from dttui.i18n import Message
from dttui.spec.problems import PathKey, format_path
from dttui.spec.severity import Severity as Severity


def _checked_text(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if isinstance(value, Message) else check(value)


Text = Annotated[str, WrapValidator(_checked_text)]
"""Text that stays a `Message` where it is one."""


class Place(BaseModel):
    """Where in a file the key stands that a finding is about, or what is nearest to it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    """As the person named it."""
    line: int
    """From 1."""
    column: int
    """From 1, in characters."""
    path: str
    """The key, as people write it: `distributed_training.cluster.nodes[1].id`."""
    source_line: str
    """The line of the file, as it stands there."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Finding(BaseModel):
    """Something a plan or a preflight has to say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    """Stable name, `cross-zone`."""
    severity: Severity
    """How bad it is."""
    subject: str
    """What it is about: a node, a key of the job."""
    message: Text
    """What."""
    hint: Text = ""
    """What to do."""
    path: PathKey = ()
    """Key of the job that it arises from, from the job's top; empty where the subject is it, or there is none."""
    place: Place | None = None
    """Where that key stands; `None` for a job that was read from no file."""

    @property
    def event_data(self) -> dict[str, Any]:
        """What an event has of it beside its message."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "subject": self.subject,
            "hint": self.hint,
            **(self.place.model_dump(exclude={"source_line"}) if self.place is not None else {}),
        }

    @property
    def where(self) -> str:
        """What it is about, as exactly as is known: a key of the job, a node."""
        return format_path(self.path) if self.path else self.subject


def error(code: str, subject: str, message: str, hint: str = "", *, path: PathKey = ()) -> Finding:
    """Return a finding that forbids the launch."""
    return Finding(code=code, severity=Severity.ERROR, subject=subject, message=message, hint=hint, path=path)


def warning(code: str, subject: str, message: str, hint: str = "", *, path: PathKey = ()) -> Finding:
    """Return a finding that a person should weigh."""
    return Finding(code=code, severity=Severity.WARNING, subject=subject, message=message, hint=hint, path=path)


def info(code: str, subject: str, message: str, hint: str = "", *, path: PathKey = ()) -> Finding:
    """Return a finding that only tells."""
    return Finding(code=code, severity=Severity.INFO, subject=subject, message=message, hint=hint, path=path)


def errors_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in the order in which a person should read them."""
    order = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))
