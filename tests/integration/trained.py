"""The fixture of the example, trained once over SSH on all isolated hosts; several tests look at what it left."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.headless import dttui, example_job, result_of
from tests.lab.hosts import Lab


@dataclass(frozen=True)
class Trained:
    """What was trained, where, and what came of it."""

    job: Path
    inventory: Path
    result: dict[str, Any]
    """The document of the outcome."""


@pytest.fixture(scope="session")
def trained(deployed: Lab, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """One rank on gpu2, the master, one on gpu1 and two on gpu3, which is bare."""
    home = tmp_path_factory.mktemp("trained")
    env = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home), "XDG_STATE_HOME": str(home)}
    inventory = deployed.inventory(home / "inventory.yaml")
    job = example_job(home, {"gpu2": 1, "gpu1": 1, "gpu3": 2}, "--steps", "30", "--log-every", "5")
    done = dttui("--apply", job, "--inventory", inventory, "--output", "json", env=env)
    assert done.returncode == 0, done.stderr
    result = result_of(done)
    assert result["state"] == "SUCCEEDED"
    return Trained(job, inventory, result)
