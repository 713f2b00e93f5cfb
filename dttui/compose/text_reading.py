"""A job as text that a person edits: what is wrong in it, and the job that it stands for."""

from __future__ import annotations

from pathlib import Path

from dttui.compose.draft_answers import ReadText
from dttui.compose.open_points import check_open_points
from dttui.planning.meaning import check_meaning
from dttui.spec import DocumentError, Severity, as_problem, parse_document, with_places


def read_job_text(text: str, name: str, base: Path) -> ReadText:
    """Return what `validate` says of a text, and the job where it is one.

    Args:
        text: of a job file, or of a document that is taken for one.
        name: what problems call it.
        base: directory that its relative paths start from.
    """
    try:
        loaded = parse_document(text, name)
    except DocumentError as error:
        return ReadText(None, error.problems)
    mistakes = [item for item in check_open_points(loaded.job, base) if item.severity is Severity.ERROR]
    placed = with_places(mistakes, text, name, loaded.source)
    remarks = (*loaded.notes, *with_places(check_meaning(loaded.job), text, name, loaded.source))
    return ReadText(loaded.job, tuple(as_problem(item, name) for item in placed), remarks)
