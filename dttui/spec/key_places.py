"""Where in a job file the keys stand that findings are about. Looks at text alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from dttui.spec.dialects import recognise
from dttui.spec.findings import Finding, Place
from dttui.spec.loader import ROOT_KEY
from dttui.spec.models import Job
from dttui.spec.problems import PathKey, Problem, format_path
from dttui.spec.yaml_reader import parse_yaml
from dttui.spec.yaml_source import YamlSource

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def with_places(
    findings: Iterable[Finding], text: str, name: str, source: YamlSource | None = None
) -> tuple[Finding, ...]:
    """Return the findings with the place of each whose key is known.

    Args:
        findings: of the job in `text`.
        text: a job file that was read before.
        name: what the person calls that file.
        source: the same as it was parsed, where that is at hand.
    """
    source = source or parse_yaml(text, name)
    dialect = recognise(source) if ROOT_KEY not in source.data else None
    translated = dialect.translate(source) if dialect is not None else None
    # A document of another form is looked at as the job file that it amounts to, with the places it has itself.
    job_file = translated.job_source() if translated is not None else source
    origin = translated.origin if translated is not None else None
    return tuple(finding if finding.place else _with_place(finding, job_file, origin) for finding in findings)


def as_problem(finding: Finding, name: str) -> Problem:
    """Return a finding as a problem of its document, which is called `name` where the finding has no place."""
    place = finding.place
    if place is None:
        return Problem(name, finding.message, finding.hint)
    path = _keys(place.path)
    return Problem(place.file, finding.message, finding.hint, path, place.line, place.column, place.source_line)


def _with_place(finding: Finding, source: YamlSource, origin: Callable[[PathKey], PathKey] | None) -> Finding:
    path = finding.path or _parsed(finding.subject)
    if not path:
        return finding
    whole = (ROOT_KEY, *path)
    if source.has(whole):
        mark = source.mark(whole)
    else:  # A key that is missing is shown at the nearest one above it.
        above = next(whole[:length] for length in range(len(whole) - 1, -1, -1) if source.has(whole[:length]))
        mark = source.key_mark(above)
    place = Place(
        file=source.name,
        line=mark.line,
        column=mark.column,
        path=format_path(whole) if origin is None else format_path(origin(whole) or path),
        source_line=source.problem(whole, mark, "").source_line,
    )
    return finding.model_copy(update={"path": path, "place": place})


def _parsed(subject: str) -> PathKey:
    """Return a subject that is written as a key of the job; nothing for the name of a node."""
    path = _keys(subject)
    return path if path and path[0] in Job.model_fields else ()


def _keys(text: str) -> PathKey:
    return tuple(int(index) if index else key for key, index in _STEP.findall(text))
