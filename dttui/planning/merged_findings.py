"""Telling once what is to be said alike of several nodes. Pure: findings in, fewer findings out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dttui.i18n import _
from dttui.words import listed

if TYPE_CHECKING:
    from dttui.spec.findings import Finding

MOST_NAMES = 4
"""Nodes that a sentence names; the others are counted."""
_NODE = "\0"
"""Stands for the node; no message has it."""


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
        rest = item.message.removeprefix(f"{item.subject}: ")
        is_of_a_node = bool(item.subject) and rest != item.message
        key = (item.kind, rest, _without(item.subject, item.hint)) if is_of_a_node else index
        groups.setdefault(key, []).append(index)
    return [(group[0], *_merged_text([sayings[index] for index in group])) for group in groups.values()]


def folded(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, those that differ in nothing but their node as one."""
    told = merge([Saying(item.subject, item.message, item.hint, (item.code, item.severity)) for item in findings])
    return [findings[index].model_copy(update={"message": message, "hint": hint}) for index, message, hint in told]


def _merged_text(group: list[Saying]) -> tuple[str, str]:
    first = group[0]
    if len(group) == 1:
        return first.message, first.hint
    names = [item.subject for item in group]
    message = _("on {count} nodes ({names}): {message}").format(
        count=len(names), names=listed(names, MOST_NAMES), message=first.message.removeprefix(f"{first.subject}: ")
    )
    if all(item.hint == first.hint for item in group):
        return message, first.hint
    # Behind a command they are its arguments, all of them.
    every = " ".join(names) if "dttui " in first.hint else listed(names, MOST_NAMES)
    return message, _without(first.subject, first.hint).replace(_NODE, every)


def _without(name: str, text: str) -> str:
    """Return a text with a mark in the place of a node's name."""
    return re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", _NODE, text)
