"""Nodes of elastic jobs that die: the others go on where enough are left and the rendezvous is; who died is named."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from dtagent.payload.rank import AGAIN
from dtagent.protocol.events import EventKind, JobState, NodeStanding

from dttui import jobs
from dttui.jobs.following import JobFollower
from dttui.jobs.view import NODE_OUT
from tests.faults.leftovers import assert_nothing_is_left
from tests.faults.test_login_node import kill_controller
from tests.integration import elastic_training
from tests.integration.elastic_jobs import WAIT_S, elastic_job, follower_of, ranks_that_torch_told, start
from tests.integration.gangs import ONE, THREE, TWO
from tests.integration.headless import dttui, result_of, write_job
from tests.lab.hosts import Lab
from tests.processes import demo_root, shared_agents
from tests.waiting import wait_until

__all__ = ["demo_root", "shared_agents"]

pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("lab of elastic jobs"),
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]"
    ),
]
STEPS = 120


def test_a_node_that_dies_is_named_and_the_others_resume_without_it_to_a_good_end(tmp_path: Path) -> None:
    """Within 90 s: torchrun killed on a node that is not the master's, and then the controller: the next goes on."""
    running = start(elastic_job(tmp_path, steps=60, pause_s=0.2))
    before, _ = follower_of(running.directory)
    assert before.view.state is JobState.RUNNING
    running.kill_launcher(TWO)
    wait_until(
        lambda: NODE_OUT in [event.data["code"] for event in running.events(EventKind.FINDING)], "it to be told", 60
    )
    kill_controller(running.directory)
    document = running.end(90.0)
    assert (document["state"], document["exit_code"]) == ("SUCCEEDED", 0), document
    assert TWO in document["reason"]
    follower, metrics = follower_of(running.directory)
    (finding,) = [event for event in follower.view.findings if event.data["code"] == NODE_OUT]
    assert finding.data["subject"] == TWO
    assert "SIGKILL" in finding.message
    assert follower.view.nodes[TWO].state is NodeStanding.FAILED
    left = {name: follower.view.nodes[name].ranks for name in (ONE, THREE)}
    assert sorted(rank for ranks in left.values() for rank in ranks) == [0, 1, 2]
    for node, ranks in left.items():
        assert set(ranks) <= ranks_that_torch_told(running, node)
    logs = [path.read_text() for node in left for path in running.directory.logs(0, node).glob("*.out")]
    assert any(f"{AGAIN}\nlocal rank" in text for text in logs), "a mark between two processes of a rank"
    resumed = {int(step) for text in logs for step in re.findall(r"goes on after step (\d+)", text)}
    (saved,) = resumed
    assert saved % elastic_training.CHECKPOINT_EVERY == 0
    losses = {item.step or 0: item.loss or 0.0 for item in metrics}
    assert list(losses) == sorted(losses)
    assert max(losses) == 60
    assert losses[60] < losses[6] < losses[1]
    told = [(event.node, tuple(event.data["ranks"]), event.data["port"]) for event in running.events(EventKind.RANKS)]
    assert len(told) == len(set(told)) == 5
    assert not running.events(EventKind.RANK_FAILED)
    (comeback,) = running.events(EventKind.RESTARTED)
    assert (comeback.attempt, comeback.data["cause"], comeback.data["round"]) == (0, "killed", 1)
    assert 0 <= comeback.data["lost_steps"] <= elastic_training.CHECKPOINT_EVERY + 1
    assert 0 < comeback.data["seconds"] < 90
    assert f"goes on at step {saved + 1}, " in comeback.message
    diagnosed = dttui("diagnose", running.directory.job_id).stdout
    assert TWO in diagnosed


def test_the_masters_death_ends_an_elastic_job_and_is_named(tmp_path: Path) -> None:
    """Within 45 s, although enough nodes are left: the rendezvous was there."""
    running = start(elastic_job(tmp_path, steps=1000, pause_s=0.2))
    running.kill_launcher(ONE)
    document = running.end(45.0)
    assert (document["state"], document["exit_code"]) == ("FAILED", 100), document
    assert ONE in document["reason"]
    assert "SIGKILL" in document["reason"]
    failure = document["failures"][0]
    assert failure["node"] == ONE


def test_a_job_that_has_fewer_nodes_than_it_needs_ends(tmp_path: Path) -> None:
    """Within 45 s: two nodes of which both are needed."""
    running = start(elastic_job(tmp_path, {ONE: 1, THREE: 1}, steps=1000, pause_s=0.2))
    running.kill_launcher(THREE)
    document = running.end(45.0)
    assert (document["state"], document["exit_code"]) == ("FAILED", 100), document
    assert document["failures"][0]["node"] == THREE
    assert not [event for event in running.events(EventKind.FINDING) if event.data["code"] == NODE_OUT]


ELASTIC: dict[str, Any] = {"framework_options": {"elastic": {"min_nodes": 2, "wait_s": WAIT_S}}}


