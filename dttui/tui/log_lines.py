"""Lines of logs as a screen shows them."""

from __future__ import annotations

from collections.abc import Iterable

from dttui.jobs import LogLines, left_out_text, shown_line


def log_lines(found: Iterable[LogLines], job_id: str, *, is_labelled: bool) -> list[str]:
    """Return clean lines, each behind whose it is where they are labelled."""
    texts = []
    for part in found:
        who = f"{part.process:>3}" if part.rank is not None else part.process
        label = f"{who} {part.stream} │ " if is_labelled else ""
        told = [left_out_text(part.left_out, job_id)] if part.left_out else []
        texts += [label + text for text in [*told, *map(shown_line, part.lines)]]
    return texts
