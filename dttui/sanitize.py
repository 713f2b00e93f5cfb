"""The one filter between text from a host and anything that shows it: nothing that drives a terminal gets through."""

from __future__ import annotations

import re

_STRING_BODY = r"[^\x07\x0a\x1b\x80-\x9f]*"

_UNSAFE = re.compile(
    # OSC, DCS, SOS, PM and APC strings with their terminator, whole: what they carry is not text.
    rf"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]){_STRING_BODY}(?:\x07|\x1b\\|\x9c)"
    # CSI sequences: colours, cursor movement, clearing.
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    # Other escapes: an intermediate or two and a final byte. A string that never ends loses its introducer only.
    r"|\x1b[ -/]*[0-~]?"
    # C0 but tab and newline, DEL, C1.
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    # Bidirectional controls: they reorder what a person reads.
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
    # Zero-width and otherwise invisible characters, and separators that some widgets take for a line break.
    r"|[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2028\u2029\u2060-\u2065\u206a-\u206f"
    r"\u3164\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")


MOST_QUOTED_LINES = 12
_LAST_QUOTED_LINES = 3
"""Of more lines the first and these are kept: what a server asks for comes last."""


def clean(text: str) -> str:
    """Return `text` without escape sequences, control characters but tab and newline, bidi and zero-width characters.

    A lone surrogate, which no terminal can encode, becomes U+FFFD. Cleaning twice changes nothing more.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _UNSAFE.sub("", text)
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def quoted(text: str, columns: int, most_lines: int = MOST_QUOTED_LINES) -> list[str]:
    """Return a stranger's words in lines of at most so many columns, to be marked as theirs on each.

    Blank lines and spaces in a row go. Whatever is not ASCII counts as two columns: no terminal takes more for it, and
    no line is wrapped by a terminal, where its mark would be missing.
    """
    lines: list[str] = []
    for paragraph in clean(text).split("\n"):
        rest = " ".join(paragraph.split())
        while rest:
            end = _fits(rest, columns)
            space = rest.rfind(" ", 0, end + 1) if end < len(rest) else -1
            end = space if space > 0 else end
            lines.append(rest[:end].rstrip())
            rest = rest[end:].lstrip()
    if len(lines) > most_lines:
        lines = [*lines[: most_lines - _LAST_QUOTED_LINES - 1], "…", *lines[-_LAST_QUOTED_LINES:]]
    return lines


def clean_line(text: str) -> str:
    """Return a stranger's words as one clean line, with one space between them."""
    return " ".join(clean(text).split())


def shortened(text: str, most_chars: int) -> str:
    """Return a stranger's words as one clean line that is no longer."""
    line = clean_line(text[: most_chars * 8])
    return line if len(line) <= most_chars else line[: most_chars - 1] + "…"


def _fits(text: str, columns: int) -> int:
    """How many characters of a text take so many columns at most; one at least."""
    for index, character in enumerate(text):
        columns -= 1 if character.isascii() else 2
        if columns < 0:
            return max(index, 1)
    return len(text)
