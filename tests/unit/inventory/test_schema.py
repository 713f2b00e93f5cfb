"""The JSON Schema of inventories takes what the loader takes, and refuses what contradicts itself as it does."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from dttui.cli import main
from dttui.inventory import parse_inventory
from dttui.inventory.json_schema import inventory_schema
from dttui.spec.problems import DocumentError
from tests.unit.inventory.test_reader import DOCUMENTED

SCHEMA = inventory_schema()
COMMAND = ["docker", "exec", "-i", "a"]


def test_the_documented_inventory_is_valid_and_every_field_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(yaml.safe_load(DOCUMENTED))
    for name, field in SCHEMA["$defs"]["Environment"]["properties"].items():
        referred = SCHEMA["$defs"].get(str(field.get("$ref", "")).rpartition("/")[2], {})
        assert field.get("description") or referred.get("description"), name
    assert main(["schema", "inventory"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "h", "user": "li", "port": 22},
        {"exec": COMMAND},
        {"exec": COMMAND, "host": "h", "address": "10.0.0.1", "local": False},
        {"exec": ["srun", "-N1", 4]},
        {"local": True},
        {"local": True, "host": "localhost"},
        {},
        {"zone": "z"},
        {"local": False},
        {"exec": []},
        {"exec": "docker exec -i a"},
        {"exec": COMMAND, "local": True},
        *({"exec": COMMAND, field: value} for field, value in (("user", "li"), ("port", 22), ("proxy_jump", "j"))),
        {"exec": COMMAND, "identity_file": "k"},
        {"exec": COMMAND, "known_hosts": "k"},
    ],
    ids=str,
)
def test_schema_and_loader_agree_on_how_a_host_is_reached(fields: dict[str, Any]) -> None:
    document = {"environments": [{"name": "a", **fields}]}
    try:
        parse_inventory(yaml.safe_dump(document), "x")
        is_taken = True
    except DocumentError:
        is_taken = False
    assert Draft202012Validator(SCHEMA).is_valid(document) == is_taken
