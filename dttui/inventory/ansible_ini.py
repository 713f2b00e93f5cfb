"""Ansible's inventory as INI: sections of hosts, of groups (`:children`) and of variables (`:vars`)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from dttui.i18n import _
from dttui.inventory.ansible import ALL, AnsibleInventory, Setting
from dttui.inventory.ranges import MAX_HOSTS, RangeError, expand_ansible
from dttui.spec.problems import DocumentError, Problem, did_you_mean, printable, shown
from dttui.spec.yaml_source import Mark

_SECTION = re.compile(r"\[([^\[\]=,{}\"']+)\]\s*(?:[#;].*)?")
_HOST = re.compile(r"[A-Za-z0-9_.][\w.\[\]:-]*")
_ADDRESS = re.compile(r"\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\](?::([0-9]{1,5}))?")
_WITH_PORT = re.compile(r"((?:[^\[\]:]|\[[^\]]*\])+):([0-9]{1,5})")
_VARIABLE = re.compile(r"\bansible_\w+\s*=")
_KINDS = ("hosts", "children", "vars")
_UNGROUPED = "ungrouped"


def is_ansible_ini(text: str) -> bool:
    """Whether text is such an inventory: it has a section, or its first line is a host with ranges or variables."""
    lines = text.splitlines()
    if any(_SECTION.fullmatch(line) for line in lines):
        return True
    first = next((line for line in lines if line.strip() and line.strip()[0] not in "#;"), "")
    words = first.split()
    if first[:1].isspace() or not words or not _HOST.fullmatch(words[0]) or words[0].endswith(":"):
        return False
    return "[" in words[0] or (
        len(words) > 1 and _VARIABLE.match(first, first.index(words[1], len(words[0]))) is not None
    )


def parse_ansible_ini(text: str, name: str) -> AnsibleInventory:
    """Return what such an inventory says. Raises DocumentError with every problem of it."""
    parser = _Parser(text, name)
    parser.parse()
    return parser.said


def expand_host(text: str) -> tuple[list[str], int | None]:
    """Return the hosts that a pattern stands for, and the port at its end. Raises RangeError."""
    address = _ADDRESS.fullmatch(text)
    if address:
        return [address[1]], int(address[2]) if address[2] else None
    match = _WITH_PORT.fullmatch(text)
    if match:
        return expand_ansible(match[1]), int(match[2])
    return expand_ansible(text), None


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        lines = tuple(text.splitlines())
        self.said = AnsibleInventory(name, lines)
        self._group = _UNGROUPED
        self._kind = "hosts"
        self._problems: list[Problem] = []

    def parse(self) -> None:
        for number, line in enumerate(self.said.lines, 1):
            stripped = line.strip()
            if not stripped or stripped[0] in "#;":
                continue
            mark = Mark(number, len(line) - len(line.lstrip()) + 1)
            section = _SECTION.fullmatch(stripped)
            try:
                if section:
                    self._open(section[1].strip(), mark)
                elif self._kind == "hosts":
                    self._host_line(line, number)
                elif self._kind == "children":
                    group = self.said.group(self._group, mark)
                    group.children.setdefault(_without_comment(stripped), mark)
                elif self._kind == "vars":
                    self._variable_line(line, mark)
            except DocumentError as error:
                self._problems += error.problems
        if self._problems:
            raise DocumentError(self._problems)

    def _open(self, title: str, mark: Mark) -> None:
        name, _separator, kind = title.partition(":")
        self._group, self._kind = name.strip(), kind.strip() or "hosts"
        if self._kind not in _KINDS:
            message = _("expected [GROUP], [GROUP:children] or [GROUP:vars], found {value}")
            near = did_you_mean(self._kind, _KINDS)
            self._kind = ""  # What follows, up to the next section, is of no known kind.
            raise DocumentError([self.said.problem(mark, message.format(value=shown(f"[{title}]")), near)])
        if self._kind != "vars" or self._group != ALL:
            self.said.group(self._group, mark)

    def _host_line(self, line: str, number: int) -> None:
        mark = Mark(number, len(line) - len(line.lstrip()) + 1)
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise DocumentError([self.said.problem(mark, _("a quote is not closed"))]) from error
        settings: dict[str, Setting] = {}
        for word in words[1:]:
            key, separator, value = word.partition("=")
            column = max(line.find(word if word in line else key, len(words[0])), 0) + 1
            if not separator:
                message = _("expected NAME=VALUE, found {value}").format(value=shown(word))
                raise DocumentError([self.said.problem(Mark(number, column), message)])
            settings[key] = Setting(value, Mark(number, column))
        for host in self._hosts(words[0], mark, settings):
            self.said.add_host(self._group, host, mark, settings)

    def _hosts(self, text: str, mark: Mark, settings: dict[str, Setting]) -> Iterator[str]:
        try:
            hosts, port = expand_host(text)
        except RangeError as error:
            raise DocumentError([self.said.problem(Mark(mark.line, mark.column + error.column), str(error))]) from error
        if len(self.said.hosts) + len(hosts) > MAX_HOSTS:
            message = _("this stands for more than {limit} hosts").format(limit=MAX_HOSTS)
            raise DocumentError([self.said.problem(mark, message)])
        if port is not None:
            settings.setdefault("ansible_port", Setting(port, mark))
        yield from hosts

    def _variable_line(self, line: str, mark: Mark) -> None:
        key, separator, value = line.strip().partition("=")
        if not separator:
            message = _("expected NAME=VALUE, found {value}").format(value=shown(printable(line.strip())))
            raise DocumentError([self.said.problem(mark, message)])
        place = Mark(mark.line, line.index("=") + 2)
        value = _without_comment(value.strip())
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        group = self.said.group(self._group, mark)
        group.settings[key.strip()] = Setting(value[1:-1] if quoted else value, place)


def _without_comment(text: str) -> str:
    return re.split(r"\s#", text, maxsplit=1)[0].strip()
