"""A kind of file that is known: what tells it, what it is called, and what becomes of it. Knows no kind by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from dttui.i18n import N_, _
from dttui.spec.problems import DocumentError, PathKey, Problem, printable
from dttui.spec.yaml_source import YamlSource

if TYPE_CHECKING:
    from dttui.spec.dialects.translation import Translated

ReadFile: TypeAlias = Callable[[str], str | None]
"""The text of a file that a document names; `None` where it is not there, or may not be read."""
Data: TypeAlias = Mapping[str, Any]
"""What a document says, as a mapping."""


@dataclass(frozen=True)
class Outside:
    """What a document gets from where it is imported."""

    read: ReadFile
    variables: Mapping[str, str]
    """Those that whoever imports it gives, by name."""


BY_COMMAND = N_("Import the command that it starts: dttui import -- COMMAND.")
"""What to do about what is no job, as a rule."""


@dataclass(frozen=True)
class ProductKind:
    """A kind of document with keys and values."""

    title: str
    """What people call one, with its article: "a SkyPilot task"."""
    tells: Callable[[Data], bool]
    """Whether a document is of this kind."""
    module: str = ""
    """Of this package; its `translate` carries a document over. Without one it is refused."""
    remedy: str = BY_COMMAND
    """What to do where it is refused."""
    place: PathKey = ()
    """What shows that it is of this kind; the first key by default."""

    def translate(self, source: YamlSource, outside: Outside) -> Translated:
        """Carry a document over. Raises DocumentError with every problem of it, and where the kind is refused."""
        if not self.module:
            raise DocumentError([self.refusal(source)])
        module = import_module(f"dttui.spec.dialects.products.{self.module}")
        translated: Translated = module.translate(source, outside)
        return translated

    def refusal(self, source: YamlSource, remedy: str = "") -> Problem:
        """Return that a document is of this kind, and what to do."""
        first = (next(iter(source.data)),) if isinstance(source.data, dict) and source.data else ()
        place = self.place if source.has(self.place) else first
        message = _("this is {kind}").format(kind=_(self.title))
        return source.problem(place, source.key_mark(place), message, remedy or _(self.remedy))


def names_import(problem: Problem) -> Problem:
    """Return what is said of a file where a job file is wanted, and `dttui import` takes it."""
    hint = _("dttui import {file} makes a job file of it.").format(file=printable(problem.file))
    return replace(problem, hint=hint)


def has(data: object, *keys: str) -> bool:
    """Whether a mapping has all keys."""
    return isinstance(data, Mapping) and all(key in data for key in keys)


def has_any(data: object, *keys: str) -> bool:
    """Whether a mapping has one of some keys."""
    return isinstance(data, Mapping) and any(key in data for key in keys)


def at(data: object, *keys: str) -> Any:
    """Return what stands below keys; `None` for nothing."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def text_at(data: object, *keys: str) -> str:
    """Return the text that stands below keys; nothing where there is none."""
    found = at(data, *keys)
    return found if isinstance(found, str) else ""


def share_of(data: Data, known: frozenset[str]) -> float:
    """Return how many of a document's keys are of those, from 0 to 1."""
    return sum(key in known for key in data) / len(data) if data else 0.0
