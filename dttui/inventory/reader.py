"""Reads inventory.yaml, with the place of every mistake."""

from __future__ import annotations

import os
from pathlib import Path

from dttui.inventory.models import Inventory
from dttui.spec.document import validate
from dttui.spec.yaml_reader import parse_yaml, read_yaml
from dttui.spec.yaml_source import Source


def load_inventory(path: str | os.PathLike[str]) -> Inventory:
    """Read an inventory file. One with nothing in it is an empty inventory.

    Raises:
        DocumentError: it cannot be read or is no inventory; with every problem, each with file, line, column and key.
    """
    return _inventory(read_yaml(Path(path), os.fspath(path)))


def parse_inventory(text: str | bytes, name: str) -> Inventory:
    """Read an inventory from YAML text; `name` is what problems call it. Raises as load_inventory does."""
    return _inventory(parse_yaml(text, name))


def _inventory(source: Source) -> Inventory:
    return Inventory() if source.is_empty else validate(source, Inventory)
