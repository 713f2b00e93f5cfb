"""Whether a job that ends well has trained together: told by real ranks under torchrun, on the embedded cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import EventKind

from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.evidence import read_evidence
from dttui.engine.rendezvous import together
from dttui.errors import ExitCode
from dttui.jobs.disturbances import APART
from dttui.jobs.following import JobFollower
from dttui.jobs.outcome import AttemptOutcome
from dttui.jobs.view import JobView
from tests.gloo import LEAVES
from tests.integration.gangs import ONE, TWO, TestGang, have_older_agent
from tests.outcomes import ended_with
from tests.processes import ended_agents as ended_agents
from tests.waiting import until

pytestmark = pytest.mark.torch
LIMIT_S = 120.0
TOGETHER = (
    """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
"""
    + LEAVES
)
HALVES = (
    """
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
node = rank // 2
store = dist.FileStore(os.path.join(os.environ["DTTUI_LOGS"], "..", "store"), 2)
dist.init_process_group("gloo", store=store, rank=rank % 2, world_size=2)
dist.all_reduce(torch.ones(1))
"""
    + LEAVES
)
ALONE = "import torch.distributed"
NONE = "the {count} ranks have formed no process group: each seems to train by itself"
REPORTS = """
import json, os, time
for step in range(10000):
    with open(os.environ["DTTUI_METRICS"], "a") as stream:
        stream.write(json.dumps({"step": step, "loss": 1.0, "rank": int(os.environ["RANK"])}) + "\\n")
    time.sleep(0.2)
"""


def job(home: Path, text: str, nodes: dict[str, int] | None = None, **fields: Any) -> TestGang:
    home.mkdir(parents=True, exist_ok=True)
    (home / "train.py").write_text(text)
    fields.setdefault("framework", "pytorch-ddp")
    return TestGang(home, nodes or {ONE: 2, TWO: 2}, run={"script": "train.py"}, **fields)


async def outcome(gang: TestGang) -> AttemptOutcome:
    """Return how it ended; the checks before a launch are left out."""
    gang.directory.plan.write_text(gang.gang.plan.model_dump_json())
    try:
        return await asyncio.wait_for(gang.gang.watch.run(await gang.start()), LIMIT_S)
    finally:
        await gang.close()


def findings(gang: TestGang) -> list[tuple[str, str]]:
    events = [event for event in gang.directory.read_events() if event.kind is EventKind.FINDING]
    return [(event.data["severity"], event.message) for event in events if event.data["code"] == APART]


async def test_a_job_of_moments_is_judged_by_the_groups_that_its_ranks_formed(tmp_path: Path) -> None:
    whole, halves, alone = (
        job(tmp_path / name, text, nodes, name=name)
        for name, text, nodes in (
            ("whole", TOGETHER, {ONE: 1, TWO: 1}),
            ("halves", HALVES, {ONE: 2, TWO: 2}),
            ("alone", ALONE, {ONE: 2, TWO: 1}),
        )
    )
    assert (await outcome(whole)).message == ""
    assert findings(whole) == []
    said = (await outcome(halves)).message
    message = "the 4 ranks have formed 2 process groups, of 2, 2: they do not train together"
    assert said == message
    assert findings(halves) == [("warning", message)]
    said = (await outcome(alone)).message
    assert said == NONE.format(count=3)
    (node, _other) = alone.nodes.values()
    assert node.status is not None
    assert [item.ranks for item in node.status.groups or ()] == [[0, 1]]
    required = job(tmp_path / "required", ALONE, {ONE: 2}, require_process_group=True)
    ended_with(await outcome(required), ExitCode.JOB_FAILED, "have formed no process group")
    assert findings(required) == [("error", NONE.format(count=2))]


async def test_an_agent_that_does_not_tell_of_groups_is_refused_at_the_start_where_one_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_older_agent(monkeypatch, TWO, tells_groups=False)
    required = job(tmp_path / "required", ALONE, {ONE: 1, TWO: 1}, require_process_group=True)
    caught = ended_with(
        await required.gang.run(), ExitCode.PREFLIGHT, f"^{TWO}: its agent is too old for require_process_group: true"
    )
    assert caught.hint == f"Upgrade it: dttui agents deploy {TWO}"
    told = job(tmp_path / "told", "", {ONE: 1, TWO: 1})
    try:
        await told.start()
    finally:
        await told.end()


@pytest.mark.parametrize("is_required", [False, True], ids=["told", "required"])
async def test_ranks_that_report_steps_without_a_group_are_told_of_while_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_required: bool
) -> None:
    monkeypatch.setattr(together, "SETTLE_S", 0.2)
    more = {"require_process_group": True} if is_required else {}
    gang = job(tmp_path, ALONE + REPORTS, {ONE: 2}, **more)
    running = asyncio.ensure_future(outcome(gang))
    await until(lambda: findings(gang), "that they train apart", LIMIT_S)
    follower = JobFollower(gang.directory)
    if is_required:
        ended_with(await asyncio.wait_for(running, LIMIT_S), ExitCode.JOB_FAILED, "have formed no process group")
    while follower.poll():
        pass
    view: JobView = follower.view
    found = diagnose(read_evidence(gang.directory, view))
    assert found.cause is not None
    assert (found.cause.code, found.cause.words) == (APART, NONE.format(count=2))
    if not is_required:
        assert view.headline(0.0) == NONE.format(count=2)
        gang.gang.request_stop(force=True)
        await asyncio.gather(running, return_exceptions=True)
    assert len(findings(gang)) == 1
