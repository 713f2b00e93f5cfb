"""Interpreters that have the frameworks, as `make frameworks` and `make horovod` make them."""

from __future__ import annotations

import os
import shutil
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


@pytest.fixture
def deepspeed_variables(tmp_path_factory: pytest.TempPathFactory, frameworks_python: Path) -> dict[str, str]:
    """Return the variables by which DeepSpeed finds operators of its own, compiled, and the ninja that makes them.

    A rank locks them while it looks at them: whoever is killed then leaves the lock, for which others wait for ever.
    """
    extensions = tmp_path_factory.mktemp("torch_extensions")
    compiled = frameworks_python.parents[1] / "torch_extensions"
    shutil.copytree(compiled, extensions, ignore=shutil.ignore_patterns("lock"), dirs_exist_ok=True)
    path = f"{frameworks_python.parent}:{os.environ['PATH']}"
    return {"PATH": path, "TORCH_EXTENSIONS_DIR": str(extensions)}


@pytest.fixture(scope="session")
def horovod_python() -> Path:
    """Return an interpreter with torch and horovod."""
    return interpreter(".venv-horovod", "horovod")


@pytest.fixture(scope="session")
def tensorflow_python() -> Path:
    """Return an interpreter with tensorflow."""
    return interpreter(".venv-tensorflow")
