"""The JSON Schema of an inventory, made from the models, for editors and other tools."""

from __future__ import annotations

from typing import Any

from dttui.inventory.models import OF_SSH, Inventory
from dttui.spec.json_schema import document_schema


def inventory_schema() -> dict[str, Any]:
    """Return the schema, draft 2020-12."""
    schema = document_schema(Inventory, "inventory")
    environment = schema["$defs"]["Environment"]
    environment["required"].remove("host")
    ways = [
        {"required": ["host"]},
        {"required": ["exec"]},
        {"required": ["local"], "properties": {"local": {"const": True}}},
    ]
    environment["anyOf"] = ways
    environment["dependentSchemas"] = {
        "exec": {"properties": {**dict.fromkeys(OF_SSH, False), "local": {"const": False}}}
    }
    return schema