def train(deployed: Lab, directory: Path, asked: dict[str, Any] = ELASTIC) -> tuple[JobFollower, list[dict[str, Any]]]:
    """Start an elastic job on three hosts, each with checkpoints of its own; return once it has some."""
    inventory = deployed.inventory(directory / "inventory.yaml")
    shutil.copy(elastic_training.__file__, directory / "train.py")
    job = write_job(
        directory,
        {"gpu1": 1, "gpu2": 1, "gpu3": 2},
        framework="pytorch-ddp",
        **asked,
        communication={"collective_timeout": "6s"},
        run={"script": "train.py", "workdir": ".", "args": [str(STEPS), "0.2"]},
    )
    started = dttui("--apply", job, "--inventory", inventory, "--detach", "--output", "json")
    assert started.returncode == 0, started.stderr
    follower = JobFollower(jobs.find(result_of(started)["job_id"]))
    metrics: list[dict[str, Any]] = []

    def trains() -> bool:
        metrics.extend(event.data for event in follower.poll() if event.kind is EventKind.METRIC)
        return bool(metrics) and metrics[-1]["step"] > 2 * elastic_training.CHECKPOINT_EVERY

    wait_until(trains, "some steps", 150.0)
    assert sorted(rank for node in follower.view.nodes.values() for rank in node.ranks) == [0, 1, 2, 3]
    return follower, metrics


def assert_it_ends_well_without_gpu2(follower: JobFollower, metrics: list[dict[str, Any]]) -> None:
    ended = dttui("attach", follower.view.job_id, "--output", "json", deadline_s=300.0)
    result = result_of(ended)
    assert result["state"] == "SUCCEEDED", result
    assert result["reason"].endswith("; ended well, without gpu2"), result
    while follower.poll():
        pass
    assert sorted([*follower.view.nodes["gpu1"].ranks, *follower.view.nodes["gpu3"].ranks]) == [0, 1, 2]
    (told,) = [event for event in follower.view.findings if event.data["code"] == NODE_OUT]
    assert told.message == "gpu2 is out: no word from gpu2. The job goes on with 2 of 3 nodes"
    newest = follower.view.newest_metric
    assert newest is not None
    assert newest.step == STEPS
    assert (newest.loss or 0.0) < metrics[0]["loss"] / 2


@pytest.mark.lab
def test_a_host_that_is_switched_off_is_lost_and_the_others_train_on_to_a_good_end(
    deployed: Lab, breakable_lab3: Lab, tmp_path: Path
) -> None:
    """Within 120 s: lost once the others run without it, for nothing but silence comes from it."""
    follower, metrics = train(deployed, tmp_path)
    breakable_lab3["gpu2"].kill()
    assert_it_ends_well_without_gpu2(follower, metrics)
    assert follower.view.nodes["gpu2"].state is NodeStanding.LOST


@pytest.mark.lab
def test_the_rendezvous_host_that_is_switched_off_ends_the_job_and_is_named(
    deployed: Lab, breakable_lab3: Lab, tmp_path: Path
) -> None:
    """Within 180 s: the others' torchruns still wait for its store when they are ended."""
    follower, _metrics = train(deployed, tmp_path)
    breakable_lab3["gpu1"].kill()
    result = result_of(dttui("attach", follower.view.job_id, "--output", "json", deadline_s=180.0))
    assert result["state"] == "FAILED"
    assert "gpu1" in result["reason"], result
    assert "the rendezvous was on gpu1, and the job ends with it" in result["reason"]


@pytest.mark.lab
@pytest.mark.timeout(400)
def test_a_job_that_is_to_continue_survives_its_rendezvous_host_by_another_attempt_of_those_that_are_left(
    deployed: Lab, breakable_lab3: Lab, tmp_path: Path
) -> None:
    """Within 240 s: from a checkpoint, by the word of `recovery` alone."""
    checkpoint = {"dir": f"/tmp/{tmp_path.name}"}
    recovery = {"on_node_failure": "continue", "min_nodes": 2, "checkpoint": checkpoint}
    follower, _metrics = train(deployed, tmp_path, {"recovery": recovery})
    breakable_lab3["gpu1"].kill()
    result = result_of(dttui("attach", follower.view.job_id, "--output", "json", deadline_s=240.0))
    assert result["state"] == "SUCCEEDED", result
    events = follower.directory.read_events()
    (restart,) = [event for event in events if event.data.get("state") == "RESTARTING"]
    assert "gpu1" in restart.message
    (comeback,) = [event for event in events if event.kind is EventKind.RESTARTED]
    assert comeback.attempt == 1
    while follower.poll():
        pass
    assert list(follower.view.nodes) == ["gpu2", "gpu3"]
    logs = [path.read_text() for path in follower.directory.logs(1, "gpu2").glob("*.out")]
    assert any("goes on after step" in text for text in logs), logs


@pytest.mark.lab
def test_a_host_that_comes_back_after_the_others_went_on_is_ended_and_takes_part_no_more(
    deployed: Lab, breakable_lab3: Lab, tmp_path: Path
) -> None:
    """Within 150 s: a cable pulled out, and put back once the others run without the host, which then stays out."""
    follower, metrics = train(deployed, tmp_path)
    gpu2 = breakable_lab3["gpu2"]
    gpu2.cut()

    def is_lost() -> bool:
        follower.poll()
        return follower.view.nodes["gpu2"].state is NodeStanding.LOST

    wait_until(is_lost, "gpu2 to be lost", 90.0)
    gpu2.heal()
    assert_it_ends_well_without_gpu2(follower, metrics)
    assert follower.view.nodes["gpu2"].state in (NodeStanding.STOPPED, NodeStanding.FAILED)
    told = [event for event in follower.directory.read_events() if event.kind is EventKind.RANKS]
    assert [event.data["world_size"] for event in told] == [4, 4, 4, 3, 3], "it was not taken back in between"
    assert_nothing_is_left(follower.directory, deployed)
