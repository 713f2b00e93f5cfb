"""Several documents of other programs as one job: a hostfile, a configuration and a command line say it together."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dttui.i18n import _
from dttui.spec.dialects.hostfile import is_hostfile
from dttui.spec.dialects.hostfile_nodes import translate_hostfile
from dttui.spec.dialects.recognition import IMPORTED_DIALECTS, JOB_DIALECTS, recognise
from dttui.spec.dialects.script_recognition import is_script
from dttui.spec.dialects.translation import ROOT, Leaf, Translated, in_order, make_note
from dttui.spec.findings import Finding, warning
from dttui.spec.loader import ROOT_KEY, parse_job
from dttui.spec.models import Job
from dttui.spec.problems import DocumentError, PathKey, Problem, did_you_mean, printable, shown
from dttui.spec.yaml_reader import decode, parse_yaml
from dttui.spec.yaml_source import YamlSource
from dttui.spec.yaml_writer import dump_yaml

ReadFile = Callable[[str], str | None]
"""The text of a file that a document names; `None` where it is not there, or may not be read."""
_DIALECTS = (*JOB_DIALECTS, *IMPORTED_DIALECTS)
_NODES: PathKey = ("cluster", "nodes")
_NODE_COUNT: PathKey = ("cluster", "count")
_GPU_COUNT: PathKey = ("resources", "gpu", "count")
_SCRIPT: PathKey = ("run", "script")
_PROGRAMS = (_SCRIPT, ("run", "module"), ("run", "command"))
STAND_IN = "train.py"
"""Script of a job of which nothing says what it runs, and something else of the run."""


@dataclass(frozen=True)
class Imported:
    """What documents amount to."""

    job: Job
    notes: tuple[Finding, ...]
    """What could not be carried over, each with its place."""
    names: tuple[str, ...] = ()
    """What problems call the documents that it is of."""


def import_documents(contents: Mapping[str, bytes], words: Sequence[str], command: str, read: ReadFile) -> Imported:
    """Return one job of files and a command line.

    Args:
        contents: of files, by what problems call each; of a script, its path.
        words: a command line; or the arguments of the first of the files that takes some.
        command: what problems call a command line.
        read: the text of a file beside them that one names; `None` where it is not there.

    Raises:
        DocumentError: with every problem of one of them, or of what they amount to.
    """
    taker = next((name for name, content in contents.items() if words and takes_arguments(content, name, words)), None)
    parts: list[Translated] = []

    def read_other(path: str) -> str | None:
        return None if path in contents else read(path)

    for name, content in contents.items():
        parts += with_files(translate_file(content, name, words if name == taker else (), read), read_other)
    if words and taker is None:
        from dttui.spec.dialects.script import translate_words  # Parses shell: few imports want that.

        parts += with_files(translate_words(words, command, read), read_other)
    first = next(iter(contents), "job")
    imported = merge(parts, posixpath.splitext(posixpath.basename(first))[0] or "job")
    names = (*contents, *((command,) if words and taker is None else ()))
    return replace(imported, names=names)


def translate_file(
    content: str | bytes, name: str, arguments: Sequence[str] = (), read: ReadFile = lambda _path: None
) -> Translated:
    """Carry a file over, told by what is in it.

    Args:
        content: of it.
        name: what problems call it; of a script, its path.
        arguments: that a script is started with, `NAME=VALUE` before them for variables.
        read: the text of a file beside it that it names; `None` where it is not there.

    Raises:
        DocumentError: with every problem of it.
    """
    from dttui.spec.dialects.products.finding_kinds import find_product, translate_by_text
    from dttui.spec.dialects.products.product_kind import Outside

    text = decode(content, name)
    by_text = translate_by_text(text, name, arguments, read)
    if by_text is not None:
        return by_text
    if is_script(text, name):
        from dttui.spec.dialects.script import translate_script  # Parses shell: few imports want that.

        return translate_script(text, name, arguments, read=read)
    if is_hostfile(text):
        return translate_hostfile(text, name)
    product = find_product(text, name)
    if product is not None:
        given = dict(word.split("=", 1) for word in arguments if "=" in word)
        return product.translate(Outside(read, given))
    source = parse_yaml(text, name)
    dialect = recognise(source, _DIALECTS)
    if dialect is None or ROOT_KEY in source.data:
        raise DocumentError([_unknown(source)])
    return dialect.translate(source)


def takes_arguments(content: str | bytes, name: str, words: Sequence[str]) -> bool:
    """Whether words after `--` are for this file: a script's arguments, or variables that a document leaves open.

    Raises:
        DocumentError: it is no text.
    """
    from dttui.spec.dialects.products.finding_kinds import is_for_arguments

    return is_for_arguments(decode(content, name), name, words)


def with_files(part: Translated, read: ReadFile) -> list[Translated]:
    """Return a document with those that it names and that are there; of others it says that they are left out.

    Raises:
        DocumentError: with every problem of one of them.
    """
    others: list[Translated] = []
    notes = list(part.notes)
    for name, origin in part.beside:
        text = read(name)
        if text is not None:
            others.append(_within(part, translate_file(text, name)))
            continue
        message = _("not carried over: what {file} says, which is not there").format(file=shown(name))
        hint = _("Import it together with this one: dttui import {file} ….").format(file=printable(name))
        notes.append(make_note(part.source, origin, message, hint, is_warning=True))
    return [replace(part, notes=in_order(notes)), *others]


def _within(part: Translated, other: Translated) -> Translated:
    """Return a file that a document names without what the document says otherwise of each node, as of slots."""
    count = part.leaves.get(_GPU_COUNT)
    if count is None or count.is_implied:
        return other
    kept = {target: leaf for target, leaf in other.leaves.items() if target[:2] != _NODES or target[-1] != "count"}
    return replace(other, leaves=kept)


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
        notes += _settle_nodes(_settle_files(part, parts, chosen), nodes, chosen)
    notes += _choose_script(parts, chosen)
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


def _settle_files(part: Translated, parts: Sequence[Translated], chosen: dict[PathKey, tuple[Leaf, Any]]) -> Translated:
    """Let the job name files as dttui writes them, where they are imported too."""
    others = {posixpath.basename(other.source.name) for other in parts if other is not part}
    seen = [file for file in part.files if posixpath.basename(file.name) in others]
    for file in seen:
        if chosen[file.target][0] is part.leaves.get(file.target):
            chosen[file.target] = (Leaf(file.written, file.origin), file.written)
    return replace(part, files=tuple(file for file in part.files if file not in seen))


def _choose_script(parts: Sequence[Translated], chosen: dict[PathKey, tuple[Leaf, Any]]) -> Iterable[Finding]:
    """Let something stand in for the script where documents say how it runs, and not which it is."""
    if not _lacks_program(chosen):
        return
    first = next(leaf for target, (leaf, _value) in chosen.items() if target[0] == "run")
    part = next(part for part in parts if first in part.leaves.values())
    chosen[_SCRIPT] = (Leaf(STAND_IN, first.origin), STAND_IN)
    message = _("nothing says which script runs: {script} stands in for it").format(script=STAND_IN)
    hint = _("Write yours under run.script, or import it too: dttui import CONFIG -- torchrun SCRIPT")
    yield warning("script-missing", part.source.name, message, hint)


def _lacks_program(targets: Collection[PathKey]) -> bool:
    return any(target[0] == "run" for target in targets) and not any(name in targets for name in _PROGRAMS)


def _left_out(part: Translated, leaf: Leaf, reason: str) -> Finding:
    message = _("not carried over: {reason}").format(reason=reason)
    return make_note(part.source, leaf.origin, message, is_warning=True)


def _data(part: Translated, name: str) -> Any:
    """Return a part's values as a job file has them, after every check of a job file."""
    stand_in = {_SCRIPT: Leaf(STAND_IN, ())} if _lacks_program(part.leaves) else {}
    named = replace(part, leaves={("name",): Leaf(name, ()), **stand_in, **part.leaves})
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
    names = [file for part in parts for file in (part.source.name, *part.source.others)]

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
    misspelt = [key for key in source.data if difflib.get_close_matches(key, known, n=1, cutoff=0.8)]
    if len(misspelt) * 2 > len(source.data):
        first = (misspelt[0],)
        return source.problem(first, source.key_mark(first), _("unknown key"), did_you_mean(misspelt[0], known))
    first = (next(iter(source.data)),)
    return source.problem(first, source.key_mark(first), _("this file is of no form that can be imported"), hint)
