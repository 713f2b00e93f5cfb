"""The findings of a plan: what ends the job comes first, and what asks for nothing takes little room."""

from __future__ import annotations

from dttui.planning.models import Finding, Severity
from dttui.tui.widgets.finding_list import finding_lines


def found(code: str, severity: Severity, message: str) -> Finding:
    return Finding(code=code, severity=severity, subject="job", message=message, hint="")


def test_errors_come_first_then_memory_then_other_warnings_and_notes_that_ask_for_nothing_share_lines() -> None:
    lines = finding_lines(
        [
            found("axiom-completeness", Severity.INFO, "it holds"),
            found("advice-all-reduce", Severity.INFO, "ring"),
            found("split-by-script", Severity.INFO, "the script splits"),
            found("cross-zone", Severity.WARNING, "two zones"),
            found("advice-broadcast", Severity.INFO, "tree"),
            found("memory", Severity.WARNING, "does not fit"),
            found("axiom-efficiency", Severity.WARNING, "it does not hold"),
            found("tilde", Severity.ERROR, "no such path"),
        ]
    )
    assert [line.plain.partition("  →")[0] for line in lines] == [
        "✗ error: no such path",
        "⚠ warning: does not fit",
        "⚠ warning: two zones",
        "⚠ warning: it does not hold",
        "i note: the script splits",
        "i ring · tree",
        "✓ 1 of the 2 axioms of distributed training hold",
    ]
