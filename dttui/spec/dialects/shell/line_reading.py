"""What `read` takes of a text: one line, shared out among variables as `IFS` parts it."""

from __future__ import annotations

import re

from dttui.spec.dialects.shell.command_words import BLANKS, between


def read_line(text: str, delimiter: str, *, is_raw: bool) -> tuple[str, bool, str]:
    """Take a line.

    Args:
        text: that is left to be read.
        delimiter: with which a line ends; empty for one that no text has.
        is_raw: whether backslashes are left as they are.

    Returns:
        The line, whether it ended by the delimiter, and what is left.
    """
    if delimiter == "\n" and text and not text.endswith("\n"):
        text += "\n"
    if is_raw:
        line, found, rest = text.partition(delimiter) if delimiter else (text, "", "")
        return line, bool(found), rest
    end = re.escape(delimiter)
    match = re.match(rf"((?:[^\\{end}]|\\.)*)({end or '$'})", text, re.DOTALL)
    if match is None:
        return text, False, ""
    line = re.sub(r"\\(.)", r"\1", match[1].replace("\\\n", ""), flags=re.DOTALL)
    return line, bool(match[2]), text[match.end() :]


def shared_out(line: str, separators: str, count: int) -> list[str]:
    """Return what each of so many variables gets of a line: a field, and the last one all that is left."""
    pattern = between(separators)
    blanks = "".join(character for character in separators if character in BLANKS)
    rest = line.strip(blanks) if blanks else line
    found: list[str] = []
    while pattern and len(found) < count - 1 and (match := re.search(pattern, rest)) is not None:
        found.append(rest[: match.start()])
        rest = rest[match.end() :]
    match = re.search(pattern, rest) if pattern else None
    found.append(rest[: match.start()] if match is not None and match.end() == len(rest) else rest)
    return found + [""] * (count - len(found))
