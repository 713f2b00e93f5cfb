"""A link between isolated hosts is slower than the others while ranks train: it is named, and no rank is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import Event, EventKind, JobState

from dttui import jobs
from dttui.jobs import JobDirectory
from tests.faults.recovering import on_hosts, submitted
from tests.gloo import LEAVES
from tests.integration.headless import dttui, dttui_here, write_job
from tests.lab.hosts import Lab
from tests.lab.shared import SHARED, shared_by
from tests.waiting import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300), pytest.mark.xdist_group("lab of watches")]
NODES = ("gpu1", "gpu2", "gpu3")
SCRIPT = (
    """\
import json, os, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
number, saves = 0, os.environ["SAVES"]

def save():
    where = os.path.join(os.environ["DTTUI_CHECKPOINT_DIR"], f"step-{number}")
    os.makedirs(where)
    with open(os.path.join(where, "state"), "wb") as stream:
        stream.write(os.urandom(8_000_000))
    open(os.path.join(where, "COMPLETE"), "w").close()

while True:
    time.sleep(0.05)
    sums = torch.full((500_000,), 1.0)
    dist.all_reduce(sums)
    assert sums.eq(dist.get_world_size()).all()
    number += 1
    if number % 20 == 0 and (saves == "each" or saves == "first" and dist.get_rank() == 0):
        save()
    with open(os.environ["DTTUI_METRICS"], "a") as stream:
        stream.write(json.dumps({"step": number}) + "\\n")
    ends = torch.tensor(float(os.path.exists("/var/tmp/" + os.environ["END"])))
    dist.all_reduce(ends)
    if ends:
        break
"""
    + LEAVES
)


@pytest.fixture
def lab(deployed: Lab) -> Iterator[Lab]:
    yield deployed
    deployed.restore()
    for job in jobs.list_jobs():
        if not job.state.is_final:
            dttui("stop", job.job_id, "--force")


def launched(lab: Lab, home: Path, saves: str = "", **recovery: Any) -> JobDirectory:
    source = home / "source"
    source.mkdir()
    (source / "train.py").write_text(SCRIPT)
    run = {"script": "train.py", "workdir": "source", "env": {"END": home.name, "SAVES": saves}}
    path = write_job(home, dict.fromkeys(NODES, 1), framework="pytorch-ddp", run=run)
    return submitted(path, on_hosts(lab, home), straggler_s=8, **recovery)


def told(directory: JobDirectory) -> list[Event]:
    return directory.read_events(EventKind.STRAGGLER)


def end(lab: Lab, home: Path, directory: JobDirectory) -> None:
    for name in NODES:
        lab[name].run(["touch", f"/var/tmp/{home.name}"])
    wait_until(directory.is_over, "its end", 120)
    assert jobs.summarize(directory).state is JobState.SUCCEEDED, directory.read_events()[-1].message


def wait_for_steps(directory: JobDirectory, more: int) -> None:
    def made() -> int:
        return max((directory.metrics.read_bytes() if directory.metrics.exists() else b"").count(b"\n") // 3, 0)

    before = made()
    wait_until(lambda: made() >= before + more, f"{more} steps", 120)


def test_a_slow_network_of_a_host_is_named_and_taken_back_once_it_is_as_fast_as_others(
    lab: Lab, tmp_path: Path
) -> None:
    """At 10 Mbit/s each way: told within 90 s; free again, taken back within 90 s."""
    directory = launched(lab, tmp_path)
    wait_for_steps(directory, 3)
    lab["gpu2"].limit("10mbit")
    wait_until(lambda: told(directory), "it to be told", 90)
    slow = told(directory)[0]
    assert slow.message.startswith("the network of gpu2 is slow: "), slow.message
    assert (slow.node, slow.rank, slow.data["severity"]) == ("gpu2", None, "warning")
    assert slow.data["busy"] > 0.5
    assert slow.message in dttui_here("status", directory.job_id).stdout
    assert slow.message in dttui_here("diagnose", directory.job_id).stdout
    lab.restore()
    wait_until(lambda: len(told(directory)) > 1, "it to be taken back", 90)
    end(lab, tmp_path, directory)
    assert [(event.data["severity"], event.rank) for event in told(directory)] == [("warning", None), ("info", None)]


def test_a_slow_link_from_one_host_to_another_is_named_alone(lab: Lab, tmp_path: Path) -> None:
    """At 10 Mbit/s one way, told within 90 s."""
    check_slow_link(lab, tmp_path, launched(lab, tmp_path), 3)


def test_a_slow_link_is_named_alone_while_checkpoints_are_copied_over_it(lab: Lab, tmp_path: Path) -> None:
    """8 MB of each host every 20 steps to another one's disk, which slow down none for 60 steps before."""
    checkpoint = {"dir": f"/var/tmp/links-{tmp_path.parent.name}", "copies": 1}
    directory = launched(lab, tmp_path, "each", max_restarts=1, on_node_failure="restart", checkpoint=checkpoint)

    def copies() -> int:
        return sum("copied" in event.data for event in directory.read_events(EventKind.PROGRESS))

    wait_until(lambda: copies() >= len(NODES), "checkpoints to be copied", 90)
    check_slow_link(lab, tmp_path, directory, 60)


@pytest.mark.thorough
def test_a_slow_link_is_named_alone_where_all_save_in_one_directory(lab: Lab, tmp_path: Path) -> None:
    """As with own disks, within 90 s."""
    with shared_by([*lab.values()]):
        checkpoint = {"dir": SHARED, "shared": True}
        directory = launched(lab, tmp_path, "first", max_restarts=1, on_node_failure="restart", checkpoint=checkpoint)
        check_slow_link(lab, tmp_path, directory, 60)


def check_slow_link(lab: Lab, tmp_path: Path, directory: JobDirectory, steps: int) -> None:
    """Check that a link is named that slows after some steps, and nothing else before or then."""
    wait_for_steps(directory, steps)
    assert told(directory) == []
    lab["gpu2"].limit_to(lab["gpu1"], "10mbit")  # In gloo's ring each rank sends to the one before it.
    wait_until(lambda: told(directory), "it to be told", 90)
    slow = told(directory)[0]
    assert slow.message.startswith("the link from gpu2 to gpu1 is slow: "), slow.message
    assert (slow.node, slow.rank) == ("gpu2", None)
    lab.restore()
    end(lab, tmp_path, directory)


def test_equal_links_are_never_named(lab: Lab, tmp_path: Path) -> None:
    """All at 50 Mbit/s for 24 looks."""
    directory = launched(lab, tmp_path)
    for name in NODES:
        lab[name].limit("50mbit")
    wait_for_steps(directory, 40)
    lab.restore()
    end(lab, tmp_path, directory)
    assert told(directory) == []
