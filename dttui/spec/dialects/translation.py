"""Carries the values of a document of another form over to a job, and keeps account of what was carried.

Every value comes with the place it was said at, so that mistakes and findings of the job are shown there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from dttui.i18n import _
from dttui.spec.document import validate
from dttui.spec.findings import Finding, Place, Severity
from dttui.spec.models import Job, JobDocument
from dttui.spec.problems import DocumentError, PathKey, format_path, shown
from dttui.spec.yaml_source import Mark, Value, YamlSource

ROOT: PathKey = ("distributed_training",)

_SETTINGS: PathKey = ("settings",)
_NODE_COUNT: PathKey = ("cluster", "count")
_AS_WRITTEN = object()


@dataclass(frozen=True)
class Leaf:
    """A value of the job, and where the other document says it."""

    data: Any
    origin: PathKey
    as_written: bool = False
    """Whether `data` is what stands there, and not made of it."""
    is_implied: bool = False
    """Whether nothing says it, so that any other document that does is right."""


@dataclass(frozen=True)
class NamedFile:
    """A file that a document names and ranks read, and that dttui writes anew where it is imported too."""

    name: str
    """As it is named there."""
    origin: PathKey
    """Where."""
    target: PathKey
    """What in the job names it to the ranks."""
    written: str
    """What that says where dttui writes the file."""


@dataclass(frozen=True)
class Translated:
    """A document of another form, as a job."""

    source: YamlSource
    """The document as it stands."""
    leaves: Mapping[PathKey, Leaf]
    """The job's values, by their path from the job's top."""
    notes: tuple[Finding, ...]
    """What could not be carried over, or had to be guessed."""
    master: tuple[str, PathKey] | None = None
    """Host that the document makes the master without listing its nodes, and where it says so."""
    node_count: tuple[int, int, PathKey] | None = None
    """Fewest and most nodes, where it says how many and not which, and where it says so."""
    beside: tuple[tuple[str, PathKey], ...] = ()
    """Files beside it that say more of the job, such as a hostfile, and where it names them."""
    files: tuple[NamedFile, ...] = ()
    """What it names and has not been seen."""

    @property
    def all_notes(self) -> tuple[Finding, ...]:
        """The notes, with those on nodes that the document does not list."""
        notes = list(self.notes)
        if self.node_count is not None and _NODE_COUNT not in self.leaves:  # A plan says that of a count.
            least, most, origin = self.node_count
            count = str(most) if least == most else f"{least}–{most}"
            message = _("this says how many nodes, and not which: {count}").format(count=count)
            hint = _("List environments of the inventory under cluster.nodes.")
            notes.append(make_note(self.source, origin, message, hint, is_warning=True))
        if self.master is not None:
            host, origin = self.master
            message = _("not carried over: {host} is the master, of nodes that are not listed").format(host=shown(host))
            hint = _("Write role: master at its node under cluster.nodes.")
            notes.append(make_note(self.source, origin, message, hint, is_warning=True))
        for file in self.files:
            message = _("the ranks read this file in their working directory, and the plan knows nothing of it")
            hint = _("Import it together with this one: dttui import CONFIG {file}").format(file=shown(file.name))
            notes.append(make_note(self.source, file.origin, message, hint, is_warning=True))
        return in_order(notes)

    def job(self) -> Job:
        """Return the job. Raises DocumentError, with places and keys of the document as it stands."""
        try:
            return validate(self.job_source(), JobDocument).distributed_training
        except DocumentError as error:
            problems = (replace(problem, path=self.origin(problem.path)) for problem in error.problems)
            raise DocumentError(problems) from error

    def job_source(self) -> YamlSource:
        """Return a job file of the same values, in which everything stands where the document says it."""
        tree = _Branch.of({(*ROOT, *target): leaf for target, leaf in self.leaves.items()})
        root, _origin = self._value(tree)
        return YamlSource(name=self.source.name, data=root.data, lines=self.source.lines, _root=root)

    def origin(self, path: PathKey) -> PathKey:
        """Return the keys of the document that a path of the job file arises from; nothing where none is near."""
        target = path[len(ROOT) :]
        for length in range(len(target), 0, -1):
            leaf = self.leaves.get(target[:length])
            if leaf is not None:
                return (*leaf.origin, *target[length:]) if leaf.as_written else leaf.origin
            beneath = [leaf.origin for key, leaf in self.leaves.items() if key[:length] == target[:length]]
            if beneath:
                return _common(beneath)
        return ()

    def _value(self, item: _Branch | Leaf) -> tuple[Value, PathKey]:
        """Return a value of the job, and what all that is in it arises from."""
        if isinstance(item, Leaf):
            return self._leaf_value(item.data, item.origin, item.as_written), item.origin
        below = {key: self._value(child) for key, child in item.children.items()}
        origin = _common([origin for _value, origin in below.values()])
        mark = self.source.mark(origin)
        if any(isinstance(key, int) for key in below):
            items = [below[key][0] for key in sorted(below)]
            return Value(mark, tuple(child.data for child in items), items=items, open=False), origin
        named = {str(key): child for key, (child, _origin) in below.items()}
        marks = {str(key): self.source.key_mark(origin) for key, (_child, origin) in below.items()}
        data = {key: child.data for key, child in named.items()}
        return Value(mark, data, items=named, key_marks=marks, open=False), origin

    def _leaf_value(self, data: Any, origin: PathKey, as_written: bool) -> Value:
        mark = self.source.mark(origin)
        if isinstance(data, dict):
            named = {key: self._leaf_value(item, (*origin, key), as_written) for key, item in data.items()}
            marks = {key: self.source.key_mark((*origin, key)) for key in named}
            return Value(mark, data, items=named, key_marks=marks, open=False)
        if isinstance(data, (tuple, list)):
            items = [self._leaf_value(item, (*origin, index), as_written) for index, item in enumerate(data)]
            return Value(mark, tuple(item.data for item in items), items=items, open=False)
        return Value(mark, data, self.source.written(origin) if as_written else None, open=False)


class Translation:
    """The work of carrying one document over."""

    def __init__(self, source: YamlSource) -> None:
        self.source = source
        self._master: tuple[str, PathKey] | None = None
        self._node_count: tuple[int, int, PathKey] | None = None
        self._files: list[NamedFile] = []
        self._leaves: dict[PathKey, Leaf] = {}
        self._used: set[PathKey] = set()
        self._notes: list[Finding] = []

    def said(self, origin: PathKey) -> Any:
        """Return what the document says there; `None` for nothing."""
        return self.source.value(origin)

    def has(self, target: PathKey) -> bool:
        """Whether the job has a value there already."""
        return target in self._leaves

    def carried(self, target: PathKey) -> Any:
        """Return the job's value there; `None` for none so far."""
        leaf = self._leaves.get(target)
        return leaf.data if leaf is not None else None

    def carry(self, origin: PathKey, target: PathKey, value: Any = _AS_WRITTEN) -> None:
        """Give the job what the document says at `origin`, or `value`, which was made of it."""
        self._used.add(origin)
        raw = self.said(origin)
        if raw is not None:
            as_written = value is _AS_WRITTEN
            self._leaves[target] = Leaf(raw if as_written else value, origin, as_written)

    def carry_all(self, root: PathKey, targets: Mapping[str, str]) -> None:
        """Carry values as they stand: from dotted keys below `root` to dotted keys of the job."""
        for origin, target in targets.items():
            self.carry((*root, *origin.split(".")), tuple(target.split(".")))

    def hand_over(self, origin: PathKey, *keys: str) -> None:
        """Put what the document says at `origin` under the job's settings, where the script finds it.

        Args:
            origin: what dttui itself does nothing by.
            keys: where, below the settings; by default the key that it has in the document.
        """
        target = (*_SETTINGS, *(keys or (str(origin[-1]),)))
        if self.has(target):
            self.note(origin, _("not carried over: this is given before"), is_warning=True)
        else:
            self.carry(origin, target)

    def put(self, target: PathKey, value: Any, origin: PathKey, *, is_implied: bool = False) -> None:
        """Give the job a value that follows from what is said at `origin`, which still has to be used."""
        self._leaves[target] = Leaf(value, origin, is_implied=is_implied)

    def take_back(self, *targets: PathKey) -> None:
        """Take values out of the job again."""
        for target in targets:
            self._leaves.pop(target, None)

    def expect_nodes(self, origin: PathKey, least: int, most: int | None = None) -> None:
        """Take it that the document says how many nodes there are, and not which."""
        self._used.add(origin)
        self._node_count = (least, most or least, origin)

    def expect_master(self, origin: PathKey, host: str) -> None:
        """Take it that the document names the master without listing the nodes."""
        self._used.add(origin)
        self._master = (host, origin)

    def expect_file(self, file: NamedFile) -> None:
        """Take it that the document names a file that may be imported too."""
        self._used.add(file.origin)
        self._files.append(file)

    def use(self, *origins: PathKey) -> None:
        """Take it that something needs no place in the job: it only names a part, or says what is so anyway."""
        self._used.update(origins)

    def is_used(self, origin: PathKey) -> bool:
        """Whether a key has been looked at, itself or as part of another."""
        return any(origin[:length] in self._used for length in range(1, len(origin) + 1))

    def leaves(self) -> Iterator[PathKey]:
        """Yield where the document says something."""
        return _said(self.source.data, ())

    def left(self) -> Iterator[PathKey]:
        """Yield where the document says something that has not been looked at."""
        return (origin for origin in self.leaves() if not self.is_used(origin))

    def expect(self, origin: PathKey, *values: Any) -> None:
        """Take it that a key needs no place in the job where it has one of these values."""
        if any(self.said(origin) == value and type(self.said(origin)) is type(value) for value in values):
            self._used.add(origin)

    def note(
        self,
        origin: PathKey,
        message: str,
        hint: str = "",
        *,
        is_warning: bool = False,
        code: str = "not-carried-over",
    ) -> None:
        """Say something about what stands at `origin`; nothing where there is nothing."""
        said = self.said(origin)
        if origin in _said(said, origin):
            self._used.add(origin)
        if said is not None:
            self._notes.append(make_note(self.source, origin, message, hint, is_warning=is_warning, code=code))

    def finish(self, *, message: str = "", hint: str = "") -> Translated:
        """Return the job's values, with a note, of `message` and `hint`, for everything that was not looked at."""
        if not message:
            message = _("not carried over: dttui does not act upon it")
            hint = _("Write it under settings, or give it to the script as one of run.args.")
        for origin in tuple(self.left()):
            self.note(origin, message, hint)
        self._note_settings()
        leaves, notes = dict(self._leaves), in_order(self._notes)
        return Translated(self.source, leaves, notes, self._master, self._node_count, files=tuple(self._files))

    def _note_settings(self) -> None:
        """Say once what only does something where the script reads it."""
        handed = [(str(target[1]), leaf.origin) for target, leaf in self._leaves.items() if target[:1] == _SETTINGS]
        if handed:
            message = _("for the script: under settings, in the file that DTTUI_CONFIG names: {keys}")
            hint = _("A script that does not read that file has to be told by {arguments}.")
            hint = hint.format(arguments="run.args")
            first = min((origin for _key, origin in handed), key=lambda origin: astuple(self.source.key_mark(origin)))
            message = message.format(keys=", ".join(dict.fromkeys(key for key, _origin in handed)))
            self._notes.append(make_note(self.source, first, message, hint, code="for-script"))


