"""The fixture of the shared isolated hosts with agents on them, as the command that a person would use brings them."""

from __future__ import annotations

import json
import os

import pytest

from tests.integration.headless import dttui
from tests.lab.hosts import Lab


@pytest.fixture(scope="session")
def deployed(lab3: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The lab with agents on all hosts."""
    home = tmp_path_factory.mktemp("deploy")
    env = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home), "XDG_STATE_HOME": str(home)}
    inventory = lab3.inventory(home / "inventory.yaml")
    done = dttui("agents", "deploy", "--inventory", inventory, "--output", "jsonl", env=env)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["host"] for row in rows] == ["gpu1", "gpu2", "gpu3"]  # Another test may have deployed to one of them.
    again = dttui("agents", "deploy", "gpu3", "--inventory", inventory, "--output", "jsonl", env=env)
    assert [json.loads(line)["changed"] for line in again.stdout.splitlines()] == [False]
    return lab3
