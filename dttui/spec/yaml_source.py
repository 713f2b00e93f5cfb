"""A YAML document that was read: plain data that remembers where each key and value stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dttui.spec.problems import PathKey, Problem

LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""What the parser counts as the end of a line."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a document; both count from 1, columns in characters."""

    line: int
    column: int
    file: str = ""
    """Another file that the document brings in, such as a script that it starts."""

    @property
    def line_text(self) -> str:
        """The line's number, after the other file's name where it is of one."""
        return f"{self.file}:{self.line}" if self.file else str(self.line)


@dataclass(slots=True)
class Value:
    """A node of the document."""

    mark: Mark
    data: Any = None
    written: str | None = None
    """The text of a plain scalar, whatever it stands for."""
    items: list[Value] | dict[str, Value] | None = None
    key_marks: dict[str, Mark] = field(default_factory=dict)
    size: int = 1
    """Values in it, itself included, aliases followed."""
    height: int = 0
    """Mappings and lists on the longest way down from it, itself included."""
    open: bool = True
    """Whether its end has not been seen yet."""


@dataclass(frozen=True)
class YamlSource:
    """A document that was read: its data, and where everything in it stands."""

    name: str
    """The file, as the person named it."""
    data: Any
    """Mappings as dict with text keys, lists as tuple, scalars as `str`, `int`, `float`, `bool` and `None`."""
    lines: tuple[str, ...]
    """The document's lines, without their ends."""
    _root: Value | None
    problems: tuple[Problem, ...] = ()
    """What is wrong with it as YAML, where it can be read even so."""
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Lines of the other files that places in it are of, by their names."""

    @property
    def root(self) -> Value | None:
        """The document's own node; `None` where there is nothing but comments and blanks."""
        return self._root

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but comments and blanks."""
        return self._root is None

    def has(self, path: PathKey) -> bool:
        """Whether something stands at `path`."""
        return self._find(path) is not None

    def value(self, path: PathKey) -> Any:
        """Return the data at `path`, or `None` where there is none."""
        found = self._find(path)
        return found.data if found is not None else None

    def mark(self, path: PathKey) -> Mark:
        """Return where the value at `path` begins, or else the nearest thing above it."""
        for length in range(len(path), 0, -1):
            value = self._find(path[:length])
            if value is not None:
                return value.mark
        return self._root.mark if self._root is not None else Mark(1, 1)

    def key_mark(self, path: PathKey) -> Mark:
        """Return where the key that `path` ends with stands; for an item of a list, where the item begins."""
        parent = self._find(path[:-1]) if path else None
        if parent is not None and path[-1] in parent.key_marks:
            return parent.key_marks[str(path[-1])]
        return self.mark(path)

    def written(self, path: PathKey) -> str | None:
        """Return the text of the plain scalar at `path`: `1e-4`, `010`; `None` where something else stands there."""
        value = self._find(path)
        return value.written if value is not None else None

    def with_part(self, key: str, part: YamlSource, place: Callable[[Mark], Mark]) -> YamlSource:
        """Return the document with another one in it, whose places become places of this one.

        Args:
            key: at the top of this document, below which the part is from then on; what was there is no more.
            part: the other document.
            place: where something of the part stands in this document.
        """
        inner = _placed(part.root or Value(Mark(1, 1), {}, items={}), lambda mark: mark if mark.file else place(mark))
        items = self._root.items if self._root is not None and isinstance(self._root.items, dict) else {}
        marks = self._root.key_marks if self._root is not None else {}
        root = Value(
            self._root.mark if self._root is not None else inner.mark,
            {**(self.data if isinstance(self.data, dict) else {}), key: inner.data},
            items={**items, key: inner},
            key_marks={key: inner.mark, **marks},
            open=False,
        )
        return replace(self, data=root.data, _root=root, others={**self.others, **part.others})

    def problem(self, path: PathKey, mark: Mark, message: str, hint: str = "") -> Problem:
        """Return a problem at a place of this document."""
        lines = self.others.get(mark.file, ()) if mark.file else self.lines
        line = lines[mark.line - 1] if mark.line <= len(lines) else ""
        return Problem(mark.file or self.name, message, hint, path, mark.line, mark.column, line)

    def _find(self, path: PathKey) -> Value | None:
        value = self._root
        for key in path:
            match value:
                case Value(items=dict() as mapping) if isinstance(key, str):
                    value = mapping.get(key)
                case Value(items=list() as items) if isinstance(key, int) and 0 <= key < len(items):
                    value = items[key]
                case _:
                    return None
        return value


def _placed(value: Value, place: Callable[[Mark], Mark]) -> Value:
    """Return a value of another document with places of this one."""
    items: list[Value] | dict[str, Value] | None = None
    if isinstance(value.items, dict):
        items = {key: _placed(item, place) for key, item in value.items.items()}
    elif isinstance(value.items, list):
        items = [_placed(item, place) for item in value.items]
    marks = {key: place(mark) for key, mark in value.key_marks.items()}
    return replace(value, mark=place(value.mark), items=items, key_marks=marks)
