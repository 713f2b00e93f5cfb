"""Variables that Ansible reads from files beside an inventory: `group_vars/GROUP.yml` and `host_vars/HOST.yml`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dttui.inventory.ansible import AnsibleInventory, Setting
from dttui.spec.yaml_composer import compose
from dttui.spec.yaml_reader import decode, read_bytes
from dttui.spec.yaml_source import Mark

MAX_FILES = 1000
"""Most files that are looked into."""

_ENDINGS = ("", ".yml", ".yaml", ".json")
_VAULT = b"$ANSIBLE_VAULT"


def add_variable_files(said: AnsibleInventory, directory: Path) -> None:
    """Add what files beside an inventory say of its groups and hosts; it wins over the inventory itself.

    Encrypted files and values are passed over. Raises DocumentError where a file is no YAML.
    """
    left = MAX_FILES
    for name in ["all", *(name for name in said.groups if name != "all")]:
        for path in _files(directory / "group_vars", name):
            left -= 1
            settings = _settings(path, Mark(1, 1)) if left >= 0 else {}
            if settings:
                said.group(name, Mark(1, 1)).settings.update(settings)
    for host, own in said.hosts.items():
        for path in _files(directory / "host_vars", host):
            left -= 1
            own.update(_settings(path, said.marks[host]) if left >= 0 else {})


def _files(directory: Path, name: str) -> Iterator[Path]:
    """Yield the files on a group or a host: one of its name, or all in a directory of its name."""
    if not directory.is_dir() or "/" in name or name.startswith("."):
        return
    for ending in _ENDINGS:
        path = directory / f"{name}{ending}"
        if path.is_dir():
            yield from (item for item in sorted(path.iterdir()) if item.suffix in _ENDINGS and item.is_file())
        elif path.is_file():
            yield path


def _settings(path: Path, mark: Mark) -> dict[str, Setting]:
    """Return the variables of a file; what is wrong with one is shown at the host, and names the file."""
    content = read_bytes(path, str(path))
    if content.startswith(_VAULT):
        return {}
    source = compose(decode(content, str(path)), str(path))
    items = source.data.items() if isinstance(source.data, dict) else ()
    encrypted = {problem.path for problem in source.problems}
    return {
        key: Setting(source.written((key,)) or value, mark, str(path))
        for key, value in items
        if (key,) not in encrypted
    }
