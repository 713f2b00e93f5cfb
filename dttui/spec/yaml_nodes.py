"""A YAML document as text: where each node begins and ends, and where the comments are. Knows no values.

It is for text that `yaml_composer` has read before: depth and size are bounded there, and mistakes told.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from dttui.spec.json_text import yaml_events
from dttui.spec.yaml_source import LINE_BREAK

_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BLANK_LINES = re.compile("(?:[\n\r\x85\u2028\u2029][ \t]*)+\\Z")
_COMMENT = re.compile("#[^\n\r\x85\u2028\u2029]*")


@dataclass(slots=True)
class YamlNode:
    """A value, or a key, in the text. All places are offsets in characters."""

    kind: Literal["scalar", "mapping", "sequence", "alias"]
    start: int
    """Where it begins, its anchor and tag included."""
    content: int
    """Where it begins without these: the first key or dash of a block, the bracket of a flow collection."""
    end: int
    """Behind its last character; a block ends with the last thing in it, not with the blanks after that."""
    style: str = ""
    """A scalar's quotes or the sign of a block scalar; `{` for a flow collection; empty for all that is plain."""
    text: str = ""
    """A scalar's value."""
    anchor: str | None = None
    """Its own; of an alias, what it stands for."""
    entries: list[YamlEntry] = field(default_factory=list)
    """What is in a collection."""

    @property
    def is_block(self) -> bool:
        """Whether it is a collection without brackets."""
        return self.kind in ("mapping", "sequence") and not self.style

    def find(self, key: str) -> YamlEntry | None:
        """Return the entry of a mapping that has a key."""
        return next((entry for entry in self.entries if entry.key is not None and entry.key.text == key), None)

    def walk(self) -> Iterator[YamlNode]:
        """Yield it and all below, keys too, in the order of the text."""
        yield self
        for entry in self.entries:
            if entry.key is not None:
                yield entry.key
            yield from entry.value.walk()


@dataclass(slots=True)
class YamlEntry:
    """A key and its value, or an item of a list."""

    start: int
    """Where the key begins, or the dash."""
    key: YamlNode | None
    value: YamlNode


@dataclass(frozen=True, slots=True)
class Comment:
    """From its `#` to the end of the line."""

    start: int
    text: str


class YamlText:
    """The text of a document together with its nodes and comments."""

    def __init__(self, text: str) -> None:
        """Find the nodes and comments of a text that was read before, without a byte order mark."""
        self.text = text
        breaks = list(LINE_BREAK.finditer(text))
        self._line_starts = [0, *(match.end() for match in breaks)]
        self._line_ends = [*(match.start() for match in breaks), len(text)]
        self.root = self._parse()
        """The document; `None` where there is nothing but comments and blanks."""
        self.comments = self._find_comments()
        """In their order."""

    def line(self, position: int) -> int:
        """Return the number of the line that a place is in, from 0."""
        return bisect_right(self._line_starts, position) - 1

    def line_start(self, position: int) -> int:
        """Return where the line of a place begins."""
        return self._line_starts[self.line(position)]

    def line_end(self, position: int) -> int:
        """Return where the line of a place ends, before its line break."""
        return self._line_ends[self.line(position)]

    def next_line(self, position: int) -> int:
        """Return where the line after that of a place begins; the end of the text where there is none."""
        line = self.line(position) + 1
        return self._line_starts[line] if line < len(self._line_starts) else len(self.text)

    def column(self, position: int) -> int:
        """Return how far from the beginning of its line a place is, in characters."""
        return position - self.line_start(position)

    def starts_line(self, position: int) -> bool:
        """Whether nothing but blanks comes before a place in its line."""
        return not self.text[self.line_start(position) : position].strip(" ")

    def _parse(self) -> YamlNode | None:
        stack: list[YamlNode] = []
        keys: list[YamlNode | None] = []
        root: YamlNode | None = None
        for event in yaml_events(self.text, _PARSER):
            if isinstance(event, yaml.CollectionEndEvent):
                node = stack.pop()
                keys.pop()
                if node.style:
                    node.end = _end(event)
                else:
                    node.end = max([node.end, *(entry.value.end for entry in node.entries)])
                    self._find_dashes(node)
            elif isinstance(event, yaml.NodeEvent):
                node = self._node(event)
                if stack and stack[-1].kind == "mapping" and keys[-1] is None:
                    keys[-1] = node
                    continue
                if not stack:
                    root = node
                else:
                    key = keys[-1]
                    keys[-1] = None
                    stack[-1].entries.append(YamlEntry(key.start if key is not None else node.start, key, node))
                if isinstance(event, yaml.CollectionStartEvent):
                    stack.append(node)
                    keys.append(None)
        return root

    def _node(self, event: Any) -> YamlNode:
        text, start, end = self.text, _start(event), _end(event)
        if isinstance(event, yaml.AliasEvent):
            return YamlNode("alias", start, start, end, anchor=event.anchor)
        if isinstance(event, yaml.ScalarEvent):
            style = event.style or ""
            if style in ("|", ">"):
                end = start + len(_BLANK_LINES.sub("", text[start:end]))
            return YamlNode("scalar", start, start, end, style, event.value, event.anchor)
        kind: Literal["mapping", "sequence"] = "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence"
        if event.flow_style:
            # `[a: 1]` holds a mapping without brackets of its own.
            content = end - 1 if text[end - 1 : end] in ("[", "{") and end > start else start
            return YamlNode(kind, start, content, end, "{", anchor=event.anchor)
        # A list that is no further in than its key: the parser has gone past the first dash already.
        past_dash = kind == "sequence" and text[end - 1 : end] == "-" and text[end : end + 1] != "-"
        content = end - 1 if past_dash else end
        return YamlNode(kind, start, content, content, anchor=event.anchor)

    def _find_dashes(self, node: YamlNode) -> None:
        """Set where the items of a list begin: between two stands nothing but comments, blanks and the dash."""
        if node.kind != "sequence":
            return
        position = node.content
        for entry in node.entries:
            while self.text[position] != "-":
                position = self.line_end(position) if self.text[position] == "#" else position + 1
            entry.start = position
            position = max(entry.value.end, position + 1)

    def _find_comments(self) -> list[Comment]:
        found: list[Comment] = []
        position = 0
        leaves = [node for node in self.root.walk() if not node.entries] if self.root is not None else []
        for leaf in leaves:
            found += self._comments_between(position, leaf.start)
            # There may be comments between the brackets of an empty list.
            position = leaf.content if leaf.kind in ("mapping", "sequence") else leaf.end
        return found + self._comments_between(position, len(self.text))

    def _comments_between(self, start: int, end: int) -> list[Comment]:
        return [Comment(match.start(), match[0].rstrip()) for match in _COMMENT.finditer(self.text, start, end)]


def _start(event: Any) -> int:
    """Return where an event begins; the type of its marks differs between the parsers."""
    return int(event.start_mark.index)


def _end(event: Any) -> int:
    return int(event.end_mark.index)
