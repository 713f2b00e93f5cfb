"""Rendered directories started by hand on this machine, without dttui: each framework trains to its end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.frameworks.launching import DEADLINE_S, EXAMPLES, example
from tests.integration.headless import dttui
from tests.ports import free_ports
from tests.waiting import wait_until


def ejected(directory: Path, name: str, job: dict[str, Any], python: Path) -> Path:
    """Render an example for an interpreter that knows nothing of dttui; return where it is."""
    shutil.copytree(EXAMPLES / name, directory / "work", ignore=shutil.ignore_patterns("__pycache__"))
    job["run"] = {**job["run"], "workdir": "work", "python": str(python)}
    path, out = directory / "job.yaml", directory / "out"
    path.write_text(yaml.safe_dump({"distributed_training": job}, sort_keys=False))
    done = dttui("--demo", "render", path, "-o", out)
    assert done.returncode == 0, done.stderr
    found = subprocess.run([python, "-c", "import dttui"], cwd="/", env=_shell(), capture_output=True, check=False)
    assert b"ModuleNotFoundError" in found.stderr
    return out


def train(out: Path, serving: Sequence[int] = (), **env: str) -> dict[int, float]:
    """Start run.sh of all nodes, end those that only serve as the README says; return the losses of rank 0 by step."""
    ranks = sorted(int(path.name.removeprefix("node")) for path in out.glob("node*"))
    ports = free_ports(len(ranks))
    variables = {"MASTER_PORT": str(ports[0]), **{f"NODE{rank}_PORT": str(ports[rank]) for rank in ranks}}
    with contextlib.ExitStack() as stack:
        running = {}
        for rank in ranks:
            output = stack.enter_context((out / f"said-{rank}").open("wb"))
            running[rank] = subprocess.Popen(
                ["bash", out / f"node{rank}" / "run.sh"],
                cwd="/",
                env={**_shell(), **variables, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_end, running[rank])
        awaited = [process for rank, process in running.items() if rank not in serving]
        wait_until(
            lambda: (
                all(process.poll() is not None for process in awaited)
                or any(process.poll() for process in running.values())
            ),
            "the nodes to end",
            DEADLINE_S,
        )
        said = "".join((out / f"said-{rank}").read_text() for rank in ranks)
        codes = {rank: process.poll() for rank, process in running.items()}
        assert codes == {rank: None if rank in serving else 0 for rank in ranks}, said
        for rank in serving:
            running[rank].terminate()
            running[rank].wait(20)
    lines = [json.loads(line) for line in (out / "node0" / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line.get("rank", 0) == 0 and "loss" in line}


def _shell() -> dict[str, str]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": os.environ["HOME"]}


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.thorough
def test_deepspeed_trains_by_hand_on_unequal_nodes(
    tmp_path: Path, frameworks_python: Path, deepspeed_variables: dict[str, str]
) -> None:
    job = example("deepspeed")
    job["run"]["args"] = ["--steps", "12", "--checkpoint-every", "12"]
    out = ejected(tmp_path, "deepspeed", job, frameworks_python)
    path = f"{frameworks_python.parent}:{_shell()['PATH']}"
    losses = train(out, PATH=path, TORCH_EXTENSIONS_DIR=deepspeed_variables["TORCH_EXTENSIONS_DIR"])
    assert list(losses) == list(range(1, 13))
    assert losses[12] < losses[1] - 1
    assert (out / "node2" / "checkpoints" / "step-00000012" / "COMPLETE").exists()


@pytest.mark.thorough
def test_tensorflows_chief_ends_by_hand_and_those_that_serve_it_when_they_are_told_to(
    tmp_path: Path, tensorflow_python: Path
) -> None:
    job = example("tensorflow")
    job["cluster"]["nodes"][2]["role"] = "parameter_server"
    job["run"]["args"] = ["--steps", "12", "--checkpoint-every", "12"]
    out = ejected(tmp_path, "tensorflow", job, tensorflow_python)
    assert "`node1`, `node2`, never end by themselves" in (out / "README.md").read_text()
    losses = train(out, serving=(1, 2), TF_CPP_MIN_LOG_LEVEL="1")
    assert list(losses) == list(range(1, 13))
    assert losses[12] < losses[1] - 0.5


def test_horovod_trains_by_hand_with_its_rendezvous_beside_the_ranks(tmp_path: Path, horovod_python: Path) -> None:
    job = example("horovod")
    job["run"]["args"] = ["--steps", "12", "--checkpoint-every", "12"]
    out = ejected(tmp_path, "horovod", job, horovod_python)
    losses = train(out)
    assert list(losses) == list(range(1, 13))
    assert losses[12] < losses[1] - 1
