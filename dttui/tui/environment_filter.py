"""What a person types to see only some environments: words, and terms such as `gpu:A100 free>=4 state:idle`. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from dttui.i18n import _
from dttui.spec import did_you_mean
from dttui.tui.widgets.environment_row import EnvironmentRow

TEXTS: dict[str, Callable[[EnvironmentRow], Iterable[str]]] = {
    "name": lambda row: (row.name,),
    "gpu": lambda row: (row.gpus,),
    "zone": lambda row: (row.zone,),
    "kind": lambda row: row.kinds,
    "state": lambda row: row.states,
    "image": lambda row: (row.image,),
    "user": lambda row: (row.note,),
}
"""Term → what it is looked for in."""
NUMBERS: dict[str, Callable[[EnvironmentRow], float | None]] = {
    "gpus": lambda row: row.gpu_count,
    "free": lambda row: row.free_gpus,
    "util": lambda row: None if row.load is None else 100 * row.load,
    "cpus": lambda row: row.cpus,
    "memory": lambda row: row.memory_gb,
}
"""Term → what it compares: GPUs, those that nobody has, load in percent, CPUs, memory in GB."""
_COMPARES: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
    ":": operator.eq,
}
_TERM = re.compile(r"(!?)([a-z]+)(>=|<=|>|<|=|:)(.*)")


@dataclass(frozen=True)
class Filter:
    """What rows are to have, all of it."""

    tests: tuple[Callable[[EnvironmentRow], bool], ...]
    problem: str = ""
    """What of it says nothing, in words; it is then left out."""

    def takes(self, row: EnvironmentRow) -> bool:
        """Whether a row is to be shown."""
        return all(test(row) for test in self.tests)


def parse_filter(text: str) -> Filter:
    """Return what a person means; a word without a term is looked for in all that a row has. `!` turns a term round."""
    tests: list[Callable[[EnvironmentRow], bool]] = []
    problem = ""
    for word in text.casefold().split():
        found = _TERM.fullmatch(word)
        if found is None:
            tests.append(_has(word))
            continue
        turned, name, sign, value = found.groups()
        if not value and (name in TEXTS or name in NUMBERS):
            continue  # What is still being typed hides nothing.
        test = _test(name, sign, value)
        if isinstance(test, str):
            problem = problem or test
        else:
            tests.append(_not(test) if turned else test)
    return Filter(tuple(tests), problem)


def completions(text: str, rows: Collection[EnvironmentRow]) -> list[str]:
    """Return what the last word of a text may become: terms, and behind one what rows have of it."""
    start, _space, word = text.rpartition(" ")
    head = f"{start} " if start else ""
    name, colon, value = word.casefold().partition(":")
    if colon and name in TEXTS:
        known = {item for row in rows for item in TEXTS[name](row) if item and " " not in item}
        begin = [item for item in sorted(known, key=str.casefold) if item.casefold().startswith(value)]
        return [f"{head}{name}:{item}" for item in begin]
    if not word:
        return []
    terms = (*(f"{name}:" for name in TEXTS), *(f"{name}>=" for name in NUMBERS))
    return [f"{head}{term}" for term in terms if term.startswith(word)]


def _test(name: str, sign: str, value: str) -> Callable[[EnvironmentRow], bool] | str:
    if name in TEXTS and sign in ":=":
        read_text = TEXTS[name]
        return lambda row: any(value in text.casefold() for text in read_text(row))
    if name not in NUMBERS:
        return f"{name}: " + (did_you_mean(name, (*TEXTS, *NUMBERS)) or _("no such term"))
    try:
        wanted = float(value.removesuffix("%").removesuffix("gb"))
    except ValueError:
        return _("{term} is compared with a number").format(term=name)
    read, compare = NUMBERS[name], _COMPARES[sign]
    return lambda row: (number := read(row)) is not None and compare(number, wanted)


def _has(word: str) -> Callable[[EnvironmentRow], bool]:
    return lambda row: word in row.search


def _not(test: Callable[[EnvironmentRow], bool]) -> Callable[[EnvironmentRow], bool]:
    return lambda row: not test(row)
