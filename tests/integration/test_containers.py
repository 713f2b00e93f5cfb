"""Jobs in containers on the embedded cluster, by a stand-in of an engine with a daemon; tests/engines has real ones."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dttui.errors import ExitCode
from tests.fake_engine import Engine, engine
from tests.integration.containers import WAIT, kill_a_supervisor, log_of, start
from tests.integration.gangs import TestGang, have_older_agent
from tests.integration.headless import dttui_here, result_of, shell_job, write_job
from tests.outcomes import ended_with
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"
TRAIN = """\
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", int(total), "secret of", len(os.environ["TOKEN"]), flush=True)
dist.barrier()
dist.destroy_process_group()
os._exit(0)
"""


@pytest.fixture(scope="module")
def engines() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="dttui-") as directory, engine(Path(directory) / "bin") as found:
        yield found


@pytest.fixture
def docker(engines: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setenv("PATH", f"{engines.directory}:{os.environ['PATH']}")
    return engines


@pytest.mark.torch
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="static", marks=pytest.mark.thorough),
        pytest.param({"elastic": {"min_nodes": 2, "wait_s": 3}}, id="elastic"),
    ],
)
def test_ranks_of_torchrun_find_each_other_in_their_containers_and_secrets_stand_in_no_command(
    options: dict[str, Any], docker: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret-value")
    (tmp_path / "train.py").write_text(TRAIN)
    run = {
        "script": "train.py",
        "python": sys.executable,
        "secrets": ["TOKEN"],
        "container": {"engine": "docker", "image": "torch:2"},
    }
    path = write_job(tmp_path, {ONE: 1, TWO: 1}, framework="pytorch-ddp", framework_options=options, run=run)
    done = dttui_here("--demo", "--apply", path, "--output", "json")
    assert done.returncode == 0, done.stderr
    job = result_of(done)["job_id"]
    # An elastic job has its ranks in any order.
    printed = [log_of(job, node, f"{rank}.out") for rank in (0, 1) for node in (ONE, TWO)]
    assert sorted(filter(None, printed)) == ["sum 2 secret of 12\n"] * 2
    asked = [item for item in docker.runs() if job in item["name"]]
    assert not [item for item in asked if re.search(r"[0-9a-f]{64}", str(item))], "the key of a rendezvous"
    assert sorted(item["name"] for item in asked) == [f"dttui-{job}-0-{rank}-launcher" for rank in (0, 1)]
    assert all(item["env"]["TOKEN"] == "s3cret-value" for item in asked)
    assert not any("s3cret-value" in word for item in asked for word in item["client"])
    assert docker.running() == []


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({"engine": "docker", "image": "torch:3"}, "docker has no image torch:3"),
        ({"engine": "apptainer", "image": "/images/torch.sif"}, "there is no apptainer, which run.container names"),
    ],
)
def test_a_host_without_engine_or_image_is_named_before_anything_starts(
    docker: Engine, tmp_path: Path, container: dict[str, str], said: str
) -> None:
    done = dttui_here("--demo", "preflight", shell_job(tmp_path, {ONE: 1}, "true", container=container))
    assert done.returncode == 3
    assert f"{ONE}: {said}" in done.stdout + done.stderr


def test_what_runs_in_containers_ends_with_a_stop_and_with_a_supervisor_that_is_killed(
    docker: Engine, tmp_path: Path
) -> None:
    container = {"engine": "docker", "image": "hidden:1"}
    job = start(shell_job(tmp_path, {ONE: 1, TWO: 1}, WAIT, container=container))
    wait_until(lambda: len(docker.running()) == 2, "both to run")
    done = dttui_here("stop", job)
    assert done.returncode == 0, done.stderr
    assert docker.running() == []
    job = start(shell_job(tmp_path, {ONE: 1, TWO: 1}, WAIT, container=container))
    wait_until(lambda: len(docker.running()) == 2, "both to run")
    kill_a_supervisor(job)
    wait_until(lambda: docker.running() == [], "no container to be left", 60)


async def test_an_agent_that_would_leave_containers_behind_is_refused_before_anything_starts(
    docker: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_older_agent(monkeypatch, TWO, removes_containers=False)
    run = {"command": ["true"], "container": {"engine": "docker", "image": "torch:2"}}
    gang = TestGang(tmp_path / "job", {ONE: 1, TWO: 1}, run=run)
    caught = ended_with(await gang.gang.run(), ExitCode.PREFLIGHT, f"^{TWO}: its agent is too old for containers: ")
    assert caught.hint == f"Upgrade it: dttui agents deploy {TWO}"
