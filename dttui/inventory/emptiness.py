"""Tells that an inventory has no environments before there is anything that could hold one: no model is loaded."""

from __future__ import annotations

from pathlib import Path

from dttui.errors import UsageError
from dttui.spec.yaml_composer import INVENTORY
from dttui.spec.yaml_reader import decode, parse_yaml, read_bytes


def is_without_environments(path: Path) -> bool:
    """Whether a file is an inventory without environments, and without anything else that would have to be right."""
    name = str(path)
    try:
        data = parse_yaml(decode(read_bytes(path, name, INVENTORY), name, INVENTORY), name, INVENTORY).data
    except UsageError:  # Whoever reads it as an inventory says what is wrong.
        return False
    return data is None or (isinstance(data, dict) and not any(data.values()) and data.keys() <= {"environments"})
