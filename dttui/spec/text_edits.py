"""Changes to the text of a YAML document that are gathered first and made at once. Knows nothing of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dttui.spec.yaml_nodes import YamlEntry, YamlNode, YamlText
from dttui.spec.yaml_writer import dump_yaml, flow

_WIDTH = 110
_INDENT = 2


class TextEdits:
    """Gathers what is to be replaced, inserted and removed."""

    def __init__(self, page: YamlText) -> None:
        self._page = page
        self._found: list[tuple[int, int, str]] = []

    def apply(self) -> str:
        """Return the changed text, its lines ended as they were."""
        text = self._page.text
        newline = "\r\n" if "\r\n" in text else "\n"
        parts: list[str] = []
        position = 0
        for start, end, new in sorted(self._found, key=lambda edit: edit[:2]):
            parts += [text[position:start], new.replace("\n", newline)]
            position = max(position, end)
        return "".join([*parts, text[position:]])

    def replace(self, entry: YamlEntry, value: Any, parent: YamlNode | None, *, in_flow: bool) -> None:
        """Write an entry's value anew, in the style that it has.

        Args:
            entry: the key or dash, and its value.
            value: what it shall be; plain data.
            parent: the collection that the entry is in.
            in_flow: whether that has brackets.
        """
        page, node = self._page, entry.value
        is_collection = isinstance(value, (dict, list)) and bool(value)
        indent = page.column(parent.content) + _INDENT if parent is not None else _INDENT
        if node.is_block and is_collection:
            same_kind = isinstance(value, dict) == (node.kind == "mapping")
            at = page.column(node.content) if same_kind else max(page.column(node.content), indent)
            self._write_over(node.content, node.end, _indented(dump_yaml(value), at).lstrip(" "))
        elif node.is_block and entry.key is not None:
            colon = page.text.index(":", entry.key.end) + 1
            remarks = [comment.text for comment in page.comments if colon <= comment.start < node.content]
            self._write_over(colon, node.end, "  ".join([f" {flow(value)}", *remarks[:1]]))
        else:
            quotes = node.style if node.style in ("'", '"') else ""
            written = flow(value, quotes=quotes)
            start, before = node.start, page.text[node.start - 1 : node.start]
            if is_collection and not in_flow and not node.style and page.column(start) + len(written) > _WIDTH:
                start -= before == " "
                written = "\n" + _indented(dump_yaml(value), indent)
            elif node.start == node.end:
                written = f" {written}" if before in (":", "-") else written if before.isspace() else f": {written}"
            self._write_over(start, node.end, written)

    def insert(
        self, value: dict[str, Any] | list[Any], after: YamlEntry | None, first: YamlEntry, block: YamlNode
    ) -> None:
        """Add a key or an item to a block.

        Args:
            value: a mapping of the one key, or a list of the one item.
            after: the entry that it follows; `None` for the beginning.
            first: the entry that is the first otherwise.
            block: what it is added to.
        """
        page, indent = self._page, self._page.column(block.content)
        lines = _indented(dump_yaml(value), indent)
        if after is not None:
            position = self._end_of(after, indent)
            at_open_end = position == len(page.text) and page.line_start(position) != position
            self._write_over(position, position, f"\n{lines}" if at_open_end else f"{lines}\n")
        elif page.starts_line(first.start):
            position = page.line_start(first.start)
            self._write_over(position, position, f"{lines}\n")
        else:
            self._write_over(first.start, first.start, f"{lines.lstrip(' ')}\n{' ' * indent}")

    def remove(self, entries: Sequence[YamlEntry], block: YamlNode) -> None:
        """Take entries out of a block, each with the comments that are further in; at least one must remain."""
        page, indent = self._page, self._page.column(block.content)
        rest = list(entries)
        if rest and not page.starts_line(block.entries[0].start) and block.entries[0] in rest:
            # It shares its line with what the block is in: the first that remains moves up.
            remaining = next(entry for entry in block.entries if entry not in entries)
            self._write_over(block.entries[0].start, remaining.start, "")
            rest = [entry for entry in rest if entry.start > remaining.start]
        for entry in rest:
            self._write_over(page.line_start(entry.start), self._end_of(entry, indent), "")

    def _end_of(self, entry: YamlEntry, indent: int) -> int:
        """Return where the line behind an entry begins, and behind the comments that are further in than it."""
        page = self._page
        end = position = page.next_line(entry.value.end)
        while position < len(page.text):
            line = page.text[position : page.line_end(position)]
            told = line.lstrip(" ")
            if told.startswith("#") and len(line) - len(told) > indent:
                end = page.next_line(position)
            elif told.strip():
                break
            position = page.next_line(position)
        return end

    def _write_over(self, start: int, end: int, text: str) -> None:
        self._found.append((start, end, text))


def _indented(text: str, indent: int) -> str:
    return "\n".join(" " * indent + line if line else line for line in text.rstrip("\n").split("\n"))