def make_note(
    source: YamlSource,
    origin: PathKey,
    message: str,
    hint: str = "",
    *,
    is_warning: bool = False,
    code: str = "not-carried-over",
) -> Finding:
    """Return a finding about what stands at `origin`."""
    return Finding(
        code=code,
        severity=Severity.WARNING if is_warning else Severity.INFO,
        subject=format_path(origin) or source.name,
        message=message,
        hint=hint,
        place=_place(source, origin),
    )


def in_order(notes: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the notes of a document in its own order."""
    return tuple(sorted(notes, key=lambda note: (note.place.line, note.place.column) if note.place else (0, 0)))


def _place(source: YamlSource, origin: PathKey) -> Place:
    mark = source.key_mark(origin)
    problem = source.problem(origin, mark, "")
    line = problem.source_line
    return Place(file=problem.file, line=mark.line, column=mark.column, path=format_path(origin), source_line=line)


def table_source(
    name: str,
    lines: tuple[str, ...],
    entries: Iterable[tuple[str, Mark, Any, Mark]],
    others: Mapping[str, Sequence[str]] | None = None,
) -> YamlSource:
    """Return text that is no YAML as a document of one mapping: of key, its place, value, its place."""
    items: dict[str, Value] = {}
    marks: dict[str, Mark] = {}
    for key, key_mark, data, mark in entries:
        marks[key] = key_mark
        if isinstance(data, Mapping):
            inner = {inner: Value(mark, value, str(value), open=False) for inner, value in data.items()}
            inner_marks = dict.fromkeys(inner, mark)
            items[key] = Value(mark, dict(data), items=inner, key_marks=inner_marks, open=False)
        else:
            items[key] = Value(mark, data, data if isinstance(data, str) else None, open=False)
    data = {key: value.data for key, value in items.items()}
    root = Value(Mark(1, 1), data, items=items, key_marks=marks, open=False)
    return YamlSource(name=name, data=data, lines=lines, _root=root, others=others or {})


@dataclass(frozen=True)
class _Branch:
    """A mapping or a list of the job, by its keys."""

    children: dict[str | int, _Branch | Leaf]

    @classmethod
    def of(cls, leaves: Mapping[PathKey, Leaf]) -> _Branch:
        root = cls({})
        for path, leaf in leaves.items():
            branch = root
            for key in path[:-1]:
                below = branch.children.setdefault(key, cls({}))
                if isinstance(below, Leaf):
                    raise TypeError(f"a value stands above {format_path(path)}")
                branch = below
            branch.children[path[-1]] = leaf
        return root


def _said(data: Any, path: PathKey) -> Iterator[PathKey]:
    """Yield where a document says something: scalars, and lists of nothing but scalars."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _said(value, (*path, key))
    elif isinstance(data, tuple) and any(isinstance(item, (dict, tuple)) for item in data):
        for index, item in enumerate(data):
            yield from _said(item, (*path, index))
    elif data is not None and data != ():
        yield path


def _common(paths: list[PathKey]) -> PathKey:
    first = paths[0]
    length = next(
        (index for index, key in enumerate(first) if any(path[index : index + 1] != (key,) for path in paths)),
        len(first),
    )
    return first[:length]
