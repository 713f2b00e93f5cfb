"""A rendered `run.sh` of a job in a container: the engine is given what dttui would give it, from the host's shell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dttui.export.scripts import render_scripts
from dttui.export.writing import write
from dttui.spec.container import Container
from dttui.spec.models import Run
from tests.unit.export.test_render_scripts import ejected, finish, start

A = "pytorch-dev-env"


def words_of(tmp_path: Path, engine: str, **variables: str) -> list[str]:
    """Render a job of one node with two GPUs, start it, and return what the engine was called with."""
    run = Run(
        script="train.py", secrets=("HF_TOKEN",), container=Container.model_validate({"engine": engine, "image": "t:2"})
    )
    out = tmp_path / "out"
    write(out, render_scripts(ejected(tmp_path, A, run=run)))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / engine).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (programs / engine).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    code, said = finish(start(out, 0, **{"PATH": path, "HF_TOKEN": "s3cret", "INTERFACE": "lo", **variables}))
    assert code == 0, said
    assert "s3cret" not in said
    return said.splitlines()


@pytest.mark.parametrize(
    ("engine", "gpus"),
    [
        ("docker", ['--gpus="device=4,6"']),
        ("podman", ["--device=nvidia.com/gpu=4", "--device=nvidia.com/gpu=6"]),
        ("apptainer", ["--nv"]),
    ],
)
def test_the_engine_gets_the_gpus_that_the_shell_has(tmp_path: Path, engine: str, gpus: list[str]) -> None:
    words = words_of(tmp_path, engine, CUDA_VISIBLE_DEVICES="4,6")
    assert [item for item in words if item.startswith(("--gpus", "--device", "--nv"))] == gpus


@pytest.mark.parametrize(
    ("engine", "gpus"),
    [
        ("docker", ['--gpus="device=4,6"']),
        ("podman", ["--device=nvidia.com/gpu=4", "--device=nvidia.com/gpu=6"]),
    ],
)
def test_under_slurm_the_engine_gets_the_gpus_as_the_host_counts_them(
    tmp_path: Path, engine: str, gpus: list[str]
) -> None:
    words = words_of(tmp_path, engine, CUDA_VISIBLE_DEVICES="0,1", SLURM_STEP_GPUS="4,6")
    assert [item for item in words if item.startswith(("--gpus", "--device"))] == gpus
    assert "--env=CUDA_VISIBLE_DEVICES=0,1" in words


def test_it_sees_all_that_was_rendered_as_the_user_who_starts_it(tmp_path: Path) -> None:
    words = words_of(tmp_path, "docker", ATTEMPT="2")
    out = tmp_path / "out"
    assert f"--volume={out}:{out}" in words
    assert f"--workdir={out}/node0/work" in words
    assert f"--user={os.getuid()}:{os.getgid()}" in words
    assert "--name=dttui-gpt-small-2-0-launcher" in words
    assert "--env=HF_TOKEN" in words
    image = words.index("t:2")
    assert words[image + 1 : image + 4] == ["python3", "-m", "torch.distributed.run"]
    readme = (out / "README.md").read_text()
    assert "On the host there must be: `docker`, `t:2`." in readme
