"""Adds environments to an inventory file. What a person wrote there, comments and all, stays as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import yaml

from dttui.errors import UsageError
from dttui.files import write_atomic
from dttui.i18n import _
from dttui.inventory.models import Environment, Inventory
from dttui.inventory.reader import is_foreign, parse_inventory
from dttui.locations import SLURM
from dttui.spec.problems import DocumentError, Problem
from dttui.spec.yaml_composer import INVENTORY
from dttui.spec.yaml_writer import dump_yaml

_KEY = "environments"


def add_environments(path: Path, environments: Sequence[Environment]) -> Inventory:
    """Append environments to an inventory file, made (mode 0600) where there is none, and return what it now holds.

    The file is replaced in one step, so that a reader sees the old one or the new one.

    Raises:
        DocumentError: the file is there and is no inventory.
        UsageError: a name is taken, the file cannot be written, or is of a form that cannot be added to.
    """
    if str(path) == SLURM:
        raise UsageError(_("an allocation of Slurm cannot be added to"), _("Name a file with --inventory."))
    target = Path(os.path.realpath(path))
    try:
        content = target.read_bytes() if target.exists() else None
    except OSError as error:
        raise DocumentError(
            [Problem(str(path), _("cannot be read: {reason}").format(reason=error.strerror))]
        ) from error
    before = parse_inventory(content or b"", str(path))
    if not environments and content is not None:
        return before
    if content is not None and is_foreign(content, str(path)):
        message = _("{file} is written in a way that cannot be added to").format(file=path)
        raise UsageError(message, _("Name a file with --inventory."))
    wanted = _joined(before, environments, str(path))
    text = _extended((content or b"").decode("utf-8-sig"), environments, wanted, str(path))
    try:
        write_atomic(target, text)
    except OSError as error:
        raise UsageError(_("cannot write {file}: {reason}").format(file=path, reason=error.strerror)) from error
    return wanted


def _joined(inventory: Inventory, environments: Sequence[Environment], name: str) -> Inventory:
    handles = {handle for item in inventory.environments for handle in (item.name, item.id)}
    taken = [item.name for item in environments if {item.name, item.id or item.name} & handles]
    if taken:
        raise UsageError(_("{file} has these already: {names}").format(file=name, names=", ".join(taken)))
    return Inventory(environments=(*inventory.environments, *environments), datasets=inventory.datasets)


@dataclass(frozen=True)
class _List:
    """Where the list of environments stands in a file; lines and columns from 0."""

    key_column: int
    next_line: int
    """First line after the list's content."""
    item_column: int | None = None
    """Column of the dashes of a block list."""
    bracket: int | None = None
    """Position of the closing bracket of a list in brackets."""


def _extended(text: str, environments: Sequence[Environment], wanted: Inventory, name: str) -> str:
    """Return the text with the environments in it; of the ways to write them, the first that reads back as wanted."""
    items = [item.model_dump(mode="json", exclude_defaults=True, exclude_none=True) for item in environments]
    for candidate in _candidates(text, items):
        try:
            if len(candidate.encode()) <= INVENTORY.size_bytes and parse_inventory(candidate, name) == wanted:
                return candidate
        except DocumentError:
            continue
    message = _("{file} is written in a way that cannot be added to").format(file=name)
    raise UsageError(message, _("Add these lines by hand:") + "\n" + dump_yaml({_KEY: items}))


def _candidates(text: str, items: list[dict[str, object]]) -> Iterator[str]:
    newline = "\r\n" if "\r\n" in text else "\n"
    place = _find(text)
    if place is None:
        joint = "" if not text or text.endswith("\n") else newline
        yield text + joint + dump_yaml({_KEY: items}).replace("\n", newline)
    elif place.bracket is not None:
        flow = yaml.safe_dump(items, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
        for joint in (", ", "", " "):
            yield text[: place.bracket] + joint + flow.strip()[1:-1] + text[place.bracket :]
    else:
        column = place.key_column + 2 if place.item_column is None else place.item_column
        block = "".join(" " * column + line + "\n" for line in dump_yaml(items).splitlines())
        lines = text.splitlines(keepends=True)
        head = "".join(lines[: place.next_line])
        joint = "" if not head or head.endswith(("\n", "\r")) else newline
        yield head + joint + block.replace("\n", newline) + "".join(lines[place.next_line :])


def _find(text: str) -> _List | None:
    """Return where the environments are listed; `None` where their key is missing."""
    key: yaml.Mark | None = None
    first: yaml.NodeEvent | None = None
    depth = 0
    next_line = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        start, end = cast("yaml.Mark", event.start_mark), cast("yaml.Mark", event.end_mark)  # this parser gives both
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if key is None:
            if depth == 1 and isinstance(event, yaml.ScalarEvent) and event.value == _KEY:
                key = start
            depth += isinstance(event, yaml.CollectionStartEvent)
            continue
        if first is None:
            first = cast("yaml.NodeEvent", event)  # a value follows every key
        # The end of a block is noticed only at what follows it, and has no extent.
        if isinstance(event, yaml.NodeEvent) or start.index != end.index:
            next_line = end.line + (end.column > 0)
        if depth == 1 and not isinstance(event, yaml.CollectionStartEvent):
            if not isinstance(first, yaml.SequenceStartEvent):
                return _List(key.column, next_line)
            column = cast("yaml.Mark", first.start_mark).column
            return _List(key.column, next_line, column, start.index if first.flow_style else None)
        depth += isinstance(event, yaml.CollectionStartEvent)
    return None
