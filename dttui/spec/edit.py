"""Changes a file where what it holds has changed, and nowhere else: comments and the form of everything else stay."""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from dttui.i18n import _
from dttui.spec.loader import ROOT_KEY, parse_document
from dttui.spec.models import Job
from dttui.spec.problems import DocumentError, PathKey, shown
from dttui.spec.text_edits import TextEdits
from dttui.spec.versions import CURRENT, VERSION_KEY
from dttui.spec.yaml_nodes import YamlEntry, YamlNode, YamlText
from dttui.spec.yaml_reader import parse_yaml
from dttui.spec.yaml_writer import dump_yaml

_BYTE_ORDER_MARK = "\ufeff"


def edited_in_place(text: str, job: Job) -> str | None:
    """Return a job file's text, changed so that it loads to exactly `job`.

    Where a node cannot be edited in place, the smallest one around it that can is written anew. `None` where that would
    be the whole of the file, or where the text is no job file of the present version.
    """
    body = text.removeprefix(_BYTE_ORDER_MARK)
    if not body or not (old := _loaded(body)) or not _is_present_version(body):
        return None
    page = YamlText(body)
    entry = page.root.find(ROOT_KEY) if page.root is not None else None
    if entry is None:
        return None
    before, after = old.model_dump(), job.model_dump()
    said = job.model_dump(mode="json", exclude_unset=True)
    for whole in (set(), _around_anchors(page), {id(entry.value)}):
        edits = TextEdits(page)
        _Editor(edits, whole).edit(entry, (before, after, said), page.root, in_flow=bool(page.root and page.root.style))
        changed = edits.apply()
        if (loaded := _loaded(changed)) is not None and _same(loaded.model_dump(), after):
            return text[: len(text) - len(body)] + changed
    return None


def with_keys(text: str, name: str, changes: Mapping[PathKey, Any]) -> str:
    """Return the text of a mapping whose keys have other values; `None` takes a key away.

    Args:
        text: YAML, or nothing yet.
        name: what problems call it.
        changes: the path of each key, and its value as plain data.

    Raises:
        DocumentError: the text is no mapping.
    """
    body = text.removeprefix(_BYTE_ORDER_MARK)
    source = parse_yaml(body, name)
    before = source.data if source.data is not None else {}
    if not isinstance(before, dict):
        wanted = _("expected {wanted}, found {value}").format(
            wanted=_("a mapping of keys to values"), value=shown(before)
        )
        raise DocumentError([source.problem((), source.mark(()), wanted)])
    after = copy.deepcopy(before)
    for path, value in changes.items():
        _set(after, path, value)
    page = YamlText(body)
    if page.root is None or page.root.kind != "mapping":
        return body + ("\n" if body and not body.endswith("\n") else "") + (dump_yaml(after) if after else "")
    edits = TextEdits(page)
    whole = YamlEntry(page.root.start, None, page.root)
    _Editor(edits, _around_anchors(page)).edit(whole, (before, after, after), None, in_flow=bool(page.root.style))
    changed = edits.apply()
    return changed if _same(parse_yaml(changed, name).data, after) else dump_yaml(after)


def _set(data: dict[str, Any], path: PathKey, value: Any) -> None:
    """Change one key, and the mappings that lead to it; one that holds nothing any more goes, too."""
    key, *below = path
    if not below and value is None:
        data.pop(str(key), None)
    elif not below:
        data[str(key)] = value
    else:
        inner = data.get(str(key))
        data[str(key)] = inner if isinstance(inner, dict) else {}
        _set(data[str(key)], tuple(below), value)
        if not data[str(key)]:
            del data[str(key)]


