"""YAML that is edited: words coloured, mistakes underlined at their place, a new line indented as the one before."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from rich.text import Text
from textual import events
from textual.widgets import TextArea

from dttui.tui.code_text import line_colours

_INDENT = 2
_WORD = re.compile(r"""[^\s:,{}\[\]#]+|\S""")


class YamlArea(TextArea):
    """Says by `TextArea.Changed` that a person has typed."""

    def __init__(self, text: str, *, id: str) -> None:
        super().__init__(text, id=id, show_line_numbers=True, tab_behavior="indent", compact=True)
        self.indent_width = _INDENT
        self._marks: dict[int, list[int]] = {}

    def mark(self, places: Iterable[tuple[int, int]]) -> None:
        """Underline the words that begin at these places, lines and columns counted from 1, and nothing else."""
        marks = defaultdict(list)
        for line, column in places:
            marks[line - 1].append(column - 1)
        if marks != self._marks:
            self._marks = dict(marks)
            self.notify_style_update()
            self.refresh()

    def go_to(self, line: int, column: int) -> None:
        """Put the cursor at a place, counted from 1."""
        row = min(max(line, 1), self.document.line_count) - 1
        self.move_cursor((row, min(max(column, 1) - 1, len(self.document.get_line(row)))), center=True)
        self.focus()

    def get_line(self, line_index: int) -> Text:
        """Return a line with its colours and marks."""
        line = Text(harmless(self.document.get_line(line_index)), end="", no_wrap=True)
        for start, end, style in line_colours(line.plain) if "\t" not in line.plain else ():
            line.stylize(self.app.stylesheet.parse_style(style).rich_style, start, end)
        for column in self._marks.get(line_index, ()):
            start, end = marked_span(line.plain, column)
            line.stylize(self.app.stylesheet.parse_style("bold underline $error").rich_style, start, end)
        return line

    def on_key(self, event: events.Key) -> None:
        """Indent a new line as the one before, and further below a key without a value."""
        if event.key != "enter":
            return
        event.stop()
        event.prevent_default()
        row, column = min(self.selection)
        indent = indent_after(self.document.get_line(row)[:column])
        self.replace("\n" + indent, *sorted(self.selection), maintain_selection_offset=False)
        self.scroll_cursor_visible()


def harmless(line: str) -> str:
    """Return a line with as many characters, of which none drives the terminal, or hides: it may have been pasted."""
    return "".join(character if character == "\t" or character.isprintable() else "�" for character in line)


def indent_after(line: str) -> str:
    """Return what a line begins with that follows another one."""
    indent = line[: len(line) - len(line.lstrip(" "))]
    return indent + " " * _INDENT if line.rstrip().endswith(":") else indent


def marked_span(line: str, column: int) -> tuple[int, int]:
    """Return where the word begins and ends that a column from 0 is at; behind the end of the line, its last word."""
    words = [match.span() for match in _WORD.finditer(line)]
    at = next((span for span in words if column < span[1]), words[-1] if words else (0, len(line)))
    return max(at[0], column) if at[0] <= column < at[1] else at[0], at[1]
