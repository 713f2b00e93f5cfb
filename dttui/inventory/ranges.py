"""Many host names written as one: `gpu[1-3,7]` of Slurm, and `gpu[01:04]` of Ansible."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

from dttui.i18n import _
from dttui.spec.problems import shown

MAX_HOSTS = 65_536
"""Most names that one expression may stand for."""

_SLURM_ITEM = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_ANSIBLE_RANGE = re.compile(r"([0-9]{1,9}|[A-Za-z]):([0-9]{1,9}|[A-Za-z])(?::([0-9]{1,9}))?")


class RangeError(ValueError):
    """An expression that cannot be expanded."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(message)
        self.column = column
        """Where in the expression, from 0."""


def expand_slurm(text: str) -> list[str]:
    """Return the names of a Slurm node list, in its order: `gpu[1-3,7],login` or `r[1-2]n[01-16]`."""
    names: dict[str, None] = {}
    for start, item in _split(text):
        for name in _product(item, start, _slurm_choices):
            names[name] = None
            if len(names) > MAX_HOSTS:
                raise RangeError(_too_many(), start)
    return list(names)


def expand_ansible(text: str) -> list[str]:
    """Return the names of an Ansible host pattern: `gpu[01:04]`, `db-[a:f]`, `n[1:9:2]`."""
    return list(_product(text, 0, _ansible_choices))


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Yield the items between commas that are in no brackets, each with where it begins."""
    start, depth = 0, 0
    for index, character in enumerate(text + ","):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and (depth == 0 or index == len(text)):
            if index == start:
                raise RangeError(_("expected a host name, found {value}").format(value=_("nothing")), start)
            yield start, text[start:index]
            start = index + 1


def _product(item: str, start: int, choices: Callable[[str, int], list[str]]) -> Iterator[str]:
    """Yield every name that an item stands for, the last brackets counting fastest."""
    parts: list[list[str]] = []
    total, at = 1, 0
    while at < len(item):
        opened = item.find("[", at)
        plain = item[at : opened if opened >= 0 else len(item)]
        if "]" in plain:
            raise RangeError(_("a bracket closes that was not opened"), start + at + plain.index("]"))
        parts.append([plain])
        if opened < 0:
            break
        closed = item.find("]", opened)
        if closed < 0:
            raise RangeError(_("a bracket is not closed"), start + opened)
        found = choices(item[opened + 1 : closed], start + opened + 1)
        parts.append(found)
        total *= len(found)
        if total > MAX_HOSTS:
            raise RangeError(_too_many(), start + opened)
        at = closed + 1
    for combination in itertools.product(*parts):
        yield "".join(combination)


def _slurm_choices(text: str, column: int) -> list[str]:
    found: list[str] = []
    for item in text.split(","):
        match = _SLURM_ITEM.fullmatch(item)
        if match is None:
            message = _("expected a range such as 1-3 or 07, found {value}").format(value=shown(item))
            raise RangeError(message, column)
        first, last = int(match[1]), int(match[2] or match[1])
        _check_size(first, last, len(found), column)
        found += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
        column += len(item) + 1
    return found


def _ansible_choices(text: str, column: int) -> list[str]:
    match = _ANSIBLE_RANGE.fullmatch(text)
    if match is None or match[1].isdecimal() != match[2].isdecimal() or match[3] in ("0", "00"):
        message = _("expected a range such as 01:04 or a:f, found {value}").format(value=shown(text))
        raise RangeError(message, column)
    step = max(int(match[3] or 1), 1)
    if match[1].isdecimal():
        first, last = int(match[1]), int(match[2])
        _check_size(first, last, 0, column)
        width = len(match[1]) if match[1].startswith("0") else 0
        return [str(number).zfill(width) for number in range(first, last + 1, step)]
    _check_size(ord(match[1]), ord(match[2]), 0, column)
    return [chr(code) for code in range(ord(match[1]), ord(match[2]) + 1, step)]


def _check_size(first: int, last: int, before: int, column: int) -> None:
    if last < first:
        raise RangeError(_("this range ends before it begins"), column)
    if before + last - first + 1 > MAX_HOSTS:
        raise RangeError(_too_many(), column)


def _too_many() -> str:
    return _("this stands for more than {limit} hosts").format(limit=MAX_HOSTS)
