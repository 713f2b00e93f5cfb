"""A script's text as the parser gets it, and where its parts stand in what was written."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from dttui.spec.yaml_source import Mark

if TYPE_CHECKING:
    from tree_sitter import Node

_BARE = re.compile(rb"(?<!\\)\$([A-Za-z_]\w*)(?=[-./,:@%+~^=#!*?])")
_DANGLING = re.compile(r"\\\s*\Z")


class Source:
    """A script.

    The parser loses a variable within a word where something follows it, as in `$DIR/log.$ID.out` (tree-sitter-bash
    0.25), and so gets it in braces.
    """

    def __init__(self, text: str) -> None:
        written = _DANGLING.sub("\n", text).encode(errors="replace")
        pieces: list[bytes] = []
        self._added: list[int] = []
        at = length = 0
        for match in _BARE.finditer(written):
            before = written[at : match.start()]
            pieces += (before, b"${", match[1], b"}")
            start = length + len(before)
            length = start + len(match[1]) + 3
            self._added += (start + 1, length - 1)
            at = match.end()
        pieces.append(written[at:])
        self.parsed = b"".join(pieces)

    def text(self, start: int, end: int) -> str:
        """Return what the parser got between two offsets."""
        return self.parsed[start:end].decode(errors="replace")

    def written(self, start: int, end: int) -> str:
        """Return what was written there."""
        first, last = bisect_left(self._added, start), bisect_left(self._added, end)
        kept, at = b"", start
        for added in self._added[first:last]:
            kept += self.parsed[at:added]
            at = added + 1
        return (kept + self.parsed[at:end]).decode(errors="replace")

    def mark(self, node: Node) -> Mark:
        """Return the line of a node, and its column in characters, both from 1."""
        row, column = node.start_point
        return Mark(row + 1, len(self.written(node.start_byte - column, node.start_byte)) + 1)


def begin(node: Node) -> int:
    """Return where a part begins; the parser counts blanks before a `$` to it."""
    is_expanded = node.type in ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion")
    if not is_expanded or not node.children:
        return node.start_byte
    sign = node.children[0]
    return sign.end_byte - len((sign.text or b"").lstrip(b" \t\r\n\\"))
