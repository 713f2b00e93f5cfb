"""NVIDIA GPUs for tests on machines without any: a stub libnvidia-ml.so.1 under the real pynvml of a child process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dtagent
import pytest

CONTROL = "DTTUI_NVML_STUB"
"""Names the file that says what the stub answers; stub_nvml.c describes its keys."""

_ROOT = Path(__file__).parents[3]

Settings = Mapping[str, object]


def compile_stub(directory: Path) -> Path:
    """Compile the stub into `directory` and return the library; skips the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc) for the stub libnvidia-ml.so.1")
    library = directory / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("stub_nvml.c")
    subprocess.run(
        [
            compiler,
            "-O1",
            "-shared",
            "-fPIC",
            "-pthread",
            "-Wl,-soname,libnvidia-ml.so.1",
            "-o",
            str(library),
            str(source),
        ],
        check=True,
        timeout=60,
    )
    return library


def change(environment: Mapping[str, str], settings: Settings) -> None:
    """Change what the stub of that environment answers from now on; `None` takes a setting back."""
    path = Path(environment[CONTROL])
    lines = path.read_text(errors="surrogateescape").split("\n")[:-1] if path.exists() else []
    current = {**dict(line.split("=", 1) for line in lines), **settings}
    temporary = path.with_suffix(".new")
    text = "".join(f"{key}={value}\n" for key, value in current.items() if value is not None)
    temporary.write_text(text, errors="surrogateescape")
    temporary.replace(path)


def child_environment(library_directory: Path, control: Path) -> dict[str, str]:
    """Return the environment of a child process that finds the stub."""
    paths = [str(_ROOT), str(Path(dtagent.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(library_directory),
        CONTROL: str(control),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


def run_child(environment: Mapping[str, str], scene: str, *arguments: str) -> Any:
    """Play a scene of `child.py` in a process with that environment, and return what it printed as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent.nvml_stub.child", scene, *arguments],
        env=dict(environment),
        cwd=_ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled stub."""
    return compile_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml_stub(nvml_library: Path, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Make the environment of a child process that has GPUs: `nvml_stub(gpus=8, settings={"utilization": 97})`."""

    def make(gpus: int = 1, settings: Settings | None = None) -> dict[str, str]:
        environment = child_environment(nvml_library.parent, tmp_path / "nvml.conf")
        change(environment, {"gpus": gpus, **(settings or {})})
        return environment

    return make
