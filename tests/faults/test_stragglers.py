"""A rank is slower than the others on isolated hosts: it is named while that lasts, or replaced, and no other is."""

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
from tests.integration.headless import dttui, dttui_here, write_job
from tests.lab.hosts import Lab
from tests.lab.shared import SHARED, shared_by
from tests.waiting import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300), pytest.mark.xdist_group("lab of watches")]
NODES = ("gpu1", "gpu2", "gpu3")
SCRIPT = (
    """\
import json, os, socket, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, how, attempt = dist.get_rank(), os.environ["HOW"], os.environ["DTTUI_ATTEMPT"]
begin, number, lasts_s = time.time(), 0, {"slow": 50, "equal": 24, "host": 100}[how]
resumed = os.environ.get("DTTUI_RESUME_FROM")
if resumed:
    lasts_s = 3
    state = torch.tensor(int(open(resumed + "/state").read()) if rank == 0 else 0)
    dist.broadcast(state, 0)
    number = int(state)

def save():
    where = os.path.join(os.environ["DTTUI_CHECKPOINT_DIR"], f"step-{number}")
    os.makedirs(where, exist_ok=True)
    open(where + "/state", "w").write(str(number))
    open(where + "/COMPLETE", "w").close()

while True:
    passed_s = time.time() - begin
    is_slow = how == "slow" and rank == 1 and 6 < passed_s < 30 or how == "host" and socket.gethostname() == "gpu2"
    time.sleep(0.25 if is_slow else 0.1)
    dist.all_reduce(torch.ones(8))
    dist.all_reduce(torch.ones(8))
    number += 1
    if rank == 0 and how == "host" and number % 20 == 0:
        save()
    with open(os.environ["DTTUI_METRICS"], "a") as stream:
        stream.write(json.dumps({"step": number, "rank": rank}) + "\\n")
    last = torch.tensor(float(time.time() - begin > lasts_s))
    dist.broadcast(last, 0)
    if last:
        break
"""
    + LEAVES
)


@pytest.fixture
def lab(deployed: Lab) -> Iterator[Lab]:
    yield deployed
    for job in jobs.list_jobs():
        if not job.state.is_final:
            dttui("stop", job.job_id, "--force")


def launched(lab: Lab, home: Path, how: str, nodes: tuple[str, ...] = NODES, **recovery: Any) -> JobDirectory:
    source = home / "source"
    source.mkdir()
    (source / "train.py").write_text(SCRIPT)
    run = {"script": "train.py", "workdir": "source", "env": {"HOW": how}}
    recovery = {"straggler_s": 8, **recovery}
    path = write_job(home, dict.fromkeys(nodes, 1), framework="pytorch-ddp", run=run, recovery=recovery)
    submission = Submission(load_document(path).job, load_inventory(lab.inventory(home / "inventory.yaml")), home)
    plan = make_local_plan(submission)
    assert plan.errors == (), plan.errors
    return submit(submission, plan, expects_client=False)


def stragglers(directory: JobDirectory) -> list[Event]:
    return directory.read_events(EventKind.STRAGGLER)


def test_a_slow_rank_is_named_with_what_it_costs_and_taken_back_once_it_is_as_fast_as_others(
    lab: Lab, tmp_path: Path
) -> None:
    """Slow for 24 s by 0.15 s in 0.25: told within 60 s, taken back, and within 120 s the job has ended well."""
    directory = launched(lab, tmp_path, "slow")
    wait_until(lambda: stragglers(directory), "it to be told", 60)
    told = stragglers(directory)[0]
    assert (told.node, told.rank) == ("gpu2", 1)
    assert told.message.startswith("the others wait for rank 1 on gpu2 "), told.message
    # On a busy machine the rest of a step takes longer, too.
    assert 0.3 < told.data["share"] < 0.75
    assert 0.1 < told.data["late_s"] < 0.3
    assert told.message in dttui_here("status", directory.job_id).stdout
    assert told.message in dttui_here("diagnose", directory.job_id).stdout
    wait_until(directory.is_over, "its end", 120)
    assert jobs.summarize(directory).state is JobState.SUCCEEDED, directory.read_events()[-1].message
    assert [event.data["severity"] for event in stragglers(directory)] == ["warning", "info"]


def test_equal_ranks_are_never_named(lab: Lab, tmp_path: Path) -> None:
    """For 24 s, within 120 s of the launch."""
    directory = launched(lab, tmp_path, "equal")
    wait_until(directory.is_over, "its end", 120)
    assert jobs.summarize(directory).state is JobState.SUCCEEDED, directory.read_events()[-1].message
    assert stragglers(directory) == []


def test_a_spare_takes_the_place_of_a_slow_host_at_the_next_checkpoint(lab: Lab, tmp_path: Path) -> None:
    """With `on_straggler: replace` and checkpoints every 5 s: within 200 s of the launch the job has ended well."""
    check_that_a_spare_comes(lab, tmp_path, {"dir": f"/var/tmp/{tmp_path.parent.name}", "copies": 1})


@pytest.mark.thorough
def test_a_spare_takes_the_place_of_a_slow_host_where_all_see_one_directory(lab: Lab, tmp_path: Path) -> None:
    """As with own disks, within 200 s."""
    with shared_by([*lab.values()]):
        check_that_a_spare_comes(lab, tmp_path, {"dir": SHARED, "shared": True})


def check_that_a_spare_comes(lab: Lab, tmp_path: Path, checkpoint: dict[str, Any]) -> None:
    """Check that a host is replaced that slows the others, once a checkpoint is written."""
    recovery = {"on_node_failure": "replace", "spares": ["gpu3"], "max_restarts": 1, "checkpoint": checkpoint}
    directory = launched(lab, tmp_path, "host", ("gpu1", "gpu2"), on_straggler="replace", **recovery)
    wait_until(directory.is_over, "its end", 200)
    summary = jobs.summarize(directory)
    assert (summary.state, summary.attempts) == (JobState.SUCCEEDED, 2), directory.read_events()[-1].message
    assert [(event.node, event.rank) for event in stragglers(directory)] == [("gpu2", 1)]
    (restarting,) = (
        event for event in directory.read_events(EventKind.JOB_STATE) if event.data["state"] == "RESTARTING"
    )
    assert restarting.data["cause"] == "straggler"
    plan = directory.read_bound_plan(1)
    assert [node.name for node in plan.plan.nodes] == ["gpu1", "gpu3"]
    assert plan.bindings.resume is not None
