"""Reads inventories, with the place of every mistake: dttui's own, and what other programs have. Content tells them."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from dttui.i18n import _
from dttui.inventory.ansible import AnsibleInventory, to_inventory
from dttui.inventory.ansible_ini import is_ansible_ini, parse_ansible_ini
from dttui.inventory.ansible_vars import add_variable_files
from dttui.inventory.ansible_yaml import is_ansible_yaml, parse_ansible_yaml
from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.inventory.slurm import slurm_inventory
from dttui.locations import SLURM
from dttui.spec.dialects.hostfile import is_hostfile, parse_hostfile
from dttui.spec.problems import DocumentError, Problem
from dttui.spec.yaml_composer import INVENTORY
from dttui.spec.yaml_reader import decode, parse_yaml, read_bytes
from dttui.variables import variables

_SSH_CONFIG = re.compile(r"\A(?:[ \t]*(?:#.*)?\n)*[ \t]*(?:Host|Match|Include)[ \t]+[^\n=:]+(?:\n|\Z)", re.IGNORECASE)
"""How one begins; no inventory does."""


def load_inventory(path: str | os.PathLike[str]) -> Inventory:
    """Read an inventory: a file, or `slurm:` for the allocation of Slurm that dttui runs in.

    A file is an inventory of dttui, a hostfile, or one of Ansible, as INI or YAML. One with nothing in it is an empty
    inventory.

    Raises:
        DocumentError: it cannot be read or is no inventory; with every problem, each with file, line, column and key.
    """
    name = os.fspath(path)
    if name == SLURM:
        return slurm_inventory(variables())
    inventory = parse_inventory(read_bytes(Path(path), name, INVENTORY), name, Path(path).parent)
    if any(item.runs_program for item in inventory.environments):
        _refuse_open(Path(path), name)
    return inventory


def parse_inventory(text: str | bytes, name: str, directory: Path | None = None) -> Inventory:
    """Read an inventory from its text. Raises as load_inventory does.

    Args:
        text: the inventory.
        name: what problems call it.
        directory: where files lie that belong to it, for an inventory of Ansible.
    """
    text = decode(text, name, INVENTORY)
    if is_ssh_config(text):
        message = _("this is an ssh configuration, no inventory")
        raise DocumentError([Problem(name, message, _("Make an inventory of its hosts: dttui envs import"))])
    if is_ansible_ini(text):
        return _of_ansible(parse_ansible_ini(text, name), directory)
    if is_hostfile(text):
        return Inventory(environments=tuple(_hosts(text, name)))
    source = parse_yaml(text, name, INVENTORY)
    if is_ansible_yaml(source):
        return _of_ansible(parse_ansible_yaml(source), directory)
    if source.is_empty:
        return Inventory()
    from dttui.spec.document import validate  # With what explains mistakes, as long as all else here.

    return validate(source, Inventory)


def _refuse_open(path: Path, name: str) -> None:
    """Take no commands to run here from a file that anybody may have written. Raises DocumentError."""
    with contextlib.suppress(OSError):  # It has just been read.
        mode = path.stat().st_mode
        if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
            message = _("everybody can write to this file, and its `exec` says what is run here as you")
            raise DocumentError(
                [Problem(name, message, _("Look what is in it; then: chmod o-w {file}").format(file=path))]
            )


def _of_ansible(said: AnsibleInventory, directory: Path | None) -> Inventory:
    if directory is not None:
        add_variable_files(said, directory)
    return to_inventory(said)


def is_ssh_config(text: str) -> bool:
    """Whether text begins as an ssh configuration does, and no inventory."""
    return _SSH_CONFIG.search(text) is not None


def is_foreign(text: str | bytes, name: str) -> bool:
    """Whether text that parse_inventory reads is of another program."""
    text = decode(text, name, INVENTORY)
    return is_ansible_ini(text) or is_hostfile(text) or is_ansible_yaml(parse_yaml(text, name, INVENTORY))


def _hosts(text: str, name: str) -> list[Environment]:
    hosts = parse_hostfile(text, name)
    return [
        Environment(
            name=host.name,
            host=host.name,
            resources=Resources(gpu=GpuResources(count=host.slots)) if host.slots is not None else Resources(),
        )
        for host in hosts
    ]
