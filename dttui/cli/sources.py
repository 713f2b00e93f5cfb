"""Which inventory and which job a command line means."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dttui import inventory as inventories
from dttui import locations
from dttui.errors import UsageError
from dttui.i18n import _
from dttui.spec import did_you_mean
from dttui.words import listed

if TYPE_CHECKING:
    from dttui.inventory import Environment, Inventory
    from dttui.planning import Submission

MAX_NAMES = 12
"""Environments that an error names; the others are counted."""


def read_inventory(options: Namespace, *, required: bool = True) -> Inventory:
    """Return the inventory of --demo, --inventory or the default place; empty where that is absent and not required.

    Raises:
        UsageError: it cannot be read, or there is none.
    """
    if options.demo:
        return inventories.demo_inventory(locations.demo_root(), locations.shipped("examples"), sys.executable)
    path = inventory_path(options)
    if options.inventory is None and not path.exists() and str(path) != locations.SLURM:
        if not required:
            return inventories.Inventory()
        raise UsageError(
            _("there is no inventory at {path}").format(path=path),
            _("Name one with --inventory, import hosts with `dttui envs import`, or try --demo."),
        )
    return inventories.load_inventory(path)


def inventory_path(options: Namespace) -> Path:
    """Return where the inventory is, or would be."""
    return Path(options.inventory).expanduser() if options.inventory else locations.inventory_file()


def read_submission(options: Namespace, file: str) -> Submission:
    """Return the job of a file together with the inventory. Raises UsageError with every problem and its place."""
    from dttui.planning import Submission
    from dttui.spec import decode, parse_document, read_bytes  # An inventory is read without them.

    path = Path(file)
    text = decode(read_bytes(path, file), file)
    loaded = parse_document(text, file)
    base = path.resolve().parent
    return Submission(loaded.job, read_inventory(options), base, text, file, loaded.notes, source=loaded.source)


def choose(inventory: Inventory, names: Sequence[str], actions: Sequence[str] = ()) -> list[Environment]:
    """Return the environments named, all for none. Raises UsageError for a name that is not there.

    Args:
        inventory: where they are.
        names: what was written.
        actions: words that might have been meant instead.
    """
    chosen = []
    for name in names:
        found = inventory.find(name)
        if found is None:
            known = [item.name for item in inventory.environments]
            near = did_you_mean(name, (*actions, *known))
            has = _("The inventory has: {names}").format(names=listed(known, MAX_NAMES) or "–")
            raise UsageError(
                _("there is no environment {name}").format(name=name), f"{near[:1].upper()}{near[1:]} {has}".strip()
            )
        chosen.append(found)
    return chosen or list(inventory.environments)


def own_options(options: Namespace) -> Sequence[str]:
    """Return what has to be repeated in a call of dttui about the same hosts."""
    if options.demo:
        return ("--demo",)
    return ("--inventory", str(inventory_path(options))) if options.inventory else ()
