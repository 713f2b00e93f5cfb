"""Telling once what is to be said alike of several nodes. Pure: findings in, fewer findings out.

What is alike is found by what messages were made of, not by their words: it is the same in every language.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dttui.i18n import Message, msg, retell
from dttui.words import listed

if TYPE_CHECKING:
    from dttui.spec.findings import Finding

MOST_NAMES = 4
"""Nodes that a sentence names; the others are counted."""
_ANY_NODE = "\0"
"""Stands for the node where messages are compared; no value of one has it."""
_BAD_RECIPE = (LookupError, ValueError, TypeError, AttributeError)


@dataclass(frozen=True)
class Saying:
    """What is said of a node, or of something else."""

    subject: str
    message: str
    hint: str
    kind: object
    """What must be equal for sayings to be told together: code and severity."""


def merge(sayings: Sequence[Saying]) -> list[tuple[int, str, str]]:
    """Return index, message and hint of what is to be told: of sayings that differ in nothing but their node the first.

    A message that can be told so begins with its node: `gpu1: there is no /data`.
    """
    groups: dict[object, list[int]] = {}
    for index, item in enumerate(sayings):
        rest = _of_another(item.message, item.subject, _ANY_NODE)
        if rest is None:
            groups[index] = [index]
            continue
        hint = _with(item.hint.recipe, item.subject, _ANY_NODE) if isinstance(item.hint, Message) else item.hint
        groups.setdefault((item.kind, json.dumps([rest, hint], sort_keys=True)), []).append(index)
    return [(group[0], *_merged_text([sayings[index] for index in group])) for group in groups.values()]


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, those that differ in nothing but their node as one."""
    told = merge([Saying(item.subject, item.message, item.hint, (item.code, item.severity)) for item in findings])
    return [findings[index].model_copy(update={"message": message, "hint": hint}) for index, message, hint in told]


def without_node(message: str, node: str) -> str:
    """Return a message that begins with its node without that, where the name stands above or beside it already."""
    rest = _of_another(message, node, "")
    return retell(rest).lstrip(":： ") if rest is not None else message


def _merged_text(group: list[Saying]) -> tuple[str, str]:
    first = group[0]
    if len(group) == 1:
        return first.message, first.hint
    names = [item.subject for item in group]
    nodes = msg("on {count} nodes ({names})", count=len(names), names=listed(names, MOST_NAMES))
    recipe = _of_another(first.message, first.subject, nodes.recipe)
    message = Message.of(retell(recipe), recipe) if recipe is not None else first.message
    if not isinstance(first.hint, Message) or all(item.hint == first.hint for item in group):
        return message, first.hint
    # Behind a command they are its arguments, all of them.
    every = " ".join(names) if "dttui " in str(first.hint.recipe) else listed(names, MOST_NAMES)
    told = _with(first.hint.recipe, first.subject, every)
    return message, Message.of(retell(told), told)


def _of_another(message: str, node: str, other: object) -> dict[str, Any] | None:
    """Return what makes a message with another node at its beginning; `None` of one that does not begin with its own.

    A recipe that was read from a file may be none.
    """
    if not node or not isinstance(message, Message):
        return None
    with contextlib.suppress(*_BAD_RECIPE):
        recipe = _begun_with(message.recipe, node, other)
        if recipe is not None and retell(recipe):
            return recipe
    return None


def _begun_with(recipe: Mapping[str, Any], node: str, other: object) -> dict[str, Any] | None:
    identity, values = str(recipe["id"]), recipe.get("values", {})
    name, _brace, rest = identity[1:].partition("}") if identity.startswith("{") else ("", "", "")
    value = values.get(name)
    if isinstance(value, dict):
        inner = _begun_with(value, node, other)
        return {**recipe, "values": {**values, name: inner}} if inner is not None else None
    is_begun = value == node and rest.startswith(": ")
    return {**recipe, "values": {**values, name: other}} if is_begun else None


def _with(recipe: Mapping[str, Any], node: str, other: object) -> dict[str, Any]:
    """Return a recipe with another value wherever it has the node's name."""

    def exchanged(value: object) -> object:
        if isinstance(value, dict):
            return _with(value, node, other)
        return other if value == node else value

    values = recipe.get("values")
    return {**recipe, "values": {name: exchanged(value) for name, value in values.items()}} if values else dict(recipe)
