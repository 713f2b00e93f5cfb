"""Several documents of other programs as one job: a hostfile, a configuration and a command line say it together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dttui.i18n import _
from dttui.spec.dialects.hostfile import is_hostfile
from dttui.spec.dialects.hostfile_nodes import translate_hostfile
from dttui.spec.dialects.recognition import IMPORTED_DIALECTS, JOB_DIALECTS, recognise
from dttui.spec.dialects.translation import ROOT, Leaf, Translated, make_note
from dttui.spec.findings import Finding
from dttui.spec.loader import ROOT_KEY, parse_job
from dttui.spec.models import Job
from dttui.spec.problems import DocumentError, PathKey, Problem, did_you_mean, shown
from dttui.spec.yaml_reader import decode, parse_yaml
from dttui.spec.yaml_source import YamlSource
from dttui.spec.yaml_writer import dump_yaml

_DIALECTS = (*JOB_DIALECTS, *IMPORTED_DIALECTS)
_NODES: PathKey = ("cluster", "nodes")
_NODE_COUNT: PathKey = ("cluster", "count")
_GPU_COUNT: PathKey = ("resources", "gpu", "count")


@dataclass(frozen=True)
class Imported:
    """What documents amount to."""

    job: Job
    notes: tuple[Finding, ...]
    """What could not be carried over, each with its place."""


def translate_file(content: str | bytes, name: str) -> Translated:
    """Carry a file over, told by what is in it. Raises DocumentError with every problem of it."""
    text = decode(content, name)
    if is_hostfile(text):
        return translate_hostfile(text, name)
    source = parse_yaml(text, name)
    dialect = recognise(source, _DIALECTS)
    if dialect is None or ROOT_KEY in source.data:
        raise DocumentError([_unknown(source)])
    return dialect.translate(source)


def merge(parts: Sequence[Translated], name: str) -> Imported:
    """Return one job of all parts; where they disagree, the first that says something counts.

    Args:
        parts: at least one document.
        name: of the job, where none of the documents has one.

    Raises:
        DocumentError: a part, or what all amount to, is no job.
    """
    notes: list[Finding] = []
    chosen: dict[PathKey, tuple[Leaf, Any]] = {}
    has_nodes = False
    for part in parts:
        data = _data(part, name)
        notes += part.notes
        with_nodes = False
        for target, leaf in part.leaves.items():
            is_node = target[:2] == _NODES
            if is_node and has_nodes:
                if target[-1] == "id":
                    notes.append(_left_out(part, leaf, _("another document lists the nodes")))
                continue
            with_nodes |= is_node
            notes += _choose(chosen, part, target, leaf, _at(data, target))
        has_nodes |= with_nodes
    notes += _check_counts(parts, chosen)
    nodes = _node_ids(chosen)
    if nodes:
        chosen.pop(_NODE_COUNT, None)
    for part in parts:
        notes += _settle_nodes(part, nodes, chosen)
    values = {("name",): name} | {target: value for target, (_leaf, value) in chosen.items()}
    text = dump_yaml({ROOT_KEY: _nested(values)})
    return Imported(parse_job(text, "job.yaml"), tuple(dict.fromkeys(_by_document(parts, notes))))


def _choose(
    chosen: dict[PathKey, tuple[Leaf, Any]], part: Translated, target: PathKey, leaf: Leaf, value: Any
) -> list[Finding]:
    other = chosen.get(target)
    if other is None or other[0].is_implied:
        chosen[target] = (leaf, value)
    elif other[1] != value and not leaf.is_implied:
        return [_left_out(part, leaf, _("another document says {value}").format(value=shown(other[1])))]
    return []


def _check_counts(parts: Sequence[Translated], chosen: dict[PathKey, tuple[Leaf, Any]]) -> list[Finding]:
    """Leave the number of GPUs to the nodes where each says its own, and say so where it is another one."""
    common = chosen.get(_GPU_COUNT)
    own = [value for target, (_leaf, value) in chosen.items() if target[:2] == _NODES and target[-1] == "count"]
    if common is None or len(own) < len(_node_ids(chosen)) or not own:
        return []
    del chosen[_GPU_COUNT]
    if common[0].is_implied or set(own) == {common[1]}:
        return []
    part = next(part for part in parts if part.leaves.get(_GPU_COUNT) is common[0])
    told = ", ".join(map(str, sorted(set(own))))
    return [_left_out(part, common[0], _("the nodes themselves say {value}").format(value=told))]


def _settle_nodes(part: Translated, nodes: Sequence[str], chosen: dict[PathKey, tuple[Leaf, Any]]) -> Iterable[Finding]:
    """Settle how many nodes there are and which is the master, where another document lists them."""
    kept = part
    if part.node_count is not None and nodes:
        least, most, origin = part.node_count
        kept = replace(kept, node_count=None)
        if not least <= len(nodes) <= most:
            message = _("this says {count} nodes, and {listed} are listed").format(count=most, listed=len(nodes))
            yield make_note(part.source, origin, message, is_warning=True)
    if part.master is not None and part.master[0] in nodes:
        kept = replace(kept, master=None)
        role = (*_NODES, nodes.index(part.master[0]), "role")
        chosen[role] = (Leaf("master", part.master[1]), "master")
    elif part.master is not None and nodes:
        kept = replace(kept, master=None)
        message = _("not carried over: {host} is the master, and none of the nodes that are listed")
        hint = _("Write role: master at its node under cluster.nodes.")
        yield make_note(part.source, part.master[1], message.format(host=shown(part.master[0])), hint, is_warning=True)
    yield from (note for note in kept.all_notes if note not in kept.notes)


def _left_out(part: Translated, leaf: Leaf, reason: str) -> Finding:
    message = _("not carried over: {reason}").format(reason=reason)
    return make_note(part.source, leaf.origin, message, is_warning=True)


def _data(part: Translated, name: str) -> Any:
    """Return a part's values as a job file has them, after every check of a job file."""
    named = replace(part, leaves={("name",): Leaf(name, ()), **part.leaves})
    return named.job().model_dump(mode="json", exclude_unset=True)


