"""The JSON Schema of the settings file, made from its model and the keys that there are, for editors."""

from __future__ import annotations

from typing import Any

from dttui.spec import document_schema
from dttui.tui.bindings import all_bindings, keys_of
from dttui.tui.settings import Settings


def settings_schema() -> dict[str, Any]:
    """Return the schema, draft 2020-12; a keymap has what commands there are, each with the keys that it has now."""
    schema = document_schema(Settings, "settings")
    keymap = schema["properties"]["keymap"]
    of_keys = keymap.pop("additionalProperties")
    keymap["properties"] = {
        name: {
            **of_keys,
            "description": known.binding.tooltip or known.binding.description,
            "default": ",".join(keys_of(known, {})),
        }
        for name, known in sorted(all_bindings().items())
    }
    keymap["additionalProperties"] = False
    return schema
