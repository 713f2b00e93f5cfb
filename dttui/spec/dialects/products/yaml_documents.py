"""YAML of other programs: of several documents in one file, with merge keys, or so broken that only its keys are seen.

Nothing is forgiven that a job file is refused for but these; sizes and depth are bounded as there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from dttui.i18n import _
from dttui.spec.problems import DocumentError, Problem
from dttui.spec.yaml_composer import compose, plain_scalar
from dttui.spec.yaml_source import LINE_BREAK, Value, YamlSource

MOST_DOCUMENTS = 50
_MARKER = re.compile(r"^(?:---|\.\.\.)(?=\s|$)", re.MULTILINE)
_NOTHING = re.compile(r"(?:\s|#[^\n]*(?:\n|$)|%[^\n]*(?:\n|$)|(?:---|\.\.\.)(?=\s|$))*")
_KEY = re.compile(r"^[\"']?([A-Za-z_$][\w.$-]*)[\"']?[ \t]*:(?:[ \t]+([^\n#]*))?", re.MULTILINE)


@dataclass(frozen=True)
class Documents:
    """What a file holds."""

    sources: tuple[YamlSource, ...]
    """Those documents that say something; places are those of the file."""
    error: DocumentError | None = None
    """Why it cannot be read, where it cannot; there are no sources then."""


def read_documents(text: str, name: str) -> Documents:
    """Return the documents of a file; `name` is what problems call it."""
    lines = tuple(LINE_BREAK.split(text))
    sources: list[YamlSource] = []
    try:
        for start, chunk in _chunks(text, name):
            source = compose("\n" * start + chunk if start else chunk, name)
            if not source.is_empty:
                sources.append(_merged(replace(source, lines=lines)))
    except DocumentError as error:
        return Documents((), error)
    return Documents(tuple(sources))


def seen_keys(text: str) -> dict[str, Any]:
    """Return what stands at the beginning of lines of text that cannot be read as YAML, as keys with their scalars."""
    return {match[1]: plain_scalar((match[2] or "").strip().strip("\"'")) for match in _KEY.finditer(text)}


def _chunks(text: str, name: str) -> list[tuple[int, str]]:
    """Return the documents' text, each with the number of lines before it."""
    cuts = [match.start() for match in _MARKER.finditer(text)]
    bounds = [0, *(cut for cut in cuts if cut), len(text)]
    pieces = [(first, text[first:last]) for first, last in pairwise(bounds)]
    found = [(first, piece) for first, piece in pieces if not _NOTHING.fullmatch(piece)]
    if len(found) > MOST_DOCUMENTS:
        raise DocumentError([Problem(name, _("more than {limit} documents in one file").format(limit=MOST_DOCUMENTS))])
    if len(found) <= 1 and not cuts:
        return [(0, text)]
    return [(len(LINE_BREAK.findall(text, 0, first)), piece.removeprefix("...")) for first, piece in found]


def _merged(source: YamlSource) -> YamlSource:
    """Return a document whose merge keys are followed: YAML 1.1 has them, and most products read that."""
    root = source.root
    if root is None or not any(problem.path and problem.path[-1] == "<<" for problem in source.problems):
        return source
    _follow_merges(root)
    left = tuple(problem for problem in source.problems if not (problem.path and problem.path[-1] == "<<"))
    return replace(source, data=root.data, problems=left)


def _follow_merges(value: Value) -> None:
    """Put what merge keys bring into each mapping, innermost first; what a mapping says itself counts."""
    items = list(value.items.values()) if isinstance(value.items, dict) else value.items or []
    for item in items:
        _follow_merges(item)
    if not isinstance(value.items, dict):
        value.data = tuple(item.data for item in items) if value.items is not None else value.data
        return
    brought = value.items.pop("<<", None)
    value.key_marks.pop("<<", None)
    others = [brought] if brought is not None and isinstance(brought.items, dict) else []
    if brought is not None and isinstance(brought.items, list):
        others = [item for item in brought.items if isinstance(item.items, dict)]
    for other in others:
        if isinstance(other.items, Mapping):
            for key, item in other.items.items():
                value.items.setdefault(key, item)
                value.key_marks.setdefault(key, other.key_marks.get(key, item.mark))
    value.data = {key: item.data for key, item in value.items.items()}
