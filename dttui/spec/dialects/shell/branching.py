"""What the tree of a script says by itself: branches, ways out, where it is no bash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node


def branches(node: Node) -> list[tuple[list[Node], list[Node]]]:
    """Return conditions and bodies of an `if`; of its `else`, no conditions."""
    conditions: list[Node] = []
    body: list[Node] = []
    found = [(conditions, body)]
    is_body = False
    for child in node.children:
        if child.type == "then":
            is_body = True
        elif child.type == "elif_clause":
            found += branches(child)
        elif child.type == "else_clause":
            found.append(([], [item for item in child.children if item.is_named]))
        elif child.is_named and child.type != "comment":
            (body if is_body else conditions).append(child)
    return found


def case_items(node: Node) -> Iterator[tuple[list[Node], list[Node]]]:
    """Yield patterns and bodies of a `case`."""
    for item in node.named_children:
        if item.type == "case_item":
            at = [index for index in range(item.child_count) if item.field_name_for_child(index) == "value"]
            body = [child for index, child in enumerate(item.children) if child.is_named and index not in at]
            yield [item.children[index] for index in at], body


def ends(node: Node) -> bool:
    """Whether a statement ends the script by itself: `exit`, or `return` and the like."""
    if node.type == "command":
        return (node.text or b"").split()[:1] in ([b"exit"], [b"return"], [b"break"], [b"continue"])
    if node.type in ("list", "compound_statement", "redirected_statement", "subshell"):
        return any(map(ends, node.named_children))
    return False


def starts_something(node: Node) -> bool:
    """Whether a statement starts a program of some length, rather than setting or printing something."""
    if node.type == "command":
        return node.named_child_count > 2 and (node.text or b"").split()[:1] not in ([b"echo"], [b"mkdir"], [b"rm"])
    return any(map(starts_something, node.named_children)) if node.type != "function_definition" else False


def first_error(node: Node) -> Node:
    """Return where a tree begins to be no bash."""
    for child in node.children:
        if child.is_error or child.is_missing:
            return child
        if child.has_error:
            return first_error(child)
    return node