class _Editor:
    """Walks the text and both jobs side by side."""

    def __init__(self, edits: TextEdits, whole: set[int]) -> None:
        self._edits = edits
        self._whole = whole
        """Nodes, by identity, that are written anew where anything in them changes."""

    def edit(self, entry: YamlEntry, values: tuple[Any, Any, Any], parent: YamlNode | None, *, in_flow: bool) -> None:
        """Bring the value of an entry from what it was to what it shall be.

        Args:
            entry: the key or dash, and its value.
            values: the value before; after, with every default; after, as it is to be written.
            parent: what the entry is in.
            in_flow: whether that has brackets.
        """
        before, after, said = values
        node = entry.value
        if _same(before, after):
            return
        done = False
        if id(node) not in self._whole:
            within = in_flow or bool(node.style)
            if node.kind == "mapping" and _are(Mapping, before, after, said):
                done = self._edit_mapping(node, before, after, said, in_flow=within)
            elif node.kind == "sequence" and _are(Sequence, before, after, said):
                done = self._edit_list(node, before, after, said, in_flow=within)
        if not done:
            self._edits.replace(entry, said, parent, in_flow=in_flow)

    def _edit_mapping(self, node: YamlNode, before: Any, after: Any, said: Any, *, in_flow: bool) -> bool:
        """Edit a mapping key by key; return whether that is possible."""
        changed = [key for key in {**before, **after} if not _same_under(key, before, after)]
        gone = [entry for key in changed if key not in said and (entry := node.find(key)) is not None]
        kept = [entry for entry in node.entries if entry not in gone]
        new = [key for key in changed if key in said and node.find(key) is None]
        if (new or gone) and (in_flow or not kept):
            return False
        for key in changed:
            entry = node.find(key)
            if entry is not None and key in said:
                self.edit(entry, (before.get(key), after.get(key), said[key]), node, in_flow=in_flow)
        for key in new:
            self._edits.insert({key: said[key]}, _last_before(key, [*said], node, kept), kept[0], node)
        self._edits.remove(gone, node)
        return True

    def _edit_list(self, node: YamlNode, before: Any, after: Any, said: Any, *, in_flow: bool) -> bool:
        """Edit a list item by item; return whether that is possible. Items are told apart by their `id`."""
        pairs, new, gone = _aligned(before, after)
        kept = [entry for index, entry in enumerate(node.entries) if index not in gone]
        if (new or gone) and (in_flow or not kept):
            return False
        for index, there in pairs:
            self.edit(node.entries[index], (before[index], after[there], said[there]), node, in_flow=in_flow)
        where = {there: index for index, there in pairs}
        for there in new:
            earlier = [where[item] for item in range(there) if item in where]
            self._edits.insert([said[there]], node.entries[earlier[-1]] if earlier else None, kept[0], node)
        self._edits.remove([node.entries[index] for index in sorted(gone)], node)
        return True


def _last_before(key: str, keys: Sequence[str], node: YamlNode, kept: Sequence[YamlEntry]) -> YamlEntry | None:
    """Return behind which of the entries that are kept a new key comes; `None` where it is before all of them."""
    earlier = (node.find(item) for item in reversed(keys[: keys.index(key)]))
    return next((entry for entry in earlier if entry in kept), None)


def _aligned(before: Sequence[Any], after: Sequence[Any]) -> tuple[list[tuple[int, int]], list[int], set[int]]:
    """Return which items of both lists are the same one, which of the second are new, and which of the first gone."""
    pairs: list[tuple[int, int]] = []
    new: list[int] = []
    gone: set[int] = set()
    matcher = difflib.SequenceMatcher(None, [*map(_identity, before)], [*map(_identity, after)], autojunk=False)
    for _kind, first, first_end, second, second_end in matcher.get_opcodes():
        shared = min(first_end - first, second_end - second)
        pairs += [(first + offset, second + offset) for offset in range(shared)]
        gone |= set(range(first + shared, first_end))
        new += range(second + shared, second_end)
    return pairs, new, gone


def _identity(item: Any) -> str:
    return json.dumps(item["id"] if isinstance(item, dict) and "id" in item else item, sort_keys=True, default=str)


def _loaded(text: str) -> Job | None:
    try:
        loaded = parse_document(text, "")
    except DocumentError:
        return None
    return loaded.job if loaded.dialect is None else None


def _is_present_version(text: str) -> bool:
    return bool(parse_yaml(text, "").data.get(VERSION_KEY, CURRENT) == CURRENT)


def _around_anchors(page: YamlText) -> set[int]:
    """Return the smallest nodes that hold an anchor together with everything that stands for it."""
    found: set[int] = set()
    trails: dict[str, list[list[YamlNode]]] = {}

    def visit(node: YamlNode, above: list[YamlNode]) -> None:
        trail = [*above, node]
        if node.anchor is not None:
            trails.setdefault(node.anchor, []).append(trail)
        for entry in node.entries:
            visit(entry.value, trail)

    if page.root is not None:
        visit(page.root, [])
    for users in trails.values():
        shared = [nodes for nodes in zip(*users, strict=False) if all(node is nodes[0] for node in nodes)]
        if len(users) > 1:
            found.add(id(shared[-1][0]))
    return found


def _are(kind: type, *values: Any) -> bool:
    return all(isinstance(value, kind) and not isinstance(value, str) for value in values)


def _same_under(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return key in before and key in after and _same(before[key], after[key])


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal; `true` is not 1 here."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if _are(Sequence, one, other):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
