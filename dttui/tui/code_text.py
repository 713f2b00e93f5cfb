"""Commands, files and differences as they are shown: coloured by what they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from textual.content import Content

from dttui.compose import LineChange
from dttui.sanitize import clean

if TYPE_CHECKING:
    from textual.highlight import HighlightTheme

MOST_CHARS = 200_000
"""Of a text that is coloured; a longer one is read by programs."""
_LANGUAGES = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
    ".ini": "ini",
}
_WORDS = {
    "Token.Comment": "$muted",
    "Token.Keyword": "$accent",
    "Token.Literal.Number": "$warning",
    "Token.Literal.String": "$success",
    "Token.Name.Builtin": "$accent",
    "Token.Name.Decorator": "$accent",
    "Token.Name.Function": "$primary",
    "Token.Name.Class": "$primary",
    "Token.Name.Tag": "$primary",
    "Token.Name.Variable": "$secondary",
    "Token.Operator.Word": "$accent",
}
_CHANGES = {"+": "$success", "-": "$error", " ": "$muted", "@": "$accent"}


def language_of(path: str) -> str:
    """Return what a file is written in, by its name; `text` where that does not tell."""
    return _LANGUAGES.get(PurePosixPath(path).suffix.lower(), "text")


def highlighted(text: str, language: str) -> Content:
    """Return a text with its words coloured by their part in the language."""
    shown = clean(text).expandtabs(4)
    if language == "text" or len(shown) > MOST_CHARS:
        return Content(shown)
    from textual.highlight import highlight  # With all its lexers' names, which no first look waits for.

    return highlight(shown, language=language, theme=_theme())


@cache
def _theme() -> type[HighlightTheme]:
    """Return the colours of words: those of the theme of the screen, which read well on its ground."""
    from textual.highlight import HighlightTheme

    class ThemeColours(HighlightTheme):
        """As the theme has them."""

    ThemeColours.STYLES = {token: _WORDS[str(token)] for token in HighlightTheme.STYLES if str(token) in _WORDS}
    return ThemeColours


@lru_cache(maxsize=4096)
def line_colours(line: str) -> tuple[tuple[int, int, str], ...]:
    """Return where the words of one line of YAML begin and end, and the variable of the theme for each."""
    spans = highlighted(line, "yaml").spans
    return tuple((span.start, span.end, str(span.style)) for span in spans if span.style != "$text")


def command_text(lines: Sequence[str]) -> Content:
    """Return a command to read, and to paste into a shell."""
    return highlighted(" \\\n    ".join(lines), "bash")


def changed_lines(lines: Iterable[LineChange]) -> Content:
    """Return lines of a difference, each with its sign."""
    return Content("\n").join(
        Content.styled(f"{item.sign if item.sign != '@' else '…'}{clean(item.text)}", _CHANGES[item.sign])
        for item in lines
    )
