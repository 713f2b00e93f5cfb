"""What is wrong with a document, where, and how to put it right. Knows nothing of YAML or of any model."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.spec.synonyms import meant

PathKey = tuple[str | int, ...]
"""Where a value is in a document: keys and list indices from the top."""

_MAX_LINE_WIDTH = 100
_MAX_VALUE_LENGTH = 60
MAX_PROBLEMS = 1000
"""Problems of a document that are told at once; one with more was never meant as a job."""
_MAX_RENDERED = 100
"""Problems that the message of an error holds; there may be more in it."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a document."""

    file: str
    """As the person named it."""
    message: str
    """What is wrong, and what was expected."""
    hint: str = ""
    """What to write instead."""
    path: PathKey = ()
    """Keys that lead to it; empty where it is the document as a whole."""
    line: int | None = None
    """From 1; `None` where the file could not be read at all."""
    column: int | None = None
    """From 1, in characters."""
    source_line: str = ""
    """The line of the file, as it stands there."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}:{self.column or 1}"
        said = with_hint(self.message, self.hint)
        key = format_path(self.path)
        return f"{place}: {key}: {said}" if key else f"{place}: {said}"

    def render(self) -> str:
        """Return the problem followed by the line of the file and a caret under the place."""
        if self.line is None or not self.source_line.strip():
            return str(self)
        column = max((self.column or 1) - 1, 0)
        start = max(0, column - _MAX_LINE_WIDTH + 20)
        window = printable(self.source_line[start : start + _MAX_LINE_WIDTH].expandtabs(1).rstrip())
        indent = text_width(window[: column - start])
        return f"{self}\n    {window}\n    {' ' * indent}^"


class DocumentError(UsageError):
    """A job.yaml or inventory that cannot be used, with every problem that was found; the message holds the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        told = [problem.render() for problem in self.problems[:_MAX_RENDERED]]
        more = len(self.problems) - len(told)
        if more:
            told.append(_("mistakes not shown here: {count}").format(count=more))
        super().__init__("\n".join(told))


class PlacedValueError(ValueError):
    """Raised by a model's validator to say which of its parts is wrong: paths are relative to the model."""

    def __init__(self, *faults: tuple[PathKey, str]) -> None:
        super().__init__("; ".join(message for _path, message in faults))
        self.faults = faults


def check_exactly_one(values: object, names: Sequence[str], message: str) -> None:
    """Raise ValueError where not just one of some fields is given.

    Args:
        values: the model.
        names: of its fields.
        message: what is to be done.
    """
    given = [name for name in names if getattr(values, name) is not None]
    if len(given) != 1:
        raise ValueError(message + (_(", not {keys}").format(keys=_(" and ").join(given)) if given else ""))


def with_hint(message: str, hint: str) -> str:
    """Return what is wrong, followed by what to do where something is known: a sentence of its own, or half a one."""
    if not hint:
        return message
    return (_("{message}. {hint}") if hint[0].isupper() else _("{message}; {hint}")).format(message=message, hint=hint)


def format_path(path: PathKey) -> str:
    """Return a path as people write it: `distributed_training.cluster.nodes[1].id`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{printable(key)}"
    return text.removeprefix(".")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` was most likely meant to be; `None` where none is near."""
    import difflib  # For a word that is wrong, which few are.

    known = tuple(known)
    folded = {item.casefold().replace("_", "-"): item for item in known}
    wanted = word.casefold().replace("_", "-")
    if wanted not in folded and (other := meant(word, known)):
        return other
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.6)
    if not close and len(wanted) >= 3:
        close = [item for item in folded if wanted in item or (len(item) >= 3 and item in wanted)][:1]
    return folded[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean "…"?`, or nothing where no known word is near."""
    word_meant = nearest(word, known)
    return _('did you mean "{word}"?').format(word=printable(word_meant)) if word_meant else ""


def shown(value: object) -> str:
    """Return a value of a document for use in a message: short, on one line, without control characters."""
    match value:
        case None:
            return _("nothing")
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{_shortened(printable(value))}"'
        case dict():
            return _("a mapping")
        case list() | tuple():
            return _("a list")
        case _:
            return _shortened(str(value))


def printable(text: str) -> str:
    """Return the text with every character that could drive a terminal or hide itself replaced by `�`."""
    return "".join(character if character.isprintable() else "�" for character in text)


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 1] + "…"


def text_width(text: str) -> int:
    """Return how many columns the text takes in a terminal."""
    return sum(
        0 if unicodedata.category(character) in ("Mn", "Me") else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )
