"""Ansible's inventory as YAML: groups with `hosts`, `children` and `vars`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dttui.i18n import _
from dttui.inventory.ansible import AnsibleInventory, Setting
from dttui.inventory.ansible_ini import expand_host
from dttui.inventory.models import Inventory
from dttui.inventory.ranges import MAX_HOSTS, RangeError
from dttui.spec.problems import DocumentError, PathKey, Problem, did_you_mean, shown
from dttui.spec.yaml_source import Mark, YamlSource

_KEYS = ("hosts", "children", "vars")
_META = "_meta"
"""Where `ansible-inventory --list` puts the variables of hosts; it lists names instead of mapping them."""


def is_ansible_yaml(source: YamlSource) -> bool:
    """Whether a document is such an inventory: no key is one of ours, and groups say what Ansible's say."""
    data = source.data
    if not isinstance(data, dict) or not data or data.keys() & Inventory.model_fields.keys():
        return False
    return (
        "plugin" in data
        or "all" in data
        or any(isinstance(item, dict) and item.keys() & set(_KEYS) for item in data.values())
    )


def parse_ansible_yaml(source: YamlSource) -> AnsibleInventory:
    """Return what such an inventory says. Raises DocumentError with every problem of it."""
    if "plugin" in source.data:
        message = _("this makes an inventory by a plugin of Ansible, which dttui does not run")
        hint = _("Write it out: ansible-inventory --list --yaml > hosts.yaml")
        raise DocumentError([source.problem(("plugin",), source.key_mark(("plugin",)), message, hint)])
    reader = _Reader(source)
    for name in source.data:
        if name != _META:
            reader.group(name, (name,))
    reader.host_variables((_META, "hostvars"))
    if reader.problems:
        raise DocumentError(reader.problems)
    return reader.said


class _Reader:
    def __init__(self, source: YamlSource) -> None:
        self.said = AnsibleInventory(source.name, source.lines)
        self.problems: list[Problem] = []
        self._source = source

    def group(self, name: str, path: PathKey) -> None:
        """Take a group and all in it."""
        mark = self._source.key_mark(path)
        group = self.said.group(name, mark)
        body = self._mapping(path)
        for key in body:
            if key not in _KEYS:
                hint = did_you_mean(key, _KEYS) or _("known keys: {keys}").format(keys=", ".join(_KEYS))
                self._fault((*path, key), self._source.key_mark((*path, key)), _("unknown key"), hint)
        for host, place in self._names((*path, "hosts")):
            self._hosts(name, host, place)
        for child, place in self._names((*path, "children")):
            group.children.setdefault(child, self._source.key_mark(place))
            if isinstance(place[-1], str):
                self.group(child, place)
        group.settings.update(self._settings((*path, "vars")))

    def host_variables(self, path: PathKey) -> None:
        """Take the variables of hosts that were listed before."""
        for host in self._mapping(path):
            if host in self.said.hosts:
                self.said.hosts[host].update(self._settings((*path, host)))

    def _names(self, path: PathKey) -> Iterator[tuple[str, PathKey]]:
        """Yield the names in a mapping, or, in what `ansible-inventory --list` writes, in a list."""
        value = self._source.value(path)
        if isinstance(value, tuple) and _META in self._source.data:
            yield from ((str(name), (*path, index)) for index, name in enumerate(value))
        else:
            yield from ((name, (*path, name)) for name in self._mapping(path))

    def _hosts(self, group: str, text: str, path: PathKey) -> None:
        mark = self._source.key_mark(path)
        settings = self._settings(path) if isinstance(path[-1], str) else {}
        try:
            hosts, port = expand_host(text)
        except RangeError as error:
            self._fault(path, Mark(mark.line, mark.column + error.column), str(error))
            return
        if len(self.said.hosts) + len(hosts) > MAX_HOSTS:
            self._fault(path, mark, _("this stands for more than {limit} hosts").format(limit=MAX_HOSTS))
            return
        if port is not None:
            settings.setdefault("ansible_port", Setting(port, mark))
        for host in hosts:
            self.said.add_host(group, host, mark, settings)

    def _settings(self, path: PathKey) -> dict[str, Setting]:
        return {
            key: Setting(self._text(value, (*path, key)), self._source.mark((*path, key)))
            for key, value in self._mapping(path).items()
        }

    def _text(self, value: Any, path: PathKey) -> Any:
        """Return a plain scalar as it is written: a login name may be a number."""
        written = self._source.written(path)
        return written if written is not None and value is not None else value

    def _mapping(self, path: PathKey) -> dict[str, Any]:
        value = self._source.value(path)
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        message = _("expected a mapping of keys to values, found {value}").format(value=shown(value))
        self._fault(path, self._source.mark(path), message)
        return {}

    def _fault(self, path: PathKey, mark: Mark, message: str, hint: str = "") -> None:
        self.problems.append(self._source.problem(path, mark, message, hint))
