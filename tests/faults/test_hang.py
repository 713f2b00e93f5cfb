"""Ranks that stand still on isolated hosts, each for a reason of its own: who stands where, and who is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import JobState

from dttui import jobs
from dttui.inventory import load_inventory
from dttui.jobs import JobDirectory
from dttui.launch.submit import make_local_plan, submit
from dttui.planning.submission import Submission
from dttui.spec import load_document
from tests.integration.headless import DEADLINE_S, dttui, dttui_here, result_of, write_job
from tests.lab.hosts import Lab
from tests.waiting import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300), pytest.mark.xdist_group("lab of recovery")]
SCRIPT = """\
import json, os, signal, threading, time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

dist.init_process_group("gloo")
rank, how = dist.get_rank(), os.environ["HOW"]
again = os.environ["DTTUI_ATTEMPT"] != "0"

def step(number):
    dist.all_reduce(torch.ones(8))
    with open(os.environ["DTTUI_METRICS"], "a") as stream:
        stream.write(json.dumps({"step": number, "rank": rank}) + "\\n")
    time.sleep(0.05)

def load_data():
    time.sleep(600)

def deadlock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def read_shard():
    time.sleep(600)

class Shards(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if rank == 1 and index > 3:
            read_shard()
        return torch.ones(1)

for number in range(20):
    step(number)
if again:
    raise SystemExit(0)
if rank == 1:
    if how == "skip":
        load_data()
    if how == "lock":
        deadlock()
    if how == "op":
        dist.broadcast(torch.ones(8), 0)
    if how == "size":
        dist.all_reduce(torch.ones(4))
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
if how == "loader":
    for batch in DataLoader(Shards(), batch_size=2, num_workers=1):
        step(20)
while True:
    step(21)
"""
WAITING = "2 of 3 ranks (0, 2) wait in all_reduce at train.py:10 (step)"
MISSING = (
    "rank 1 did not come to collective {number} of group default_pg, all_reduce [8] Float, in which ranks 0, 2 wait"
)
KINDS = {
    "skip": [MISSING.format(number=21), WAITING, "rank 1 on gpu2 is at train.py:16 (load_data)"],
    "lock": [MISSING.format(number=21), WAITING, "rank 1 on gpu2 is at train.py:21 (deadlock)"],
    "op": [
        "in collective 21 of group default_pg, rank 1 called broadcast [8] Float, and ranks 0, 2 called all_reduce [8]",
        WAITING,
        "rank 1 on gpu2 waits in broadcast at train.py:45",
    ],
    "loader": [
        WAITING,
        "rank 1 on gpu2 is in DataLoader at train.py:51",
        "1 child process is at train.py:24 (read_shard)",
    ],
    "stop": [WAITING, "rank 1 on gpu2 is stopped by a signal (SIGSTOP) or a debugger"],
}


@pytest.fixture
def lab(deployed: Lab) -> Iterator[Lab]:
    yield deployed
    for job in jobs.list_jobs():
        if not job.state.is_final:
            dttui("stop", job.job_id, "--force")


def launched(lab: Lab, home: Path, how: str, **fields: Any) -> JobDirectory:
    """Launch three ranks on three hosts, of which rank 1 stands still after some steps."""
    source = home / "source"
    source.mkdir()
    (source / "train.py").write_text(SCRIPT)
    run = {"script": "train.py", "workdir": "source", "env": {"HOW": how}}
    path = write_job(home, {"gpu1": 1, "gpu2": 1, "gpu3": 1}, framework="pytorch-ddp", run=run, **fields)
    submission = Submission(load_document(path).job, load_inventory(lab.inventory(home / "inventory.yaml")), home)
    plan = make_local_plan(submission)
    assert plan.errors == (), plan.errors
    return submit(submission, plan, expects_client=False)


def wait_for_steps(directory: JobDirectory, count: int = 20) -> None:
    """Wait until each rank has made the steps that they all make."""

    def have_made() -> bool:
        text = directory.metrics.read_text() if directory.metrics.exists() else ""
        reports = [json.loads(line) for line in text.splitlines()]
        assert not directory.is_over(), directory.read_events()[-1].message
        return text.count(f'"step": {count - 1}') >= 3 or len(reports) >= 3 * count

    wait_until(have_made, "the steps before it stands still", DEADLINE_S)


@pytest.mark.parametrize("how", KINDS)
def test_each_rank_is_told_where_it_stands_and_the_one_that_the_others_wait_for_is_named(
    how: str, lab: Lab, tmp_path: Path
) -> None:
    """Within 120 s of the launch, as of any moment."""
    directory = launched(lab, tmp_path, how)
    wait_for_steps(directory)
    told: list[str] = []

    def is_told() -> bool:
        told[:] = dttui_here("stacks", directory.job_id, "--short").stdout.splitlines()
        return all(any(line.startswith(words) for line in told) for words in KINDS[how])

    wait_until(is_told, f"{KINDS[how]}", 60)
    document = result_of(dttui_here("stacks", directory.job_id, "--rank", "1", "--output", "json"))
    (node,) = document["nodes"]
    assert (node["node"], [rank["rank"] for rank in node["ranks"]]) == ("gpu2", [1])
    assert jobs.summarize(directory).state is JobState.RUNNING
