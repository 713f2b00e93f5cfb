"""Conditions of a script: true, false, or not known before it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dttui.spec.dialects.shell.arithmetic import NotKnown, evaluate
from dttui.spec.dialects.shell.expansion import Expander
from dttui.spec.dialects.shell.globbing import matches
from dttui.spec.dialects.shell.open_parts import OpenParts

if TYPE_CHECKING:
    from tree_sitter import Node

_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
}


class Conditions:
    """Decides conditions by what is known; what nobody has given is empty, as the shell has it."""

    def __init__(self, expander: Expander, holes: OpenParts) -> None:
        self._expander = expander
        self._holes = holes

    def test(self, node: Node) -> bool | None:
        """Decide `[ … ]`, `[[ … ]]` and `(( … ))`."""
        if node.children[0].type == "((":
            return self.arithmetic(self._expander.inner(node))
        inside = node.named_children
        return self._decide(inside[0]) if len(inside) == 1 else None

    def arithmetic(self, text: str) -> bool | None:
        """Decide whether an expression is other than 0."""
        known = self._holes.given(self._expander.arithmetic(text))
        return None if known is None else known not in ("0", "")

    def words(self, words: Sequence[str]) -> bool | None:
        """Decide what `test` is given as words."""
        known = [self._holes.given(word) for word in words]
        if len(known) == 3:
            return self._compared(known[0], words[1], known[2])
        if len(words) == 2:
            return self._unary(words[0], known[1])
        return None if None in known or len(known) != 1 else bool(known[0])

    def _decide(self, node: Node) -> bool | None:
        if node.type == "binary_expression":
            return self._binary(node)
        if node.type == "unary_expression":
            operator = node.children[0]
            if operator.type == "!":
                return _negated(self._decide(node.children[-1]))
            return self._unary(self._expander.text(operator), self._known(node.children[-1]))
        if node.type == "parenthesized_expression":
            return self._decide(node.named_children[0]) if node.named_children else None
        if node.type == "negated_command" or (node.children[:1] and node.children[0].type == "!"):
            return _negated(self._decide(node.children[-1]))
        known = self._known(node)
        return None if known is None else bool(known)

    def _binary(self, node: Node) -> bool | None:
        children = node.children
        at = next((index for index, child in enumerate(children) if node.field_name_for_child(index) == "operator"), 1)
        operator = self._expander.text(children[at])
        left, right = children[0], children[at + 1 :]
        if operator in ("&&", "-a"):
            return _both(self._decide(left), self._decide(right[0]))
        if operator in ("||", "-o"):
            return _negated(_both(_negated(self._decide(left)), _negated(self._decide(right[0]))))
        first = self._known(left)
        if operator in ("==", "=", "!="):
            pattern = self._holes.given("".join(self._expander.pattern(child) for child in right))
            if first is None or pattern is None:
                return None
            return matches(first, pattern) == (operator != "!=")
        second = self._holes.given("".join(self._expander.text(child) for child in right))
        return self._compared(first, operator, second)

    def _known(self, node: Node) -> str | None:
        return self._holes.given(self._expander.text(node))

    @staticmethod
    def _unary(operator: str, known: str | None) -> bool | None:
        if operator in ("-z", "-n"):
            is_empty = known == ""  # What only the host knows is something.
            return is_empty == (operator == "-z")
        return None  # Of files and terminals.

    @staticmethod
    def _compared(left: str | None, operator: str, right: str | None) -> bool | None:
        if left is None or right is None:
            return None
        if operator in ("=", "=="):
            return left == right
        if operator == "!=":
            return left != right
        if operator in ("<", ">"):
            return left < right if operator == "<" else left > right
        if operator == "=~" and len(left) < 200 and re.fullmatch(r"[\^\w \-.*+\[\]0-9$]+", right):
            return _found(right, left)
        if operator in _COMPARED:
            try:
                return _COMPARED[operator](evaluate(left, {}), evaluate(right, {}))
            except NotKnown:
                return False  # Not a number: the shell says so, and takes it for false.
        return None


def _found(expression: str, text: str) -> bool | None:
    """Search by a regular expression of at most one repetition, so that it ends in time."""
    if len(re.findall(r"[*+]", expression)) > 1:
        return None
    try:
        return re.search(expression, text) is not None
    except re.error:
        return None


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True
