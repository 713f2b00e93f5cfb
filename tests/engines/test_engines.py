"""Jobs in containers of each real engine on the embedded cluster, by root and by an ordinary user."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from dtagent.protocol.events import EventKind

from dttui import jobs
from tests.agent.conversation import processes_with
from tests.engines.conftest import Engine
from tests.integration.containers import WAIT, kill_a_supervisor, log_of, start
from tests.integration.headless import dttui, example_job, result_of, shell_job, wait_for_state, write_job
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"
PYTHON = sys.executable
SAVES_AND_WAITS = (
    'i=0; [ -z "$DTTUI_RESUME_FROM" ] || read i <"$DTTUI_RESUME_FROM/step"; echo "runs $RANK from $i"; i=$((i+1)); '
    'at="$DTTUI_CHECKPOINT_DIR/step-$i"; mkdir -p "$at"; echo $i >"$at/step"; : >"$at/COMPLETE"; '
    "until [ $i = 2 ]; do sleep 0.1; done"
)


def container(engine: Engine, **fields: Any) -> dict[str, Any]:
    return {"engine": engine.name, "image": engine.image, "options": list(engine.options), **fields}


def test_ranks_run_as_whoever_asked_in_the_directory_that_was_sent_and_with_its_variables(
    engine: Engine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret-value")
    told = 'echo "rank $RANK of $WORLD_SIZE in $PWD"; id -u; cat file; echo made >made'
    told += '; echo "$HOME|$TMPDIR|${#TOKEN}|$NAME"'
    (place / "file").write_text("sent\n")
    run = {
        "command": ["sh", "-c", told],
        "workdir": ".",
        "env": {"HOME": "/somewhere", "TMPDIR": "/tmp/a=1,b", "NAME": "a=1,b"},
        "secrets": ["TOKEN"],
        "container": container(engine),
    }
    job = write_job(place, {ONE: 1, TWO: 1}, framework="command", run=run)
    done = dttui("--demo", "--apply", job, "--output", "json")
    assert done.returncode == 0, done.stderr
    ended = result_of(done)["job_id"]
    # In a rootless podman, the user is root inside, and nobody else outside.
    inside = 0 if engine.name == "podman" else engine.person.user_id
    for rank, node in enumerate((ONE, TWO)):
        first, *rest = log_of(ended, node, f"{rank}.out").splitlines()
        assert first.startswith(f"rank {rank} of 2 in {os.environ['DTTUI_DEMO_ROOT']}")
        assert rest == [str(inside), "sent", "/somewhere|/tmp/a=1,b|12|a=1,b"]
        made = Path(first.partition(" in ")[2]) / "made"
        assert (made.read_text(), made.stat().st_uid) == ("made\n", engine.person.user_id)
    assert engine.containers() == []


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_none_is_left_after_a_stop_or_once_the_supervisor_is_killed(engine: Engine, place: Path, end: str) -> None:
    job = start(shell_job(place, {ONE: 1}, WAIT, container=container(engine)))
    wait_until(partial(_says, job, "runs 0"), "the container to run", 60)
    if engine.name != "apptainer":
        assert engine.containers() == [f"dttui-{job}-0-0-0"]
    kill_a_supervisor(job) if end == "kill" else dttui("stop", job)
    wait_until(lambda: engine.containers() == [], "no container to be left", 60)
    wait_until(lambda: not processes_with(f"DTTUI_JOB_ID={job}"), "no process to be left", 60)
    wait_for_state(job, "FAILED" if end == "kill" else "CANCELLED")
    assert "may still be there" not in jobs.find(job).events.read_text()


def test_a_job_is_started_again_in_a_container_of_its_own_and_goes_on_from_what_it_has_saved(
    engine: Engine, place: Path
) -> None:
    path = shell_job(place, {ONE: 1}, SAVES_AND_WAITS, container=container(engine))
    document = yaml.safe_load(path.read_text())
    document["distributed_training"]["recovery"] = {"on_node_failure": "restart", "max_restarts": 1}
    path.write_text(yaml.safe_dump(document))
    job = start(path)
    own = Path(os.environ["DTTUI_DEMO_ROOT"])
    wait_until(lambda: [*own.glob(f"**/{job}/0/checkpoints/*/COMPLETE")], "a checkpoint", 60)
    kill_a_supervisor(job)
    wait_for_state(job, "SUCCEEDED")
    said = [(jobs.find(job).logs(attempt, ONE) / "0.out").read_text() for attempt in (0, 1)]
    assert said == ["runs 0 from 0\n", "runs 0 from 1\n"]
    assert engine.containers() == []
    assert not processes_with(f"DTTUI_JOB_ID={job}")


def test_what_says_whether_a_job_goes_well_runs_in_the_container_of_its_ranks_and_nothing_of_it_stays(
    engine: Engine, place: Path
) -> None:
    path = shell_job(place, {ONE: 1}, WAIT, container=container(engine))
    document = yaml.safe_load(path.read_text())
    # Of programs the image has next to none.
    check = 'sleep 1000 & [ -e /bin/ls ] && where=host || where=image; echo "$where $DTTUI_JOB_ID"; exit 3'
    health = {"command": ["sh", "-c", check], "every": "1s", "failures": 1, "start_period": "0s"}
    document["distributed_training"]["monitoring"] = {"health": health}
    path.write_text(yaml.safe_dump(document))
    job = start(path)
    (told,) = wait_until(lambda: jobs.find(job).read_events(EventKind.HEALTH), "it to be told", 60)
    assert (told.data["exit_code"], told.data["line"]) == (3, f"image {job}"), told.message
    if engine.name != "apptainer":
        assert engine.containers() == [f"dttui-{job}-0-0-0"]
    marks = ("DTTUI_HEALTH_CHECK=1", f"DTTUI_JOB_ID={job}")
    wait_until(lambda: not set.intersection(*(set(processes_with(mark)) for mark in marks)), "no run for a moment", 60)
    dttui("stop", job)
    wait_until(lambda: not processes_with(f"DTTUI_JOB_ID={job}"), "no process to be left", 60)
    wait_until(lambda: engine.containers() == [], "no container to be left", 60)


def _says(job: str, words: str) -> bool:
    return words in log_of(job, ONE, "0.out")


def test_a_host_without_the_image_is_named_before_anything_starts(engine: Engine, place: Path) -> None:
    image = "/nowhere.sif" if engine.name == "apptainer" else "localhost/dttui-test:2"
    done = dttui("--demo", "preflight", shell_job(place, {ONE: 1}, "true", container=container(engine, image=image)))
    assert done.returncode == 3
    assert f"{ONE}: {engine.name} has no image {image}" in done.stdout + done.stderr


def _mounts_of_python() -> list[str]:
    """Return what gives an image that has no Python that of this host."""
    seen = ["/usr", "/lib", "/lib64", sys.prefix]
    seen += [sys.base_prefix] if not sys.base_prefix.startswith("/usr") else []
    return [f"{os.path.realpath(path)}:{path}:ro" for path in seen if os.path.exists(path)]


def test_what_a_script_imports_is_looked_for_in_the_container(engine: Engine, place: Path) -> None:
    (place / "train.py").write_text("import torch, module_of_nobody\n")
    own = container(engine, mounts=_mounts_of_python())
    run = {"script": "train.py", "workdir": ".", "python": PYTHON, "container": own}
    done = dttui("--demo", "preflight", write_job(place, {ONE: 1}, framework="pytorch-ddp", run=run))
    told = done.stdout + done.stderr
    assert done.returncode == 3, told
    assert f"{PYTHON} has no module_of_nobody, which the script imports, first at train.py:1" in told
    assert f"Put them into the image: {PYTHON} -m pip install module-of-nobody" in told
    assert engine.containers() == []


@pytest.mark.torch
def test_the_example_trains_on_two_nodes_and_its_ranks_are_seen_from_outside(engine: Engine, place: Path) -> None:
    job = example_job(place, {ONE: 1, TWO: 1}, "--steps", "30", "--log-every", "5")
    document = yaml.safe_load(job.read_text())
    own = container(engine, mounts=_mounts_of_python())
    document["distributed_training"]["run"] |= {"container": own, "python": PYTHON}
    job.write_text(yaml.safe_dump(document))
    done = dttui("--demo", "--apply", job, "--output", "json")
    assert done.returncode == 0, done.stderr
    directory = jobs.find(result_of(done)["job_id"])
    said = (directory.logs(0, ONE) / "0.out").read_text()
    losses = [float(loss) for loss in re.findall(r"^step \d+/30  loss ([\d.]+)", said, re.MULTILINE)]
    assert losses[-1] < losses[0] - 1
    told = [json.loads(line) for line in directory.samples(ONE).read_text().splitlines()]
    assert any(rank["memory_used_mib"] > 50 for sample in told for rank in _ranks(sample))
    assert engine.containers() == []


def _ranks(sample: dict[str, Any]) -> list[dict[str, Any]]:
    return [rank for ranks in sample.get("ranks", {}).values() for rank in ranks]
