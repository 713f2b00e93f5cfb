"""Elastic jobs on the embedded cluster by a real torchrun, which numbers ranks by itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState, NodeStanding

from dttui.services import jobs
from dttui.services.view import NODE_OUT
from tests.integration.elastic_jobs import Running, elastic_job, follower_of, ranks_that_torch_told, start
from tests.integration.gangs import THREE
from tests.integration.headless import dttui, result_of
from tests.processes import demo_root, shared_agents

__all__ = ["demo_root", "shared_agents"]

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]"
    ),
]


def test_an_elastic_job_trains_on_unequal_nodes_and_shows_ranks_as_torch_has_numbered_them(tmp_path: Path) -> None:
    """Within 60 s, by c10d: the loss falls, and what is told of ranks is what the ranks themselves print."""
    done = dttui("--demo", "--apply", elastic_job(tmp_path), "--output", "json", deadline_s=60.0)
    document = result_of(done)
    assert document["state"] == "SUCCEEDED", document
    running = Running(jobs.find(document["job_id"]))
    follower, metrics = follower_of(running.directory)
    shown = {name: node.ranks for name, node in follower.view.nodes.items()}
    assert sorted(rank for ranks in shown.values() for rank in ranks) == [0, 1, 2, 3]
    assert {item["name"]: tuple(item["ranks"]) for item in document["nodes"]} == shown
    for node, ranks in shown.items():
        assert ranks_that_torch_told(running, node) == set(ranks)
    assert [item.step for item in metrics] == list(range(1, 21))
    losses = [item.loss or 0.0 for item in metrics]
    assert 0 < losses[-1] < losses[0] / 2
    assert [event.node for event in running.events(EventKind.RANKS)].count(THREE) == 1
    assert not running.events(EventKind.RANK_FAILED)
    assert (document["world_size"], document["present_world_size"]) == (4, 4)


def test_an_elastic_job_that_is_stopped_loses_no_node_by_that(tmp_path: Path) -> None:
    """Within 45 s: whichever launcher ends first."""
    running = start(elastic_job(tmp_path, steps=1000, pause_s=0.1))
    stopped = dttui("stop", running.directory.job_id, deadline_s=45.0)
    assert stopped.returncode == 0, stopped.stderr
    follower, _metrics = follower_of(running.directory)
    assert (follower.view.state, follower.view.reason) == (JobState.CANCELLED, "stopped on request")
    assert NODE_OUT not in [event.data["code"] for event in running.events(EventKind.FINDING)]
    assert sorted(rank for node in follower.view.nodes.values() for rank in node.ranks) == [0, 1, 2, 3]
    assert {node.state for node in follower.view.nodes.values()} == {NodeStanding.STOPPED}
