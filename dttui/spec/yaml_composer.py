"""From YAML events to a YamlSource, refusing what a hostile document could do harm with.

Scalars are those of YAML 1.2's core schema. Depth, number of values and expansion of aliases are bounded, and a key
may come once: 396 bytes of aliases can stand for 387 million values, and a duplicate key would win silently.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

import yaml

from dttui.i18n import _
from dttui.spec.json_text import NOT_NUMBERS, is_json, yaml_events
from dttui.spec.problems import MAX_PROBLEMS, DocumentError, PathKey, Problem, did_you_mean, printable, shown
from dttui.spec.yaml_mistakes import explain, half_of_a_pair
from dttui.spec.yaml_source import LINE_BREAK, Mark, Value, YamlSource

MAX_DEPTH = 50
"""Deepest nesting, aliases followed."""
_MAX_NUMBER_LENGTH = 400

_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?[0-9]+")
_BASED_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULL = ("", "~", "null", "Null", "NULL")
TOO_LONG = object()
"""What stands for a number that Python would need long to read."""
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class DocumentLimits:
    """What a document may hold at most."""

    size_bytes: int = 1024 * 1024
    values: int = 100_000
    aliased_values: int = 10_000
    """That aliases stand for in all."""


DOCUMENT = DocumentLimits()
INVENTORY = DocumentLimits(16 * 1024 * 1024, 1_000_000, 200_000)
"""Of 10,000 hosts with all there is to say of each, and as much room again."""


def compose(text: str, name: str, limits: DocumentLimits = DOCUMENT) -> YamlSource:
    """Return the one document in `text`; `name` is what problems call it.

    What is wrong in single places, such as a key that is there twice, is left in the Source's `problems`.

    Raises:
        DocumentError: it is no YAML, or more of it than can be accepted; with every problem found.
    """
    return _Composer(text, name, limits).compose()


class _ParserMark(Protocol):
    """A place as PyYAML and libyaml both give it; from 0."""

    line: int
    column: int


class _Composer:
    """Builds a YamlSource from the parser's events, in one pass and without recursion."""

    def __init__(self, text: str, name: str, limits: DocumentLimits) -> None:
        self._text = text
        self._limits = limits
        self._is_json = is_json(text)
        self._source = YamlSource(name, None, tuple(LINE_BREAK.split(text)), None)
        self._root: Value | None = None
        self._stack: list[Value] = []
        self._keys: list[str | None] = []
        self._anchors: dict[str, Value] = {}
        self._problems: list[Problem] = []
        self._count = 0
        self._aliased = 0

    def compose(self) -> YamlSource:
        """Return the document, with its problems; see the function."""
        documents = 0
        try:
            for event in yaml_events(self._text, _PARSER):
                if isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        raise self._fatal(event, _("a second document begins here; one file holds one document"))
                elif isinstance(event, yaml.NodeEvent):
                    self._count += 1
                    if self._count > self._limits.values:
                        raise self._fatal(event, _("more than {limit} values").format(limit=self._limits.values))
                    self._enter(event)
                elif isinstance(event, yaml.CollectionEndEvent):
                    self._leave()
        except yaml.YAMLError as error:
            raise DocumentError([*self._problems, self._syntax_problem(error)]) from error
        root = self._root
        if root is not None and root.data is None and root.written == "":
            root = None
        problems = tuple(self._problems)
        return YamlSource(self._source.name, root.data if root else None, self._source.lines, root, problems)

    def _enter(self, event: yaml.NodeEvent) -> None:
        mark = _mark(event.start_mark)
        if isinstance(event, yaml.ScalarEvent) and _SURROGATE.search(event.value):
            raise self._fatal(event, half_of_a_pair())
        if self._stack and isinstance(self._stack[-1].items, dict) and self._keys[-1] is None:
            self._take_key(event, mark)
            return
        if isinstance(event, yaml.AliasEvent):
            self._attach(self._aliased_value(event))
            return
        value = Value(mark)
        if isinstance(event, yaml.ScalarEvent):
            self._resolve(event, value)
        else:
            self._check_tag(event, "map" if isinstance(event, yaml.MappingStartEvent) else "seq")
            if len(self._stack) >= MAX_DEPTH:
                raise self._fatal(event, _("nested deeper than {limit}").format(limit=MAX_DEPTH))
            value.items = {} if isinstance(event, yaml.MappingStartEvent) else []
            value.height = 1
        if event.anchor:
            self._anchors[event.anchor] = value
        if value.items is None:
            self._attach(value)
        else:
            self._stack.append(value)
            self._keys.append(None)

    def _leave(self) -> None:
        value = self._stack.pop()
        self._keys.pop()
        if isinstance(value.items, dict):
            value.data = {key: item.data for key, item in value.items.items()}
        elif value.items is not None:
            value.data = tuple(item.data for item in value.items)
        value.open = False
        self._attach(value)

    def _attach(self, value: Value) -> None:
        value.open = False
        if not self._stack:
            self._root = value
            return
        parent = self._stack[-1]
        if isinstance(parent.items, dict):
            key = self._keys[-1]
            self._keys[-1] = None
            if key is not None:
                parent.items.setdefault(key, value)
        elif parent.items is not None:
            parent.items.append(value)
        parent.size += value.size
        parent.height = max(parent.height, value.height + 1)

    def _take_key(self, event: yaml.NodeEvent, mark: Mark) -> None:
        """A key is its text, whatever a scalar of that spelling would stand for elsewhere."""
        if isinstance(event, yaml.ScalarEvent):
            key = event.value
            if event.anchor:
                self._anchors[event.anchor] = Value(mark, key, open=False)
        elif isinstance(event, yaml.AliasEvent) and isinstance(target := self._aliased_value(event).data, str):
            key = target
        else:
            raise self._fatal(event, _("a key must be text"))
        parent = self._stack[-1]
        path = (*self._path(), key)
        if key in parent.key_marks:
            first = parent.key_marks[key].line
            self._report(path, mark, _("this key is here twice; the first is in line {line}").format(line=first))
        elif key == "<<" and isinstance(event, yaml.ScalarEvent) and not event.style:  # In quotes it merges nothing.
            hint = _("write the keys out, or use an alias for a whole value")
            self._report(path, mark, _("merge keys are not part of YAML 1.2"), hint)
        parent.key_marks.setdefault(key, mark)
        self._keys[-1] = key

    def _aliased_value(self, event: yaml.AliasEvent) -> Value:
        name = str(event.anchor)
        value = self._anchors.get(name)
        if value is None:
            hint = did_you_mean(name, self._anchors) or _("put it in quotes if it is text")
            raise self._fatal(event, _('no anchor "{name}" before this').format(name=printable(name)), hint)
        if value.open:
            raise self._fatal(event, _('alias "{name}" is inside what it stands for').format(name=printable(name)))
        self._aliased += value.size
        if self._aliased > self._limits.aliased_values:
            message = _("aliases stand for more than {limit} values")
            raise self._fatal(event, message.format(limit=self._limits.aliased_values))
        if len(self._stack) + value.height > MAX_DEPTH:
            raise self._fatal(event, _("nested deeper than {limit}").format(limit=MAX_DEPTH))
        return value

    def _resolve(self, event: yaml.ScalarEvent, value: Value) -> None:
        text: str = event.value
        if event.tag not in (None, "!"):
            value.data = self._tagged(event, text)
        elif event.tag is None and event.implicit[0]:
            value.written = text
            value.data = plain_scalar(text)
            if self._is_json and text in NOT_NUMBERS:
                message = _("{value} is no value of JSON").format(value=text)
                self._report(self._place_of_next(), _mark(event.start_mark), message)
            if value.data is TOO_LONG:
                raise self._fatal(event, _("a number of {count} digits is too long").format(count=len(text)))
        else:
            value.data = text

    def _tagged(self, event: yaml.ScalarEvent, text: str) -> Any:
        kind = str(event.tag).removeprefix(_TAG)
        if kind == "str":
            return text
        if self._check_tag(event, "null", "bool", "int", "float"):
            plain = plain_scalar(text)
            data = float(plain) if kind == "float" and type(plain) is int else plain
            if type(data).__name__.replace("NoneType", "null") == kind:
                return data
            path = self._place_of_next()
            message = _("{value} is not of type {type}").format(value=shown(text), type=kind)
            self._report(path, _mark(event.start_mark), message)
        return text

    def _check_tag(self, event: yaml.NodeEvent, *kinds: str) -> bool:
        tag = getattr(event, "tag", None)
        if tag in (None, "!") or tag in [_TAG + kind for kind in kinds]:
            return True
        message = _("tag {tag} is not allowed here").format(tag=printable(str(tag)))
        self._report(self._place_of_next(), _mark(event.start_mark), message, _("remove it"))
        return False

    def _path(self) -> PathKey:
        """Return the path of the innermost open mapping or list."""
        path: list[str | int] = []
        for value, key in zip(self._stack[:-1], self._keys, strict=False):
            path.append(len(value.items) if isinstance(value.items, list) else str(key))
        return tuple(path)

    def _place_of_next(self) -> PathKey:
        if not self._stack:
            return ()
        items = self._stack[-1].items
        return (*self._path(), len(items) if isinstance(items, list) else str(self._keys[-1]))

    def _report(self, path: PathKey, mark: Mark, message: str, hint: str = "") -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(self._source.problem(path, mark, message, hint))

    def _fatal(self, event: yaml.Event, message: str, hint: str = "") -> DocumentError:
        self._report((), _mark(event.start_mark), message, hint)
        return DocumentError(self._problems)

    def _syntax_problem(self, error: yaml.YAMLError) -> Problem:
        from dttui.spec.fullwidth import find_slip  # With the models of findings: only where there is a mistake.

        mistake = explain(error, self._source.lines)
        language = "JSON" if self._is_json else "YAML"
        if slip := find_slip(self._source.lines, mistake.line, mistake.column):
            line, column, hint = slip
            message = _("not valid {language}").format(language=language)
            return self._source.problem((), Mark(line + 1, column + 1), message, hint)
        message = _("not valid {language}: {reason}").format(language=language, reason=mistake.reason)
        return self._source.problem((), Mark(mistake.line + 1, mistake.column + 1), message, mistake.hint)


def plain_scalar(text: str) -> Any:
    """Return what an unquoted scalar stands for under YAML 1.2's core schema."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text) if len(text) <= _MAX_NUMBER_LENGTH else TOO_LONG
    if _BASED_INT.fullmatch(text):
        return int(text, 0) if len(text) <= _MAX_NUMBER_LENGTH else TOO_LONG
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _mark(mark: _ParserMark | None) -> Mark:
    return Mark(mark.line + 1, mark.column + 1) if mark is not None else Mark(1, 1)
