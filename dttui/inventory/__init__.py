"""Environments and datasets, and where they are read from."""

from typing import TYPE_CHECKING

from dttui.lazy import first_use

if TYPE_CHECKING:
    from dttui.inventory.demo import demo_inventory as demo_inventory
    from dttui.inventory.emptiness import is_without_environments as is_without_environments
    from dttui.inventory.json_schema import inventory_schema as inventory_schema
    from dttui.inventory.models import Dataset as Dataset
    from dttui.inventory.models import Environment as Environment
    from dttui.inventory.models import Inventory as Inventory
    from dttui.inventory.models import Reach as Reach
    from dttui.inventory.reader import load_inventory as load_inventory
    from dttui.inventory.reader import parse_inventory as parse_inventory
    from dttui.inventory.ssh_hosts import import_ssh_config as import_ssh_config
    from dttui.inventory.writer import add_environments as add_environments

__getattr__ = first_use(__name__)
