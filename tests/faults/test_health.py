"""A command of the job's own that begins to fail on one of three isolated hosts: told with host and words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import Event, EventKind, JobState

from dttui import jobs
from dttui.inventory import load_inventory
from dttui.jobs import JobDirectory
from dttui.launch.local_plan import make_local_plan
from dttui.launch.submit import submit
from dttui.planning.submission import Submission
from dttui.spec import load_document
from tests.gloo import LEAVES
from tests.integration.headless import dttui, dttui_here, result_of, write_job
from tests.lab.hosts import Lab
from tests.waiting import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300), pytest.mark.xdist_group("lab of watches")]
SCRIPT = (
    """\
import itertools, json, os, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, metrics = dist.get_rank(), os.environ["DTTUI_METRICS"]
ill = metrics + ".ill"

numbers = itertools.count()

def step(is_last=False):
    told = torch.full((8,), float(is_last))
    dist.all_reduce(told)
    with open(metrics, "a") as stream:
        stream.write(json.dumps({"step": next(numbers), "rank": rank}) + "\\n")
    time.sleep(0.05)
    return bool(told[0])

def steps_until(word):
    while not step(rank == 1 and os.path.exists("/tmp/" + word)):
        pass

for _ in range(20):
    step()
if os.environ["DTTUI_ATTEMPT"] != "0":
    os._exit(0)
if rank == 1:
    open(ill, "w").close()
steps_until("well")
if rank == 1:
    os.remove(ill)
steps_until("over")
"""
    + LEAVES
)
CHECK = (
    'if [ -e "$DTTUI_METRICS.ill" ]; then sleep 1000 & echo "no batch on node $DTTUI_NODE_RANK for $TOKEN"; exit 3; fi'
)
SAID = "no batch on node 1 for •••"


@pytest.fixture
def lab(deployed: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("TOKEN", "wherewithal-7312")
    deployed["gpu2"].run(["rm", "-f", "/tmp/well", "/tmp/over"])
    yield deployed
    for job in jobs.list_jobs():
        if not job.state.is_final:
            dttui("stop", job.job_id, "--force")


def launched(lab: Lab, home: Path, action: str) -> JobDirectory:
    """Launch three ranks on three hosts, of which gpu2 is unhealthy in the first attempt until a file is there."""
    source = home / "source"
    source.mkdir()
    (source / "train.py").write_text(SCRIPT)
    health = {"command": ["sh", "-c", CHECK], "every": "1s", "failures": 2, "start_period": "0s", "action": action}
    fields: dict[str, Any] = {"monitoring": {"health": health}, "recovery": {"max_restarts": 2}}
    run = {"script": "train.py", "workdir": "source", "secrets": ["TOKEN"]}
    path = write_job(home, {"gpu1": 1, "gpu2": 1, "gpu3": 1}, framework="pytorch-ddp", run=run, **fields)
    submission = Submission(load_document(path).job, load_inventory(lab.inventory(home / "inventory.yaml")), home)
    plan = make_local_plan(submission)
    assert plan.errors == (), plan.errors
    return submit(submission, plan, expects_client=False)


def told(directory: JobDirectory) -> list[Event]:
    return directory.read_events(EventKind.HEALTH)


def test_an_unhealthy_host_is_named_and_its_job_starts_again_and_ends_well(lab: Lab, tmp_path: Path) -> None:
    """With `action: restart`: within 120 s the job has ended well in its second attempt; nothing is left."""
    directory = launched(lab, tmp_path, "restart")
    wait_until(directory.is_over, "it to start again and end", 120)
    summary = jobs.summarize(directory)
    assert (summary.state, summary.attempts) == (JobState.SUCCEEDED, 2), directory.read_events()[-1].message
    (event,) = told(directory)
    assert (event.node, event.data["exit_code"], event.data["line"]) == ("gpu2", 3, SAID)
    assert event.message.startswith("gpu2 is unhealthy: ")
    assert event.message.endswith(f" exited with 3: {SAID}")
    (restarting,) = (
        event for event in directory.read_events(EventKind.JOB_STATE) if event.data["state"] == "RESTARTING"
    )
    assert restarting.data["cause"] == "unhealthy"
    (stopping, *_rest) = (
        event for event in directory.read_events(EventKind.JOB_STATE) if event.data["state"] == "STOPPING"
    )
    assert stopping.data["blamed"] == "gpu2"
    assert restarting.message.startswith("gpu2 is unhealthy: ")
    assert not any("wherewithal" in path.read_text() for path in directory.path.glob("*.jsonl"))


def test_an_unhealthy_host_is_told_and_taken_back_once_it_is_healthy_again(lab: Lab, tmp_path: Path) -> None:
    """With the default `action`: told everywhere while it lasts; within 120 s the job has ended well."""
    directory = launched(lab, tmp_path, "report")
    wait_until(lambda: told(directory), "the host to be told", 60)
    document = result_of(dttui_here("status", directory.job_id, "--output", "json"))
    assert [node["unhealthy"] is not None for node in document["nodes"]] == [False, True, False]
    assert document["nodes"][1]["unhealthy"]["what"].endswith(SAID)
    assert "unhealthy for" in dttui_here("status", directory.job_id).stdout
    assert "gpu2 is unhealthy" in jobs.summarize(directory).reason
    diagnosis = dttui_here("diagnose", directory.job_id).stdout
    assert "gpu2 is unhealthy" in diagnosis
    assert "Run it there by hand" in diagnosis
    lab["gpu2"].run(["touch", "/tmp/well"])
    wait_until(lambda: len(told(directory)) > 1, "it to be taken back", 60)
    lab["gpu2"].run(["touch", "/tmp/over"])
    wait_until(directory.is_over, "its end", 90)
    summary = jobs.summarize(directory)
    assert (summary.state, summary.attempts) == (JobState.SUCCEEDED, 1), directory.read_events()[-1].message
    assert [event.data["severity"] for event in told(directory)] == ["warning", "info"]
    assert told(directory)[1].message.startswith("gpu2 is healthy again, after ")
