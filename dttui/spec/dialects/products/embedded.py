"""Scripts and command lines that a document holds: followed as others are, with places of the whole file."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dttui.i18n import _
from dttui.spec.dialects.products.product_kind import ReadFile
from dttui.spec.dialects.script import translate_script
from dttui.spec.dialects.translation import Translated, in_order
from dttui.spec.findings import Finding
from dttui.spec.problems import DocumentError, PathKey, Problem, format_path, shown
from dttui.spec.yaml_source import Mark, YamlSource

_MOST_FILLED = 5_000
"""Lines of a document in which a script's lines have the numbers that they have there."""
_BLOCK = re.compile(r"(?:[&!][^\s]*\s+)*([|>])([-+0-9]*)")
_MPI = re.compile(r"\b(mpirun|mpiexec|srun)\b")
_INTERPRETED = re.compile(r"python|\.py\b|\.sh\b")
_QUOTE = re.compile(r"(?:[&!][^\s]*\s+)*([\"']?)")


@dataclass(frozen=True)
class EmbeddedLine:
    """Where a line of a script stands in the document."""

    line: int
    shift: int
    """Columns before it there."""


class EmbeddedScript:
    """A script made of pieces of a document, each in the line that it has there, as far as their order allows."""

    def __init__(self, source: YamlSource) -> None:
        self._source = source
        self._lines: list[str] = []
        self._places: list[EmbeddedLine] = []

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines) + "\n"

    def add(self, text: str, origin: PathKey) -> None:
        """Add what stands at `origin`, or what was made of it without adding or taking lines."""
        lines = text.rstrip("\n").split("\n")
        places = _places(self._source, origin, len(lines))
        self._fill(places[0].line, "")
        self._lines += lines
        self._places += places

    def add_words(self, words: Sequence[tuple[str, PathKey]]) -> None:
        """Add a command, each word with where it stands; nothing in them is a shell's."""
        for index, (word, origin) in enumerate(words):
            lines = shlex.quote(word).split("\n")
            places = _places(self._source, origin, len(lines))
            if index and self._places[-1].line == places[0].line and len(self._lines) == places[0].line:
                self._lines[-1] += " " + lines.pop(0)
                places.pop(0)
            elif index:
                self._lines[-1] += " \\"
                self._fill(places[0].line, " \\")
            else:
                self._fill(places[0].line, "")
            self._lines += lines
            self._places += places

    def place(self, mark: Mark) -> Mark:
        """Return where something of the script stands in the document."""
        if not self._places:
            return mark
        place = self._places[min(max(mark.line, 1), len(self._places)) - 1]
        return Mark(place.line, mark.column + place.shift)

    def _fill(self, line: int, with_text: str) -> None:
        """Add lines that do nothing, so that what comes next is in a line of this number, unless it is a large one."""
        if line > _MOST_FILLED:
            return
        while len(self._lines) < line - 1:
            self._lines.append(with_text)
            self._places.append(EmbeddedLine(len(self._lines), 0))


def _places(source: YamlSource, origin: PathKey, count: int) -> list[EmbeddedLine]:
    """Return where the lines of a text stand: exactly for a block scalar, else where the value begins."""
    mark = source.mark(origin)
    line = source.lines[mark.line - 1] if mark.line <= len(source.lines) else ""
    block = _BLOCK.match(line, mark.column - 1)
    if block is None:
        quote = _QUOTE.match(line, mark.column - 1)
        shift = mark.column - 1 + (len(quote[0]) if quote is not None else 0)
        return [EmbeddedLine(mark.line, shift)] * count
    below = [
        (number, text) for number, text in enumerate(source.lines[mark.line : mark.line + count + 50], mark.line + 1)
    ]
    first = next((text for _number, text in below if text.strip()), "")
    indent = len(first) - len(first.lstrip(" "))
    if block[1] == ">":
        return [EmbeddedLine(min(mark.line + 1, len(source.lines)), indent)] * count
    return [EmbeddedLine(min(mark.line + 1 + index, len(source.lines)), indent) for index in range(count)]


