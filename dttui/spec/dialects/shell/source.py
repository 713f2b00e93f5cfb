"""A script's text as the parser gets it, and where its parts stand in what was written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dttui.spec.dialects.shell.open_parts import Openness, OpenParts
from dttui.spec.placeholders import UNLIKE_TOKENIZERS
from dttui.spec.yaml_source import Mark

if TYPE_CHECKING:
    from tree_sitter import Node

_CHANGED = re.compile(
    r"(?<!\\)\$(?P<name>[A-Za-z_]\w*)(?=[-./,:@%+~^=#!*?])"
    r"|(?<=[\s=:/,'\"])(?P<placeholder>" + UNLIKE_TOKENIZERS + r"<[A-Za-z](?:[^<>\n|&;()$`\"']{0,80}[\w.)\]])?>)"
)
"""What the parser gets otherwise than it was written."""
_LONGEST_LINE = 10_000
"""Of a longer one columns are counted in bytes."""
_ASIDE = re.compile(r"`#[^`\n]*`")
"""A comment amid a command, as people write it."""
_DANGLING = re.compile(r"\\\s*\Z")


class Source:
    """A script.

    The parser loses a variable within a word where something follows it, as in `$DIR/log.$ID.out` (tree-sitter-bash
    0.25), and so gets it in braces. It would take `<your data>` for a file to read, and gets a hole.
    """

    def __init__(self, text: str, holes: OpenParts, file: str = "") -> None:
        self._file = file
        written = _DANGLING.sub("\n", _ASIDE.sub(lambda match: " " * len(match[0]), text))
        pieces: list[bytes] = []
        self._changes: list[tuple[int, int, bytes]] = []
        at = length = 0
        for match in _CHANGED.finditer(written):
            before = written[at : match.start()].encode(errors="replace")
            name, placeholder = match["name"], match["placeholder"]
            new = f"${{{name}}}" if name is not None else holes.make(placeholder, Openness.NEEDED)
            changed = new.encode(errors="replace")
            pieces += (before, changed)
            start = length + len(before)
            length = start + len(changed)
            self._changes.append((start, length, match[0].encode(errors="replace")))
            at = match.end()
        pieces.append(written[at:].encode(errors="replace"))
        self.parsed = b"".join(pieces)

    def text(self, start: int, end: int) -> str:
        """Return what the parser got between two offsets."""
        return self.parsed[start:end].decode(errors="replace")

    def written(self, start: int, end: int) -> str:
        """Return what was written there."""
        kept, at = b"", start
        for first, last, original in self._changes:
            if start <= first and last <= end:
                kept += self.parsed[at:first] + original
                at = last
        return (kept + self.parsed[at:end]).decode(errors="replace")

    def mark(self, node: Node) -> Mark:
        """Return the line of a node, and its column in characters, both from 1."""
        row, column = node.start_point
        if column > _LONGEST_LINE:
            return Mark(row + 1, column + 1, self._file)
        return Mark(row + 1, len(self.written(node.start_byte - column, node.start_byte)) + 1, self._file)


def begin(node: Node) -> int:
    """Return where a part begins; the parser counts blanks before a `$` to it."""
    is_expanded = node.type in ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion")
    if not is_expanded or not node.children:
        return node.start_byte
    sign = node.children[0]
    return sign.end_byte - len((sign.text or b"").lstrip(b" \t\r\n\\"))
