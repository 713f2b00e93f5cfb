"""What the agent needs on a host: its own code, the standard library, and nothing beyond what it is shipped with."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dtagent
import pytest

from dttui.fleet.deployment.wheels import pinned

PACKAGE = Path(dtagent.__file__).parent
SHIPPED = {"dacite": "dacite", "nvidia-ml-py": "pynvml", "psutil": "psutil"}
"""Project → the module it brings, of those that are pinned."""
OLDEST = (3, 10)
FRAMEWORKS = {"torch", "accelerate", "deepspeed", "horovod", "megatron", "tensorflow"}
"""What only the script imports that has them read a job's settings."""

_IMPORT_ALL = """
import json, pkgutil, runpy, sys
sys.path.insert(0, sys.argv.pop(1))
import dtagent
modules = [item.name for item in pkgutil.walk_packages(dtagent.__path__, "dtagent.")]
modules = [name for name in modules if not name.startswith(("dtagent.payload.", "dtagent.__main__"))]
for name in modules:
    __import__(name)
sys.argv[0] = "dtagent"
runpy.run_module("dtagent", run_name="__main__", alter_sys=True)
"""

OF_THE_JOB = ("collectives", "sealed_rendezvous")
"""Packages of the payload, which run in the job's interpreter."""


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and top-level name of everything a file imports, by whatever statement."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if path.parent.name in OF_THE_JOB and node.level == 1:
                continue  # It goes by another name where it is imported.
            assert node.level == 0, f"{path}: a relative import"
            yield node.lineno, str(node.module).partition(".")[0]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "import_module"
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value).partition(".")[0]


def of_the_job(path: Path) -> set[str]:
    """Return what a script of the payload may import that the job's interpreter has."""
    return {"validation.py": FRAMEWORKS, "mpi_group.py": {"torch", "mpi4py"}}.get(path.name, {"torch"})


def test_the_modules_that_may_be_imported_are_those_that_are_shipped() -> None:
    assert set(SHIPPED) == {item.project for item in pinned()} - {"pip"}


def test_the_agent_imports_nothing_else() -> None:
    allowed = {*sys.stdlib_module_names, "dtagent", *SHIPPED.values()}
    found = [
        f"{path.relative_to(PACKAGE)}:{line} imports {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, name in imports_of(path)
        if name not in allowed | (of_the_job(path) if path.parent.name in ("payload", *OF_THE_JOB) else set())
    ]
    assert found == []


def test_the_payload_imports_nothing_of_the_agent() -> None:
    for path in (PACKAGE / "payload").rglob("*.py"):
        others = {line for line, name in imports_of(path) if name not in sys.stdlib_module_names | of_the_job(path)}
        lines = path.read_text().splitlines()
        assert all(lines[line - 1].startswith("from dtagent.payload.forking.") for line in others), path


def pythons() -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*Path("/usr/bin").glob("python3.[0-9]*"), *root.glob("3.*/bin/python")]
    return sorted({str(path) for path in found if "-" not in path.name} | {sys.executable})


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what a deployment installs and no more."""
    directory = tmp_path_factory.mktemp("shipped")
    (directory / "dtagent").symlink_to(PACKAGE)
    for name in SHIPPED.values():
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        target = origin.parent if origin.name == "__init__.py" else origin
        (directory / target.name).symlink_to(target)
    return directory


@pytest.mark.parametrize("python", pythons())
def test_all_of_it_imports_and_runs_on_every_python_that_is_here(python: str, shipped: Path) -> None:
    told = subprocess.run([python, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=False)
    if told.returncode or ast.literal_eval(told.stdout.decode()) < OLDEST:
        pytest.skip("older than the agent supports, or broken")
    done = subprocess.run(
        [python, "-I", "-S", "-B", "-W", "error", "-c", _IMPORT_ALL, str(shipped), "facts", "--json"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["hostname"]
