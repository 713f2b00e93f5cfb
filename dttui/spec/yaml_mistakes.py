"""What PyYAML's parsers say of text that they cannot read, in words for people who wrote it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from dttui.i18n import _
from dttui.spec.problems import printable

_TOKEN = re.compile("cannot start any token")
_BLOCK = re.compile("did not find expected key|expected <block end>|did not find expected '-' indicator")
_BRACKET = re.compile("expected ',' or '(?P<bracket>[]}])'")
_QUOTE = re.compile("found unexpected (end of stream|document indicator|document separator)")
_COLON = re.compile("mapping values are not allowed")
_NO_COLON = re.compile("could not find expected ':'")
_DASH = re.compile("sequence entries are not allowed")
_ESCAPE = re.compile("unknown escape character|hexdecimal number|escape sequence of")
_LEFT_OVER = re.compile("expected '?<document start>")


@dataclass(frozen=True)
class Mistake:
    """Where a text stops being YAML, and why."""

    line: int
    """From 0, as the column."""
    column: int
    reason: str
    hint: str = ""


def explain(error: yaml.YAMLError, lines: tuple[str, ...]) -> Mistake:
    """Return what is wrong with a text of these lines."""
    told = str(getattr(error, "problem", None) or error)
    begun = getattr(error, "context_mark", None)
    mark: Any = getattr(error, "problem_mark", None) or begun
    if mark is None:
        return Mistake(0, 0, printable(told))
    line = lines[mark.line] if mark.line < len(lines) else ""
    opened = begun.line + 1 if begun is not None else mark.line + 1
    at_beginning, reason, hint = _words(told, line, mark.column, opened)
    if not reason:
        context = getattr(error, "context", None)
        if context and begun is not None:
            told = _("{what} that began in line {line}").format(what=context, line=opened) + f", {told}"
        return Mistake(mark.line, mark.column, printable(told), hint)
    place = begun if at_beginning and begun is not None else mark
    return Mistake(place.line, place.column, reason, hint)


def half_of_a_pair() -> str:
    """Return what is wrong with one surrogate alone."""
    return _("half of a pair of surrogates, which is no character")


def _words(told: str, line: str, column: int, opened: int) -> tuple[bool, str, str]:
    """Return whether to show it where it began, why it is wrong, and what to do; nothing where that is unknown."""
    is_indent = "\t" in line[: len(line) - len(line.lstrip())]
    tabs = _("indent with spaces, not with tabs") if is_indent else ""
    if _TOKEN.search(told):
        if is_indent:
            return False, _("a tab where spaces must be"), tabs
        character = line[column : column + 1]
        reason = _("text cannot begin with {character} where it has no quotes").format(character=printable(character))
        return False, reason, _("put it in quotes")
    if bracket := _BRACKET.search(told):
        reason = _("expected a comma or {bracket} for what was opened in line {line}")
        return False, reason.format(bracket=bracket["bracket"], line=opened), tabs
    if _BLOCK.search(told):
        reason = _("this does not go on with what began in line {line}").format(line=opened)
        return False, reason, tabs or _("indent it like its neighbours, or put the whole value in quotes")
    if _COLON.search(told):
        hint = _("put text that holds a colon in quotes, or indent the line like its neighbours")
        return False, _("a colon cannot stand here"), tabs or hint
    if _QUOTE.search(told):
        return True, _("a quote is not closed"), ""
    if _NO_COLON.search(told):
        return True, _("expected a colon and a blank after the key"), tabs
    if _DASH.search(told):
        return False, _("a list cannot begin here"), _("write it on lines of its own, or in [ ]")
    if "Unicode character escape" in told:
        return False, half_of_a_pair(), ""
    if _ESCAPE.search(told):
        return False, _("what follows the backslash is no character"), _("write two backslashes for one")
    if _LEFT_OVER.search(told):
        return False, _("something is left over behind the end of the document"), ""
    return False, "", tabs
