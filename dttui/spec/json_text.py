"""JSON as people and browsers write it, for a parser of YAML: what YAML does not know, or reads in another way.

A document that begins with a brace may hold comments and tabs, which become blanks, and characters written as pairs
of surrogates. Everything keeps its line and column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")
"""What programs write for numbers that JSON does not have."""

_BLOCK = r"/\*[^*]*(?:\*(?!/)[^*]*)*"
# What never ends goes to the end of its line, or of the text, so that nothing is looked at twice.
_TOKEN = re.compile(rf'"(?:[^"\\\n]|\\[^\n])*"?|(?<!\S)(?<!: )(?://[^\n]*|{_BLOCK}(?:\*/)?)|\t')
_BEGINS = re.compile(rf"(?:\s|//[^\n]*\n|{_BLOCK}\*/)*\{{")
_BEGINS_WITH_QUOTED_KEY = re.compile(rf'{_BEGINS.pattern}(?:\s|//[^\n]*\n|{_BLOCK}\*/)*"')
_NOT_A_BREAK = re.compile(r"[^\n\r]")
_ESCAPE = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\.", re.DOTALL)
_STAND_IN = r"\uFFFD\uFFFD"
"""As long as a pair, and an escape that YAML takes."""


def is_json(text: str) -> bool:
    """Whether a document can only be meant as JSON: it begins with a brace and a key in quotes."""
    return _BEGINS_WITH_QUOTED_KEY.match(text) is not None


def blank_comments(text: str) -> str:
    """Return the text with `//` and `/* */` comments and tabs as blanks, where it is JSON; else as it is."""
    if not _BEGINS.match(text):
        return text
    return _TOKEN.sub(lambda found: found[0] if found[0][0] == '"' else _NOT_A_BREAK.sub(" ", found[0]), text)


def yaml_events(text: str, parser: Any) -> Iterator[Any]:
    """Yield the events of a YAML or JSON text, as one of PyYAML's loaders parses it. Raises yaml.YAMLError."""
    readable = blank_comments(text)
    if not _BEGINS.match(text) or not _has_pairs(text):
        yield from yaml.parse(readable, Loader=parser)
        return
    readable = _TOKEN.sub(lambda found: _ESCAPE.sub(_stand_in, found[0]), readable)
    event: Any
    for event in yaml.parse(readable, Loader=parser):
        if getattr(event, "style", None) == '"':
            written = text[event.start_mark.index : event.end_mark.index]
            if _has_pairs(written):
                event.value = _value(written[written.index('"') :], parser)
        yield event


def _has_pairs(text: str) -> bool:
    """Whether there is a character that is written as a pair of surrogates."""
    return any(found[1] for found in _ESCAPE.finditer(text))


def with_pairs_joined(written: str) -> str:
    """Return quoted text with each pair of surrogates as the character that it stands for."""
    return _ESCAPE.sub(lambda found: _character(found) if found[1] else found[0], written)


def _stand_in(found: re.Match[str]) -> str:
    return _STAND_IN if found[1] else found[0]


def _character(pair: re.Match[str]) -> str:
    return bytes.fromhex(pair[1] + pair[2]).decode("utf-16-be")


def _value(written: str, parser: Any) -> str:
    """Return what quoted text stands for."""
    events = yaml.parse(with_pairs_joined(written), Loader=parser)
    return next(str(event.value) for event in events if isinstance(event, yaml.ScalarEvent))