def _at(data: Any, path: PathKey) -> Any:
    for key in path:
        data = data[key]
    return data


def _node_ids(chosen: dict[PathKey, tuple[Leaf, Any]]) -> list[str]:
    return [value for target, (_leaf, value) in chosen.items() if target[:2] == _NODES and target[-1] == "id"]


def _nested(values: dict[PathKey, Any]) -> Any:
    """Return values by path as mappings and lists, the keys in the order that a job file has them."""
    order = list(Job.model_fields)
    root: dict[str | int, Any] = {}
    for path, value in sorted(values.items(), key=lambda item: order.index(str(item[0][0]))):
        branch = root
        for key in path[:-1]:
            branch = branch.setdefault(key, {})
        branch[path[-1]] = value
    return _listed(root)


def _listed(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    values = {key: _listed(value) for key, value in data.items()}
    is_list = bool(values) and all(isinstance(key, int) for key in values)
    return [values[key] for key in sorted(values)] if is_list else values


def _by_document(parts: Sequence[Translated], notes: Iterable[Finding]) -> list[Finding]:
    names = [part.source.name for part in parts]

    def place(note: Finding) -> tuple[int, int, int]:
        if note.place is None:
            return (names.index(note.subject) if note.subject in names else 0, 0, 0)
        return (names.index(note.place.file), note.place.line, note.place.column)

    return sorted(notes, key=place)


def grouped(notes: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return notes that say the same of several keys of one document as one, at the first of them."""
    alike: dict[tuple[str, ...], list[Finding]] = {}
    for note in notes:
        file = note.place.file if note.place is not None else ""
        alike.setdefault((note.code, note.severity.value, note.message, note.hint, file), []).append(note)
    return tuple(_together(first, others) for first, *others in alike.values())


def _together(first: Finding, others: Sequence[Finding]) -> Finding:
    keys = ", ".join(dict.fromkeys(note.subject for note in others if note.subject != first.subject))
    if not keys:
        return first
    message = _("{message}; the same goes for {keys}").format(message=first.message, keys=keys)
    return first.model_copy(update={"message": message})


def _unknown(source: YamlSource) -> Problem:
    """Return what is wrong with a file of no form that is known."""
    if source.is_empty:
        return Problem(source.name, _("the file is empty"))
    hint = _("Known are {forms}.").format(forms=", ".join((*(dialect.name for dialect in _DIALECTS), "hostfile")))
    if not isinstance(source.data, dict) or not source.data:
        return source.problem((), source.mark(()), _("there is nothing in it that can be imported"), hint)
    if ROOT_KEY in source.data:
        message = _("this is a job file already; there is nothing to import")
        return source.problem(ROOT, source.key_mark(ROOT), message)
    known = [key for dialect in _DIALECTS for key in dialect.keys]
    for key in source.data:
        if near := did_you_mean(key, known):
            return source.problem((key,), source.key_mark((key,)), _("unknown key"), near)
    first = (next(iter(source.data)),)
    return source.problem(first, source.key_mark(first), _("this file is of no form that can be imported"), hint)