@dataclass(frozen=True)
class ScriptContext:
    """What is known where a script of a document runs."""

    kind: str
    """What the document is, for what is said where the script is no job."""
    origin: PathKey
    """The key at the top that the script is told below."""
    given: Mapping[str, str]
    """JobVariables that the product sets, by name."""
    read: ReadFile

    def follow(self, script: EmbeddedScript, source: YamlSource) -> Translated:
        """Return the job that a script is, as a part of its document. Raises DocumentError, with places in that."""
        try:
            part = translate_script(script.text, source.name, given=self.given.get, read=self.read)
        except DocumentError as error:
            problems = [self._placed_problem(problem, script, source) for problem in error.problems]
            raise DocumentError(problems) from error
        return self.within(part, script, source)

    def within(self, part: Translated, script: EmbeddedScript, source: YamlSource) -> Translated:
        """Return what a script became, with places and keys of its document."""
        whole = source.with_part(str(self.origin[0]), part.source, script.place)
        leaves = {target: replace(leaf, origin=self._below(leaf.origin)) for target, leaf in part.leaves.items()}
        notes = [self._placed_note(note, script, source) for note in part.notes]
        master = (part.master[0], self._below(part.master[1])) if part.master is not None else None
        count = part.node_count
        nodes = (count[0], count[1], self._below(count[2])) if count is not None else None
        beside = tuple((name, self._below(origin)) for name, origin in part.beside if not _is_made(name))
        return replace(
            part, source=whole, leaves=leaves, notes=tuple(notes), master=master, node_count=nodes, beside=beside
        )

    def _below(self, origin: PathKey) -> PathKey:
        return (self.origin[0], *origin)

    def _placed_note(self, note: Finding, script: EmbeddedScript, source: YamlSource) -> Finding:
        subject = format_path((*self.origin[:1], note.subject))
        if note.place is None or note.place.file != source.name:  # Of a script that this one starts.
            return note
        mark = script.place(Mark(note.place.line, note.place.column))
        line = source.problem((), mark, "").source_line
        path = format_path((*self.origin[:1], note.place.path)) if note.place.path else format_path(self.origin)
        place = note.place.model_copy(
            update={"line": mark.line, "column": mark.column, "path": path, "source_line": line}
        )
        return note.model_copy(update={"subject": subject, "place": place})

    def _placed_problem(self, problem: Problem, script: EmbeddedScript, source: YamlSource) -> Problem:
        message = _("{kind}: {problem}").format(kind=self.kind, problem=problem.message)
        if problem.line is None:
            return source.problem(self.origin, source.key_mark(self.origin), message, problem.hint)
        if problem.file != source.name:  # Of a script that this one starts.
            return replace(problem, message=message)
        mark = script.place(Mark(problem.line, problem.column or 1))
        return source.problem((*self.origin, *problem.path), mark, message, problem.hint)


def _is_made(name: str) -> bool:
    """Whether a file is one that only a running script has made."""
    return "$" in name or name.startswith(("/tmp/", "/dev/", "/var/"))  # noqa: S108 - nothing is written there


def check_program(job: Translated, kind: str, script: str) -> None:
    """Refuse a program under MPI that is none in Python: whether it trains is not known, and it wants MPI itself.

    Args:
        job: what the script became, with places of its document.
        kind: of the document.
        script: whose text tells whether MPI starts it.

    Raises:
        DocumentError: it is such a program.
    """
    command = job.leaves.get(("run", "command"))
    if command is None or ("run", "per") in job.leaves or not _MPI.search(script):
        return
    if any(_INTERPRETED.search(str(word)) for word in command.data):
        return
    message = _("{kind}: {program} is no program in Python: whether it trains, and needs MPI itself, is not known")
    message = message.format(kind=kind, program=shown(posixpath.basename(str(command.data[0]))))
    source = job.source
    hint = _("Import the command that trains: dttui import -- COMMAND.")
    raise DocumentError([source.problem(command.origin, source.mark(command.origin), message, hint)])


def joined(document: Translated, part: Translated) -> Translated:
    """Return one job of what a document says and of what its script does.

    Where both say something the script counts, but for the number of nodes: so many are started, whatever it is told.

    Args:
        document: what its own keys say.
        part: its script, as `ScriptContext.follow` returns it.
    """
    leaves = dict(part.leaves)
    for target, leaf in document.leaves.items():
        own = leaves.get(target)
        if own is None or (own.is_implied and not leaf.is_implied):
            leaves[target] = leaf
        elif target == ("run", "secrets"):
            leaves[target] = replace(own, data=tuple(dict.fromkeys((*own.data, *leaf.data))))
    secrets = leaves.get(("run", "secrets"))
    for name in secrets.data if secrets is not None else ():
        leaves.pop(("run", "env", name), None)
    return replace(
        part,
        leaves=leaves,
        notes=in_order((*document.notes, *part.notes)),
        master=part.master or document.master,
        node_count=document.node_count or part.node_count,
    )
