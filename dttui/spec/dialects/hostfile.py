"""A hostfile, as DeepSpeed and MPI have it: `gpu1 slots=8`, a host a line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dttui.i18n import _
from dttui.spec.problems import DocumentError, Problem, did_you_mean, printable, shown
from dttui.spec.text import HOST_NAME
from dttui.spec.yaml_source import Mark

MAX_SLOTS = 1024
_KEYS = ("slots", "max_slots", "max-slots")
_WORD = re.compile(r"\S+")
_COLON_SLOTS = re.compile(r"^(\s*[^\s:=]+):([0-9]{1,4})(?=\s|$)")
_SETTING = re.compile(r"([A-Za-z_-]+)=(\S*)")


@dataclass(frozen=True)
class Host:
    """A line of a hostfile."""

    name: str
    slots: int | None
    """Ranks that it takes; `None` where the line does not say."""
    mark: Mark
    """Where the name stands."""
    slots_mark: Mark
    """Where the slots stand, or else the name."""


def is_hostfile(text: str) -> bool:
    """Whether text is a hostfile: each line is a host, or a host and `slots=N`; the first tells."""
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            settings = all(_SETTING.fullmatch(word) for word in words[1:])
            return settings and re.fullmatch(HOST_NAME, words[0]) is not None and not words[0].endswith(("]", ":"))
    return False


def parse_hostfile(text: str, name: str) -> tuple[Host, ...]:
    """Return the hosts of a hostfile. Raises DocumentError with every problem of it."""
    hosts: dict[str, Host] = {}
    problems: list[Problem] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = list(_WORD.finditer(_with_slots(line.partition("#")[0])))
        if not words:
            continue
        host, found = _parse_line(name, line, number, words)
        problems += found
        if host.name in hosts:
            message = _("{host} is here twice; the first is in line {line}")
            message = message.format(host=printable(host.name), line=hosts[host.name].mark.line)
            problems.append(Problem(name, message, line=number, column=host.mark.column, source_line=line))
        hosts.setdefault(host.name, host)
    if problems:
        raise DocumentError(problems)
    return tuple(hosts.values())


def _with_slots(line: str) -> str:
    """Return `gpu1:8`, as MPICH has it, as `gpu1 slots=8`."""
    return _COLON_SLOTS.sub(r"\1 slots=\2", line)


def _parse_line(name: str, line: str, number: int, words: list[re.Match[str]]) -> tuple[Host, list[Problem]]:
    def problem(word: re.Match[str], message: str, hint: str = "") -> Problem:
        return Problem(name, message, hint, line=number, column=word.start() + 1, source_line=line)

    problems: list[Problem] = []
    first = words[0]
    if not re.fullmatch(HOST_NAME, first[0]) or len(first[0]) > 80:
        message = _("expected a host name, found {value}").format(value=shown(first[0]))
        problems.append(problem(first, message, _("A line is HOST slots=N.")))
    slots: int | None = None
    mark = Mark(number, first.start() + 1)
    for word in words[1:]:
        setting = _SETTING.fullmatch(word[0])
        if setting is None or setting[1] not in _KEYS:
            near = did_you_mean(setting[1], _KEYS) if setting is not None else ""
            message = _("expected slots=N, found {value}").format(value=shown(word[0]))
            problems.append(problem(word, message, near or _("A line is HOST slots=N.")))
        elif not re.fullmatch("[0-9]{1,6}", setting[2]) or int(setting[2]) > MAX_SLOTS:
            message = _("expected a number of slots of at most {limit}, found {value}")
            problems.append(problem(word, message.format(limit=MAX_SLOTS, value=shown(setting[2]))))
        elif setting[1] == "slots":
            slots = int(setting[2])
            mark = Mark(number, word.start() + 1)
    return Host(first[0], slots, Mark(number, first.start() + 1), mark), problems
