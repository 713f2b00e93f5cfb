"""Containers of a real docker as hosts, reached by `docker exec`: deploy, launch, logs, stop; and one restarted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dttui import jobs
from tests.engines.image import NAME
from tests.engines.requirement import refused
from tests.integration.headless import dttui, example_job, result_of, shell_job, wait_for_state
from tests.waiting import wait_until

NAMES = ("dttui-host-1", "dttui-host-2")
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def engine(shared: Path, docker: Path) -> str:
    """The client of a daemon that has the image."""
    program = str(shared / "bin/docker")
    loaded = call(program, "import", str(shared / "image.tar"), NAME)
    if loaded.returncode:
        refused(f"docker import fails here: {loaded.stderr[-300:]}")
    return program


@pytest.fixture(scope="module")
def containers(engine: str) -> Iterator[str]:
    """Two containers that share the network of this machine, with its programs and nothing of its files to write to."""
    seen = ["/usr", "/lib", "/lib64", sys.prefix, sys.base_prefix]
    places = dict.fromkeys(path for path in seen if os.path.exists(path) and not path.startswith("/usr/"))
    mounts = [f"--volume={os.path.realpath(path)}:{path}:ro" for path in places]
    for name in NAMES:
        argv = [
            "run",
            "--detach",
            "--pull=never",
            "--network=host",
            f"--name={name}",
            *mounts,
            NAME,
            "sleep",
            "1000000",
        ]
        started = call(engine, *argv)
        if started.returncode:
            refused(f"docker run fails here: {started.stderr[-300:]}")
    yield engine
    call(engine, "rm", "--force", *NAMES)
    call(engine, "rmi", "--force", NAME)


@pytest.fixture
def inventory(containers: str, tmp_path: Path) -> Path:
    environments = [
        {
            "name": name,
            "exec": [containers, "exec", "-i", name],
            "address": "127.0.0.1",
            "python": sys.executable,
            "resources": {"gpu": {"count": 1, "simulated": True}},
        }
        for name in NAMES
    ]
    path = tmp_path / "inventory.yaml"
    path.write_text(yaml.safe_dump({"environments": environments}))
    deployed = dttui("agents", "deploy", "--inventory", path, "--output", "jsonl")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    return path


def call(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def listed(engine: str, name: str) -> str:
    return call(engine, "top", name, "-eo", "pid,args").stdout


def test_a_job_is_deployed_launched_followed_and_stopped_by_docker_exec_alone(
    containers: str, inventory: Path, tmp_path: Path
) -> None:
    told = dttui("envs", "--inventory", inventory, "--output", "jsonl")
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert [(row["name"], row["state"], row["reach"]) for row in rows] == [(name, "idle", "exec") for name in NAMES]
    job = example_job(tmp_path, dict.fromkeys(NAMES, 1), "--steps", "20", "--log-every", "5")
    done = dttui("--apply", job, "--inventory", inventory, "--output", "json")
    assert done.returncode == 0, done.stderr
    assert "world size 2" in dttui("logs", result_of(done)["job_id"], "--rank", "0").stdout

    job = shell_job(tmp_path, dict.fromkeys(NAMES, 1), "echo here; exec sleep 4711")
    started = dttui("--apply", job, "--inventory", inventory, "--detach")
    assert started.returncode == 0, started.stderr
    running = started.stdout.strip()
    wait_for_state(running, "RUNNING")
    assert "sleep 4711" in listed(containers, NAMES[0])
    wait_until(lambda: dttui("logs", running).stdout.count("here") == 2, "what both ranks print", DEADLINE_S)
    stopped = dttui("stop", running)
    assert stopped.returncode == 0, stopped.stderr
    wait_for_state(running, "CANCELLED")
    for name in NAMES:
        assert "sleep 4711" not in listed(containers, name)


def test_a_restarted_container_fails_its_job_and_takes_another(
    containers: str, inventory: Path, tmp_path: Path
) -> None:
    """The other is ended too; the agent is there, as the files of a container outlive a restart."""
    job = shell_job(tmp_path, dict.fromkeys(NAMES, 1), "exec sleep 4712")
    started = dttui("--apply", job, "--inventory", inventory, "--detach")
    assert started.returncode == 0, started.stderr
    directory = jobs.find(started.stdout.strip())
    wait_for_state(directory.job_id, "RUNNING")
    assert call(containers, "restart", "--time=0", NAMES[1]).returncode == 0
    wait_for_state(directory.job_id, "FAILED")
    told = [event.message for event in directory.read_events() if event.node == NAMES[1]]
    assert told[-1].endswith("the supervisor on this host died"), told
    assert "sleep 4712" not in listed(containers, NAMES[0])
    again = dttui("--apply", shell_job(tmp_path, {NAMES[1]: 1}, "echo again"), "--inventory", inventory)
    assert again.returncode == 0, again.stdout + again.stderr


def test_a_container_that_is_not_there_or_not_running_is_told_in_dockers_words(
    containers: str, inventory: Path, tmp_path: Path
) -> None:
    document = yaml.safe_load(inventory.read_text())
    document["environments"][0]["exec"][-1] = "dttui-nowhere"
    document["environments"][1]["exec"].remove("-i")
    inventory.write_text(yaml.safe_dump(document))
    told = dttui("envs", "--inventory", inventory, "--output", "jsonl")
    first, second = (json.loads(line) for line in told.stdout.splitlines())
    assert "No such container: dttui-nowhere" in first["reason"]
    assert "as if nothing had been written to it" in second["reason"]
    assert "docker, podman and kubectl do with -i" in second["hint"]
    document["environments"][1]["exec"].insert(2, "-it")
    inventory.write_text(yaml.safe_dump(document))
    told = dttui("envs", "list", NAMES[1], "--inventory", inventory, "--output", "jsonl")
    assert "TTY" in json.loads(told.stdout)["reason"]
