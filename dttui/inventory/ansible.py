"""Hosts and groups as Ansible has them, and the environments they amount to. Knows neither of the file formats."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dttui.i18n import _
from dttui.inventory.models import MAX_GPUS, Inventory
from dttui.spec.problems import DocumentError, PathKey, Problem, did_you_mean, printable, shown
from dttui.spec.yaml_source import Mark, Value, YamlSource

ALL = "all"
"""The group that every host is in."""

MAX_STEPS = 200_000
"""Most groups that are looked at for the hosts in them."""

_FIELDS = {
    "host": ("ansible_host", "ansible_ssh_host"),
    "user": ("ansible_user", "ansible_ssh_user"),
    "port": ("ansible_port", "ansible_ssh_port"),
    "identity_file": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
    "proxy_jump": ("ansible_ssh_common_args", "ansible_ssh_extra_args"),
    "local": ("ansible_connection",),
    "python": ("ansible_python_interpreter",),
}
"""What an environment takes of a host, and the variables that say it, the first one first."""
_GPU_COUNT = ("gpu_count", "gpus")
_GPU_TYPE = "gpu_type"
"""Variables that are no Ansible's own, and that many inventories have."""
_BY_SSH = ("smart", "ssh", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "ansible.builtin.paramiko_ssh")
_JUMP = re.compile(r"(?:-o\s*ProxyJump[= ]\s*|-J\s*)([^\s'\",]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Setting:
    """The value of a variable."""

    value: Any
    """`str`, `int`, …; a mapping or a list where it is no concern of ours."""
    mark: Mark
    """Where it stands."""
    file: str | None = None
    """The file that says it, where that is not the inventory; it is shown at the host then."""


@dataclass
class Group:
    """Hosts, and what is said of all of them."""

    mark: Mark
    """Where it is first named."""
    hosts: dict[str, Mark] = field(default_factory=dict)
    """Hosts, and where each is named."""
    children: dict[str, Mark] = field(default_factory=dict)
    """Groups in it, and where each is named."""
    settings: dict[str, Setting] = field(default_factory=dict)
    """Variables of all that is in it."""


@dataclass
class AnsibleInventory:
    """What a file says."""

    name: str
    """The file, as the person named it."""
    lines: tuple[str, ...]
    groups: dict[str, Group] = field(default_factory=dict)
    hosts: dict[str, dict[str, Setting]] = field(default_factory=dict)
    """Variables of each host, in the order in which hosts are first named."""
    marks: dict[str, Mark] = field(default_factory=dict)
    """Where each host is first named."""

    def group(self, name: str, mark: Mark) -> Group:
        """Return a group, made where it is new."""
        return self.groups.setdefault(name, Group(mark))

    def add_host(self, group: str, host: str, mark: Mark, settings: Mapping[str, Setting]) -> None:
        """Put a host into a group; what is said of it in several places is taken together."""
        self.group(group, mark).hosts.setdefault(host, mark)
        self.hosts.setdefault(host, {}).update(settings)
        self.marks.setdefault(host, mark)

    def problem(self, mark: Mark, message: str, hint: str = "", path: PathKey = ()) -> Problem:
        """Return a problem at a place of the file."""
        line = self.lines[mark.line - 1] if mark.line <= len(self.lines) else ""
        return Problem(self.name, message, hint, path, mark.line, mark.column, line)


def to_inventory(said: AnsibleInventory) -> Inventory:
    """Return the environments of a file. Raises DocumentError with every problem and its place."""
    groups = _Groups(said)
    member_of: dict[str, list[str]] = defaultdict(list)
    for name, group in said.groups.items():
        for host in group.hosts:
            member_of[host].append(name)
    items: list[Value] = []
    origins: dict[tuple[int, str], PathKey] = {}
    problems: list[Problem] = []
    for index, (host, own) in enumerate(said.hosts.items()):
        known = {**groups.settings(tuple(member_of[host])), **own}
        fields, found = _fields(said, host, known, index, origins)
        problems += found
        items.append(_mapping(said.marks[host], fields))
    if problems:
        raise DocumentError(problems)
    listed = Value(Mark(1, 1), tuple(item.data for item in items), items=items, open=False)
    root = _mapping(Mark(1, 1), {"environments": listed})
    try:
        from dttui.spec.document import validate  # Of an inventory of dttui's own, this is not read.

        return validate(YamlSource(name=said.name, data=root.data, lines=said.lines, _root=root), Inventory)
    except DocumentError as error:
        raise DocumentError(
            replace(problem, path=_origin(problem.path, origins)) for problem in error.problems
        ) from error


def _fields(
    said: AnsibleInventory, host: str, known: Mapping[str, Setting], index: int, origins: dict[tuple[int, str], PathKey]
) -> tuple[dict[str, Value], list[Problem]]:
    """Return what an environment takes of a host's variables."""
    mark = said.marks[host]
    fields = {"name": Value(mark, host, open=False), "host": Value(mark, host, open=False)}
    problems: list[Problem] = []
    for key in ("name", "host"):
        origins[index, key] = (host,)
    for key, names in _FIELDS.items():
        name = next((name for name in names if name in known), None)
        if name is None:
            continue
        setting = known[name]
        value = setting.value
        origin = (host, name) if setting.file is None else (setting.file, name)
        if isinstance(value, str) and "{{" in value:
            message = _("{name} is a template: {value}").format(name=name, value=shown(value))
            hint = _("Only Ansible can fill it in: ansible-inventory --list --yaml writes a file without templates.")
            problems.append(said.problem(setting.mark, message, hint, origin))
            continue
        if key == "local" and value is not None and value not in ("local", "ansible.builtin.local", *_BY_SSH):
            message = _("{host} is reached by neither SSH nor here: {way}").format(
                host=printable(host), way=shown(value)
            )
            hint = _("Write it into an inventory of dttui's own, with `exec`: the command that reaches it.")
            problems.append(said.problem(setting.mark, message, hint, origin))
            continue
        value = _converted(key, value)
        if value is not None:
            fields[key] = Value(setting.mark, value, str(value), open=False)
            origins[index, key] = origin
    gpu = _gpu(known)
    if gpu is not None:
        fields["resources"] = _mapping(gpu.mark, {"gpu": gpu})
        origins[index, "resources"] = (host, next(name for name in _GPU_COUNT if name in known))
    for name, setting in known.items():
        if meant := _misspelt(name):
            message = _("{name} is no variable of Ansible's").format(name=printable(name))
            origin = (host, name) if setting.file is None else (setting.file, name)
            problems.append(said.problem(setting.mark, message, did_you_mean(name, [meant]), origin))
    return fields, problems


def _gpu(known: Mapping[str, Setting]) -> Value | None:
    """Return the GPUs that a host's own variables declare; `None` where they give no number."""
    count = next((known[name] for name in _GPU_COUNT if name in known), None)
    if count is None or not re.fullmatch(r"[0-9]{1,4}", str(count.value)) or int(count.value) > MAX_GPUS:
        return None
    items = {"count": Value(count.mark, int(count.value), str(count.value), open=False)}
    kind = known.get(_GPU_TYPE)
    if kind is not None and isinstance(kind.value, str) and kind.value and "{{" not in kind.value:
        items["type"] = Value(kind.mark, kind.value, kind.value, open=False)
    return _mapping(count.mark, items)


def _misspelt(name: str) -> str | None:
    """Return the variable that differs from this name by two letters that changed places, or by one letter less."""
    known = [item for names in _FIELDS.values() for item in names]
    if name in known or not name.startswith("ansible_"):
        return None
    return next(
        (
            item
            for item in known
            if sorted(item) == sorted(name)
            or (len(name) == len(item) - 1 and any(item[:at] + item[at + 1 :] == name for at in range(len(item))))
        ),
        None,
    )


def _converted(key: str, value: Any) -> Any:
    if key == "port" and isinstance(value, str) and value.isdecimal() and len(value) < 7:
        return int(value)
    if key == "python":  # `auto` and the like let Ansible look for one.
        return value if isinstance(value, str) and value.startswith("/") else None
    if key == "local":
        return True if value in ("local", "ansible.builtin.local") else None
    if key == "proxy_jump":
        match = _JUMP.search(value) if isinstance(value, str) else None
        return match[1] if match else None
    return value


class _Groups:
    """Groups, and what each and all around it say of its hosts. Raises DocumentError where one is within itself."""

    def __init__(self, said: AnsibleInventory) -> None:
        self._said = said
        self._parents: dict[str, list[str]] = {name: [] for name in said.groups}
        problems = []
        for name, group in said.groups.items():
            for child, mark in group.children.items():
                if child in self._parents:
                    self._parents[child].append(name)
                else:
                    message = _("there is no group {name}").format(name=printable(child))
                    problems.append(said.problem(mark, message))
        if problems:
            raise DocumentError(problems)
        self._depths = self._ranked()
        self._known: dict[tuple[str, ...], dict[str, Setting]] = {}
        self._steps = 0

    def settings(self, names: tuple[str, ...]) -> dict[str, Setting]:
        """Return what is said of a host that is in these groups itself; what is said of inner groups wins."""
        if names not in self._known:
            around, open_ = set(names), list(names)
            while open_:
                new = [parent for parent in self._parents[open_.pop()] if parent not in around]
                around.update(new)
                open_ += new
            self._steps += len(around)
            if self._steps > MAX_STEPS:
                message = _("there are too many groups within groups")
                raise DocumentError([self._said.problem(self._said.groups[names[0]].mark, message)])
            known: dict[str, Setting] = {}
            for name in (ALL, *sorted(around - {ALL}, key=lambda name: (self._depths[name], name))):
                known.update(self._said.groups[name].settings if name in self._said.groups else {})
            self._known[names] = known
        return self._known[names]

    def _ranked(self) -> dict[str, int]:
        """Return how deep each group is in others."""
        depths: dict[str, int] = {}
        missing = {name: len(above) for name, above in self._parents.items()}
        ready = [name for name, count in missing.items() if not count]
        while ready:
            name = ready.pop()
            depths[name] = 1 + max((depths[parent] for parent in self._parents[name]), default=-1)
            for child in self._said.groups[name].children:
                missing[child] -= 1
                if not missing[child]:
                    ready.append(child)
        circular = [name for name in self._said.groups if name not in depths]
        if circular:
            message = _("group {name} is within itself").format(name=printable(circular[0]))
            raise DocumentError([self._said.problem(self._said.groups[circular[0]].mark, message)])
        return depths


def _mapping(mark: Mark, items: dict[str, Value]) -> Value:
    marks = {key: value.mark for key, value in items.items()}
    data = {key: value.data for key, value in items.items()}
    return Value(mark, data, items=items, key_marks=marks, open=False)


def _origin(path: PathKey, origins: Mapping[tuple[int, str], PathKey]) -> PathKey:
    if len(path) >= 3 and isinstance(path[1], int):
        return origins.get((path[1], str(path[2])), ())
    return ()
