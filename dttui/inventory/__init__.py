"""Environments and datasets, and where they are read from."""

from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Environment, Inventory
from dttui.inventory.reader import load_inventory, parse_inventory
from dttui.inventory.ssh_hosts import import_ssh_config
from dttui.inventory.writer import add_environments

__all__ = [
    "Environment",
    "Inventory",
    "add_environments",
    "demo_inventory",
    "import_ssh_config",
    "load_inventory",
    "parse_inventory",
]
