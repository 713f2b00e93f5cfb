"""Interpreters that have the frameworks, as `make frameworks` and `make horovod` make them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def interpreter(environment: str, target: str = "frameworks") -> Path:
    """Return the python of a virtual environment that a target of make makes.

    Without it the test is skipped, or fails where DTTUI_REQUIRE_<TARGET>=1.
    """
    python = ROOT / environment / "bin" / "python"
    if not python.exists():
        reason = f"there is no {environment}: make {target}"
        pytest.fail(reason) if os.environ.get(f"DTTUI_REQUIRE_{target.upper()}") == "1" else pytest.skip(reason)
    return python


@pytest.fixture(scope="session")
def frameworks_python() -> Path:
    """Return an interpreter with torch, deepspeed, accelerate and megatron-core."""
    return interpreter(".venv-frameworks")


@pytest.fixture(scope="session")
def horovod_python() -> Path:
    """Return an interpreter with torch and horovod."""
    return interpreter(".venv-horovod", "horovod")


@pytest.fixture(scope="session")
def tensorflow_python() -> Path:
    """Return an interpreter with tensorflow."""
    return interpreter(".venv-tensorflow")
