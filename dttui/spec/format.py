"""The canonical form of a job file: keys in the order of the models, two spaces a level, every comment kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import BaseModel

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.spec.json_text import blank_comments, with_pairs_joined
from dttui.spec.loader import parse_document
from dttui.spec.models import JobDocument
from dttui.spec.problems import PathKey
from dttui.spec.schema_walk import keys_of, models_at
from dttui.spec.yaml_nodes import Comment, YamlEntry, YamlNode, YamlText
from dttui.spec.yaml_reader import decode, parse_yaml
from dttui.spec.yaml_source import LINE_BREAK
from dttui.spec.yaml_writer import flow

_INDENT = "  "
_WIDTH = 110
_ODD_BREAK = re.compile("[\x85\u2028\u2029]")
"""Breaks that stay what they are in quoted text, where LF becomes a blank."""
_PLAIN_KEY = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def format_job(content: str | bytes, name: str) -> str:
    """Return a job file in its canonical form; what it says and its comments stay.

    Args:
        content: the file.
        name: what problems call it.

    Raises:
        DocumentError: it is no valid job; with every problem found.
        UsageError: it cannot be brought into this form without another meaning.
    """
    text = decode(content, name)
    if parse_document(text, name).dialect is not None:
        hint = _("`dttui import {file}` makes a job file of it.").format(file=name)
        raise UsageError(_("{file} is a job in another language").format(file=name), hint)
    before = parse_yaml(text, name).data
    page = YamlText(text)
    made = _Formatter(page).lines()
    result = "".join(f"{line}\n" for line in made)
    has_json_comments = blank_comments(text) != text.replace("\t", " ")
    if (
        not has_json_comments
        and parse_yaml(result, name).data == before
        and _comment_texts(YamlText(result)) == _comment_texts(page)
    ):
        return result
    raise UsageError(
        _("{file} cannot be formatted without changing what it says").format(file=name),
        _("It is left as it is. Comments of JSON, or one in an unusual place, may be the reason."),
    )


def _comment_texts(page: YamlText) -> list[str]:
    return sorted(comment.text for comment in page.comments)


@dataclass
class _EntryComments:
    """The comments that go with an entry."""

    above: list[Comment] = field(default_factory=list)
    head: Comment | None = None
    """Behind the key of a block."""
    behind: Comment | None = None
    """Behind the value."""
    below: list[Comment] = field(default_factory=list)
    """Below the last entry of a block."""


class _Formatter:
    """Writes a document anew. Comments are first given to the entries they go with."""

    def __init__(self, page: YamlText) -> None:
        self._page = page
        self._pending = list(reversed(page.comments))
        self._comment_texts: dict[int, _EntryComments] = {}
        self._top = _EntryComments()
        # A key that moves could come before the anchor it refers to.
        self._sorts = page.root is None or all(node.kind != "alias" for node in page.root.walk())

    def lines(self) -> list[str]:
        """Return the lines of the document."""
        root = self._page.root
        if root is None:
            return [comment.text for comment in self._page.comments]
        if root.entries:
            self._top.above = self._taken(root.entries[0].start)
        self._give(root, len(self._page.text), self._top)
        self._top.below += self._taken(len(self._page.text))
        found = [*self._comments(self._top.above, ""), *self._block(root, "", ())]
        if root.entries and self._top.above and self._is_after_blank(root.entries[0].start):
            found.insert(len(list(self._comments(self._top.above, ""))), "")
        return _without_blanks_at_ends([*found, *self._comments(self._top.below, "")])

    # --- whose a comment is -------------------------------------------------------------------------------------------

    def _give(self, node: YamlNode, limit: int, remarks: _EntryComments) -> None:
        """Give the comments within a block, and those behind it that are as far in, to its entries."""
        page = self._page
        within = node.end if node.style else limit
        for index, entry in enumerate(node.entries):
            own = self._comment_texts.setdefault(id(entry), _EntryComments())
            own.above += self._taken(entry.start)
            value, opener = entry.value, entry.key.end if entry.key is not None else entry.start
            until = node.entries[index + 1].start if index + 1 < len(node.entries) else within
            if self._is_block(value):
                own.head = self._taken_from_line(opener, value.entries[0].start)
                self._give(value, until, own)
                own.behind = self._taken_from_line(value.end - 1, until)
                continue
            between = self._taken(value.end)
            own.behind = self._taken_from_line(max(value.end - 1, value.start), until)
            if len(between) == 1 and own.behind is None and page.line(value.start) == page.line(value.end):
                own.behind = between.pop()
            own.above += between
        depth = page.column(node.content)
        while self._pending and self._pending[-1].start < within:
            comment = self._pending[-1]
            if not node.style and page.column(comment.start) < depth:
                break
            remarks.below.append(self._pending.pop())

    def _taken(self, until: int) -> list[Comment]:
        found = []
        while self._pending and self._pending[-1].start < until:
            found.append(self._pending.pop())
        return found

    def _taken_from_line(self, position: int, until: int) -> Comment | None:
        """Take the next comment if it stands in the line of a place, and before another."""
        if not self._pending:
            return None
        start = self._pending[-1].start
        same_line = self._page.line(start) == self._page.line(position)
        return self._pending.pop() if same_line and position <= start < until else None

    # --- writing ------------------------------------------------------------------------------------------------------

    def _is_block(self, node: YamlNode) -> bool:
        """Whether a value is written as a block: brackets are kept around what stands on one line."""
        if node.kind not in ("mapping", "sequence") or not node.entries:
            return False
        return node.is_block or self._page.line(node.start) != self._page.line(node.end)

    def _block(self, node: YamlNode, indent: str, path: PathKey) -> Iterator[str]:
        entries = self._ordered(node, path)
        for index, entry in enumerate(entries):
            own = self._comment_texts[id(entry)]
            if index and self._is_after_blank(own.above[0].start if own.above else entry.start):
                yield ""
            yield from self._comments(own.above, indent)
            if own.above and self._is_after_blank(entry.start):
                yield ""
            inner = (*path, entry.key.text if entry.key is not None else index)
            yield from self._entry(entry, own, indent, inner)

    def _entry(self, entry: YamlEntry, own: _EntryComments, indent: str, path: PathKey) -> Iterator[str]:
        page, value = self._page, entry.value
        opener = indent + ("-" if entry.key is None else self._key(entry.key, path))
        if not self._is_block(value):
            first, *more = self._inline(value, indent, path)
            lines = [f"{opener} {first}" if first else opener, *more]
            if own.behind is not None:
                lines[-1] = self._with(lines[-1], own.behind)
            yield from lines
            return
        props = page.text[value.start : value.content] if value.is_block else ""
        props = " ".join(re.sub("#.*", "", props).split()) if value.is_block else self._props(value)
        inner = list(self._block(value, indent + _INDENT, path))
        if entry.key is None and not props and own.head is None and not self._comments_above_first(value, path):
            yield f"{opener} {inner[0].lstrip(' ')}"
            yield from inner[1:]
        else:
            line = f"{opener} {props}".rstrip()
            yield self._with(line, own.head) if own.head is not None else line
            yield from inner
        if own.behind is not None:
            yield f"{indent}{_INDENT}{own.behind.text}"
        yield from self._comments(own.below, indent + _INDENT)

    def _comments_above_first(self, node: YamlNode, path: PathKey) -> bool:
        return bool(self._comment_texts[id(self._ordered(node, path)[0])].above)

    def _inline(self, node: YamlNode, indent: str, path: PathKey) -> list[str]:
        """Return the lines of a value that begins behind its key."""
        page = self._page
        if node.kind in ("mapping", "sequence"):
            return [self._flow(node, path)]
        lines = LINE_BREAK.split(page.text[node.start : node.end])
        if len(lines) == 1:
            return [with_pairs_joined(lines[0])] if node.style == '"' else lines
        if node.style in ("|", ">"):
            return [lines[0], *_shifted(lines[0], lines[1:], indent)]
        if _ODD_BREAK.search(page.text, node.start, node.end) and page.text[node.start] in ("'", '"'):
            return [flow(node.text, quotes='"')]
        more = [line.strip(" \t") for line in lines[1:]]
        return [lines[0].rstrip(" \t"), *(f"{indent}{_INDENT}{line}" if line else "" for line in more)]

    def _flow(self, node: YamlNode, path: PathKey) -> str:
        """Return a value on one line, in brackets where it is a collection."""
        if node.kind not in ("mapping", "sequence"):
            return self._inline(node, "", path)[0] or "null"
        parts = []
        for index, entry in enumerate(self._ordered(node, path)):
            if entry.key is None:
                parts.append(self._flow(entry.value, (*path, index)))
            else:
                inner = (*path, entry.key.text)
                parts.append(f"{self._key(entry.key, inner)} {self._flow(entry.value, inner)}")
        inside = ", ".join(parts)
        props = self._props(node)
        return (f"{props} " if props else "") + (f"{{{inside}}}" if node.kind == "mapping" else f"[{inside}]")

    def _props(self, node: YamlNode) -> str:
        return " ".join(self._page.text[node.start : node.content].split())

    def _key(self, key: YamlNode, path: PathKey) -> str:
        if key.kind == "alias":
            return f"{self._page.text[key.start : key.end]} :"
        written = self._page.text[key.start : key.end]
        if key.text in self._known(path[:-1]) and _PLAIN_KEY.fullmatch(key.text) and key.anchor is None:
            return f"{key.text}:"
        is_one_line = written and not LINE_BREAK.search(written)
        return f"{written if is_one_line else flow(key.text, quotes=chr(34))}:"

    def _known(self, path: PathKey) -> list[str]:
        return [name for model in _models(path) for name in keys_of(model)]

    def _ordered(self, node: YamlNode, path: PathKey) -> list[YamlEntry]:
        if node.kind != "mapping" or not self._sorts:
            return node.entries
        known = self._known(path)
        places = {name: place for place, name in enumerate(known)}
        return sorted(node.entries, key=lambda entry: places.get(entry.key.text if entry.key else "", len(places)))

    def _comments(self, comments: list[Comment], indent: str) -> Iterator[str]:
        for index, comment in enumerate(comments):
            if index and self._is_after_blank(comment.start):
                yield ""
            yield f"{indent}{comment.text}"

    def _with(self, line: str, comment: Comment) -> str:
        """Return a line with a comment behind it, in the column where it stood if there is room."""
        return f"{line.ljust(max(len(line) + 2, self._page.column(comment.start)))}{comment.text}"

    def _is_after_blank(self, position: int) -> bool:
        start = self._page.line_start(position)
        if not start:
            return False
        before = self._page.line_start(start - 1)
        return not self._page.text[before:start].strip()


def _models(path: PathKey) -> list[type[BaseModel]]:
    return models_at(JobDocument, path)


def _shifted(header: str, lines: list[str], indent: str) -> list[str]:
    """Return the lines of a block scalar, moved to where their key is now."""
    told = re.search("[1-9]", header.split("#")[0])
    depth = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip(" ")), default=0)
    target = indent + (_INDENT if told is None else " " * int(told[0]))
    return [f"{target}{line[depth:]}" if line.strip(" ") else line[depth:] for line in lines]


def _without_blanks_at_ends(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines
