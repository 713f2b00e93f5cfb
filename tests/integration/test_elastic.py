"""Elastic jobs on the embedded cluster by a real torchrun, which numbers ranks by itself."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState, NodeStanding

from dttui import jobs
from dttui.errors import ExitCode
from dttui.jobs.view import NODE_OUT
from tests.agent.conversation import processes_with
from tests.files import contents_below
from tests.integration import elastic_training
from tests.integration.elastic_jobs import DEADLINE_S, Running, elastic_job, follower_of, ranks_that_torch_told, start
from tests.integration.gangs import ONE, THREE, TWO, TestGang, have_older_agent
from tests.integration.headless import dttui, result_of
from tests.outcomes import ended_with
from tests.processes import demo_root, shared_agents
from tests.waiting import until

__all__ = ["demo_root", "shared_agents"]

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]"
    ),
]


def test_an_elastic_job_trains_on_unequal_nodes_and_shows_ranks_as_torch_has_numbered_them(tmp_path: Path) -> None:
    """By c10d: the loss falls, and what is told of ranks is what the ranks themselves print."""
    done = dttui("--demo", "--apply", elastic_job(tmp_path), "--output", "json")
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
    """Whichever launcher ends first."""
    running = start(elastic_job(tmp_path, steps=1000, pause_s=0.1))
    stopped = dttui("stop", running.directory.job_id)
    assert stopped.returncode == 0, stopped.stderr
    follower, _metrics = follower_of(running.directory)
    assert (follower.view.state, follower.view.reason) == (JobState.CANCELLED, "stopped on request")
    assert NODE_OUT not in [event.data["code"] for event in running.events(EventKind.FINDING)]
    assert sorted(rank for node in follower.view.nodes.values() for rank in node.ranks) == [0, 1, 2, 3]
    assert {node.state for node in follower.view.nodes.values()} == {NodeStanding.STOPPED}


@pytest.mark.parametrize("lack", ["seals_rendezvous", "gathers_rounds"])
async def test_an_agent_whose_rendezvous_is_open_to_all_or_waits_without_end_is_refused_before_anything_starts(
    lack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_older_agent(monkeypatch, TWO, **{lack: False})
    gang = elastic_gang(tmp_path)
    words = f"^{TWO}: its agent is too old for an elastic job: "
    caught = ended_with(await gang.gang.run(), ExitCode.PREFLIGHT, words)
    assert caught.hint == f"Upgrade it: dttui agents deploy {TWO}"


async def test_the_key_of_the_rendezvous_is_made_for_the_attempt_and_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make(size: int) -> str:
        made.append(os.urandom(size).hex())
        return made[-1]

    monkeypatch.setattr(secrets, "token_hex", make)
    gang = elastic_gang(tmp_path)
    keys: set[str] = set()
    environments: list[bytes] = []

    def look() -> bool:
        for pid in processes_with(f"DTTUI_JOB_ID={gang.directory.job_id}"):
            with contextlib.suppress(OSError):
                environments.append(
                    Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
                )
        return running.done()

    running = asyncio.ensure_future(gang.gang.run())
    await until(look, "its end", DEADLINE_S)
    await running
    keys = {key for key in made if len(key) == 64}
    assert keys
    roots = [gang.directory.path, Path(os.environ["DTTUI_DEMO_ROOT"]), tmp_path]
    texts = [*contents_below(*roots).values(), *environments]
    assert environments
    assert not [key for key in keys if any(key.encode() in text for text in texts)]


def elastic_gang(directory: Path) -> TestGang:
    shutil.copy(elastic_training.__file__, directory / "train.py")
    return TestGang(
        directory / "job",
        {ONE: 1, TWO: 1},
        framework="pytorch-ddp",
        framework_options={"elastic": {"min_nodes": 2, "wait_s": 3}},
        run={"script": str(directory / "train.py"), "args": ["5", "0.1"]},
    )
