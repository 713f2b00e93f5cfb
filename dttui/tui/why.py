"""Why a job failed, or how it stands, as the run screen shows it: the words are those of `dttui diagnose`."""

from __future__ import annotations

from textual.content import Content

from dttui.diagnosis import Diagnosis, Kind, Line, sections

_STYLES = {Kind.BAD: "bold $state-failed", Kind.FACTS: "$muted", Kind.MUTED: "$muted"}


def why(diagnosis: Diagnosis) -> Content:
    """Return the whole page."""
    lines: list[Content] = []
    for part in sections(diagnosis):
        if lines:
            lines.append(Content(""))
        if part.heading:
            lines.append(Content.styled(part.heading, "bold $primary"))
        lines += [_shown(line) for line in part.lines]
    return Content("\n").join(lines)


def _shown(line: Line) -> Content:
    if line.kind is Kind.ADVICE:
        return Content.assemble(("• ", "$ticked"), line.text)
    mark = "✗ " if line.kind is Kind.BAD else ""
    return Content.styled(mark + line.text, _STYLES.get(line.kind, ""))
