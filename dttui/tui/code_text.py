"""Commands, files and differences as they are shown: coloured by what they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from textual.content import Content

from dttui.compose import LineChange
from dttui.sanitize import clean

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

    return highlight(shown, language=language)


def command_text(lines: Sequence[str]) -> Content:
    """Return a command to read, and to paste into a shell."""
    return highlighted(" \\\n    ".join(lines), "bash")


def changed_lines(lines: Iterable[LineChange]) -> Content:
    """Return lines of a difference, each with its sign."""
    return Content("\n").join(
        Content.styled(f"{item.sign if item.sign != '@' else '…'}{clean(item.text)}", _CHANGES[item.sign])
        for item in lines
    )
