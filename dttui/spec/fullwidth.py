"""Full-width punctuation, which an input method for Chinese writes where YAML wants its own. Looks at text alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dttui.i18n import _
from dttui.spec.findings import Finding, Place, warning
from dttui.spec.problems import PathKey, format_path
from dttui.spec.yaml_source import YamlSource

COLON = "："
COMMA = "，"
_KEY = re.compile(rf"\s*(?:- +)?[\"'“]?[A-Za-z_][\w.-]*[\"'”]? *({COLON})")
_PARTING = re.compile(rf"\S{COMMA}\s*\S")


def fullwidth_mark(text: str) -> str:
    """Return what to do about a key that holds such a mark; nothing where it holds none."""
    if COLON in text:
        return _("that is a full-width colon: write {mark} and a blank").format(mark='":"')
    return _("that is a full-width comma: write {mark}").format(mark='","') if COMMA in text else ""


def find_slip(lines: tuple[str, ...], line: int, column: int) -> tuple[int, int, str] | None:
    """Return line and column of the mark that text stops being YAML for, and what to do; all count from 0.

    Args:
        lines: of the document.
        line: where the parser gave up.
        column: likewise.
    """
    here = lines[line] if line < len(lines) else ""
    comma = here.rfind(COMMA, 0, column)
    if comma >= 0 and len(re.findall(r"[{\[]", here[:comma])) > len(re.findall(r"[}\]]", here[:comma])):
        return line, comma, fullwidth_mark(COMMA)
    for number in range(min(line, len(lines) - 1), -1, -1):
        if found := _KEY.match(lines[number]):
            return number, found.start(1), fullwidth_mark(COLON)
        # Text goes on over lines only as long as none of them has a colon of YAML's.
        if number < line and re.search(r":(\s|$)", lines[number]):
            return None
    return None


def note_commas(source: YamlSource) -> tuple[Finding, ...]:
    """Say of items of lists, written without quotes, that a full-width comma does not part them."""
    return tuple(_note(source, path) for path in _items(source.data, ()) if _PARTING.search(source.written(path) or ""))


def _items(data: object, path: PathKey) -> Iterator[PathKey]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _items(value, (*path, key))
    elif isinstance(data, tuple):
        for index, item in enumerate(data):
            if isinstance(item, str):
                yield (*path, index)
            else:
                yield from _items(item, (*path, index))


def _note(source: YamlSource, path: PathKey) -> Finding:
    message = _("a full-width comma does not part items: this is one")
    hint = _("Write {mark} between two items, or put one in quotes.").format(mark='","')
    problem = source.problem(path, source.mark(path), message)
    place = Place(
        file=source.name,
        line=problem.line or 1,
        column=problem.column or 1,
        path=format_path(path),
        source_line=problem.source_line,
    )
    return warning("full-width-comma", format_path(path), message, hint).model_copy(update={"place": place})
