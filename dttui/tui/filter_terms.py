"""What a person types to see only some rows: words, and terms such as `state:failed loss<2`. Pure; knows no rows."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dttui.i18n import _, in_a_row, ngettext
from dttui.spec import did_you_mean

RowT = TypeVar("RowT")
_COMPARES: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
    ":": operator.eq,
}
_TERM = re.compile(r"(!?)([a-z]+)(>=|<=|>|<|=|:)(.*)")


def plain_number(text: str) -> float:
    """Return a number as a person writes it. Raises ValueError."""
    return float(text)


@dataclass(frozen=True)
class Filter(Generic[RowT]):
    """What rows are to have, all of it."""

    tests: tuple[Callable[[RowT], bool], ...]
    problem: str = ""
    """What of it says nothing, in words; it is then left out."""

    def takes(self, row: RowT) -> bool:
        """Whether a row is to be shown."""
        return all(test(row) for test in self.tests)


@dataclass(frozen=True)
class Terms(Generic[RowT]):
    """The terms of one kind of rows."""

    search: Callable[[RowT], str]
    """What a word without a term is looked for in, folded."""
    texts: Mapping[str, Callable[[RowT], Iterable[str]]]
    """Term → what it is looked for in."""
    numbers: Mapping[str, Callable[[RowT], float | None]]
    """Term → what it compares."""
    units: Mapping[str, Callable[[str], float]] = field(default_factory=dict)
    """Term → what reads its number, where that has a unit; raises ValueError."""
    times: Mapping[str, Callable[[str], Callable[[RowT], bool]]] = field(default_factory=dict)
    """Term → what makes a test of a time that a person writes; raises ValueError."""

    def parse(self, text: str) -> Filter[RowT]:
        """Return what a person means; a word that is no term is looked for in all. `!` turns a term round."""
        tests: list[Callable[[RowT], bool]] = []
        problem = ""
        for word in text.casefold().split():
            found = _TERM.fullmatch(word)
            if found is None:
                tests.append(self._has(word))
                continue
            turned, name, sign, value = found.groups()
            if not value and name in self._names:
                continue  # What is still being typed hides nothing.
            test = self._test(name, sign, value)
            if isinstance(test, str):
                problem = problem or test
            else:
                tests.append(_not(test) if turned else test)
        return Filter(tuple(tests), problem)

    def completions(self, text: str, rows: Collection[RowT]) -> list[str]:
        """Return what the last word of a text may become: terms, and behind one what rows have of it."""
        start, _space, word = text.rpartition(" ")
        head = f"{start} " if start else ""
        name, colon, value = word.casefold().partition(":")
        if colon and name in self.texts:
            known = {item for row in rows for item in self.texts[name](row) if item and " " not in item}
            begin = [item for item in sorted(known, key=str.casefold) if item.casefold().startswith(value)]
            return [f"{head}{name}:{item}" for item in begin]
        if not word:
            return []
        terms = (*(f"{name}:" for name in (*self.texts, *self.times)), *(f"{name}>=" for name in self.numbers))
        return [f"{head}{term}" for term in terms if term.startswith(word)]

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self.texts, *self.numbers, *self.times)

    def _test(self, name: str, sign: str, value: str) -> Callable[[RowT], bool] | str:
        if name in self.texts and sign in ":=":
            read_text = self.texts[name]
            return lambda row: any(value in text.casefold() for text in read_text(row))
        if name in self.times and sign in ":=":
            try:
                return self.times[name](value)
            except ValueError:
                return _("{term}: a time is written as in {example}").format(term=name, example="7d, 2h, 13:05")
        if name in self._names and name not in self.numbers:
            return f"{name}: " + (
                did_you_mean(name, self.numbers) or _("nothing to compare; write {term}").format(term=f"{name}:…")
            )
        if name not in self.numbers:
            return f"{name}: " + (did_you_mean(name, self._names) or _("no such term"))
        try:
            wanted = self.units.get(name, plain_number)(value)
        except ValueError:
            return _("{term} is compared with a number").format(term=name)
        read, compare = self.numbers[name], _COMPARES[sign]
        return lambda row: (number := read(row)) is not None and compare(number, wanted)

    def _has(self, word: str) -> Callable[[RowT], bool]:
        return lambda row: word in self.search(row)


def _not(test: Callable[[RowT], bool]) -> Callable[[RowT], bool]:
    return lambda row: not test(row)


def ordered(rows: Iterable[RowT], key: Callable[[RowT], Any], *, is_reversed: bool) -> list[RowT]:
    """Return rows sorted by a key; those of which it is `None` come last either way."""
    keyed = [(key(row), row) for row in rows]
    known = sorted((pair for pair in keyed if pair[0] is not None), key=operator.itemgetter(0), reverse=is_reversed)
    return [row for _value, row in (*known, *(pair for pair in keyed if pair[0] is None))]


def marks_told(marked: Collection[str], shown: Iterable[str]) -> str:
    """Return how many rows are marked, those that a filter hides among them."""
    told = [ngettext("{count} marked", "{count} marked", len(marked)).format(count=len(marked))]
    if hidden := len(set(marked).difference(shown)):
        told.append(_("{count} of them not shown").format(count=hidden))
    return in_a_row(told)
