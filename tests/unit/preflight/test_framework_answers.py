"""What a preflight has a framework read before a job starts: whom it asks, with what, and what answers mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from dtagent.protocol import sentences
from dtagent.protocol.rpc import ErrorCode

from dttui.frameworks.base import Framework
from dttui.jobs.board import Board
from dttui.jobs.checks import Check
from dttui.planning.planner import plan
from dttui.preflight.framework_answers import request_for
from dttui.preflight.preflight import Preflight
from dttui.spec.models import DataParallel, Job, Node, NodeResources, Run, Strategy
from tests.unit.preflight.test_preflight import INVENTORY, NAMES, TORCH, Agent, Checking, facts_with
from tests.unit.seed_cluster import make_job

STRATEGY = Strategy(data_parallel=DataParallel(batch_size=12))
DEEPSPEED = make_job(*NAMES, framework="deepspeed", strategy=STRATEGY, run=Run(script="train.py", workdir="/srv"))
DDP = make_job(*NAMES, run=Run(script="train.py", workdir="/srv"))
MISSING = sentences.MODULE_MISSING(error="No module").notice
NO_SIZES = sentences.MODEL_SIZES_MISSING()
SIZES = NO_SIZES.notice
HAS = replace(TORCH, packages={**TORCH.packages, "deepspeed": "0.19.8"})


class Host(Agent):
    """A host with DeepSpeed, of some version, that keeps what it is asked to have read."""

    def __init__(self, answer: Any = None, **changes: Any) -> None:
        self.requests: list[dict[str, Any]] = []

        def verdict(params: dict[str, Any]) -> Any:
            self.requests.append(params)
            return {"verdicts": {"deepspeed": {}}} if answer is None else answer

        packages = {**HAS.packages, **changes.pop("packages", {})}
        facts = facts_with(pythons=[replace(HAS, packages=packages)], **changes)
        super().__init__(facts=facts, verdict=verdict)


async def checked(job: Job, hosts: Mapping[str, Host], *ignored: str, thorough: bool = False) -> Board:
    checking = Checking(job, INVENTORY, **hosts)
    run = Preflight(
        checking.nodes,
        checking.plan,
        INVENTORY,
        lambda known, facts, _links: plan(job, known, facts),
        ignored=frozenset(ignored),
        is_thorough=thorough,
    )
    try:
        return await asyncio.wait_for(run.run(), 20)
    finally:
        for node in checking.nodes:
            await node.close()


def hosts(answer: Any = None) -> dict[str, Host]:
    return {name: Host(answer) for name in NAMES}


def asked(those: Mapping[str, Host]) -> list[dict[str, Any]]:
    return [request for host in those.values() for request in host.requests]


async def test_one_host_of_those_with_the_same_versions_reads_what_its_node_would_be_given() -> None:
    those = hosts()
    board = await checked(DEEPSPEED, those)
    (request,) = asked(those)
    assert (request["python"], request["checks"], request["world_size"]) == ("/py", ["deepspeed"], 3)
    assert json.loads(request["files"]["ds_config.json"])["train_batch_size"] == 12
    assert "${" not in json.dumps(request).replace("${DIRECTORY}", "").replace("${PAYLOAD}", "")
    assert not [name for name in request["env"] if name.startswith("DTTUI_")]
    told = [board.rows[name][Check.SOFTWARE].text for name in NAMES]
    assert [text.endswith("· read by deepspeed") for text in told].count(True) == 1
    board.raise_errors()


async def test_a_host_with_other_versions_is_asked_too() -> None:
    those = {**hosts(), "c": Host(packages={"deepspeed": "0.14.0"})}
    await checked(DEEPSPEED, those)
    assert len(asked(those)) == 2
    assert len(those["c"].requests) == 1


async def test_where_the_first_of_equal_versions_does_not_answer_the_next_one_is_asked_once() -> None:
    refusal = {"verdicts": {"deepspeed": {"refusal": "no"}}}
    answers: list[Any] = [{"unseen": "/py gave no answer within 20 s"}, refusal, refusal]
    those = hosts()
    for host in those.values():
        host.answers["verdict"] = lambda params, host=host: (host.requests.append(params), answers.pop(0))[1]
    board = await checked(DEEPSPEED, those)
    assert len(asked(those)) == 2
    assert [item.code for item in board.errors] == ["framework-refuses"]
    answers = [{"unseen": "/py gave no answer within 20 s"}] * 3
    board = await checked(DEEPSPEED, those)
    assert len(asked(those)) == 2 + 2
    board.raise_errors()


async def test_a_refusal_forbids_the_launch_in_the_frameworks_words_unless_it_is_ignored() -> None:
    words = "Check batch related\n\x1b[31mparameters"
    those = hosts({"verdicts": {"deepspeed": {"refusal": words}}})
    board = await checked(DEEPSPEED, those)
    (found,) = (item for item in board.errors if item.code == "framework-refuses")
    assert found.message.endswith("deepspeed refuses what it would be given: Check batch related parameters")
    assert (await checked(DEEPSPEED, those, "framework-refuses")).errors == ()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"unseen": "/py gave no answer within 20 s"}, "settings not read: /py gave no answer within 20 s"),
        ({"code": int(ErrorCode.UNKNOWN_METHOD), "message": "no method"}, "settings not read: its agent is too old"),
        ({"verdicts": {"deepspeed": {"unseen": "TypeError: x"}}}, "not read by deepspeed: TypeError: x"),
        ({"verdicts": {"deepspeed": {"unseen": "ModuleNotFoundError: No module"}}}, None),
        ({"verdicts": {"deepspeed": {"unseen": "it lacks a module", "unseen_notice": MISSING}}}, None),
        ({"verdicts": {"deepspeed": {"unseen": "x", "unseen_notice": SIZES}}}, f"not read by deepspeed: {NO_SIZES}"),
        ({"verdicts": {}}, None),
    ],
)
async def test_what_was_not_looked_at_is_told_and_forbids_nothing(answer: Any, text: str | None) -> None:
    board = await checked(DEEPSPEED, hosts(answer))
    told = " ".join(board.rows[name][Check.SOFTWARE].text for name in NAMES)
    assert text in told if text is not None else "read" not in told
    board.raise_errors()
    assert "framework-refuses" not in {item.code for item in board.findings}


async def test_where_hosts_have_more_gpus_than_was_thought_the_framework_reads_it_once_more() -> None:
    everything = tuple(Node(id=name, resources=NodeResources()) for name in NAMES)
    job = DEEPSPEED.model_copy(update={"cluster": DEEPSPEED.cluster.model_copy(update={"nodes": everything})})
    gpus = [{"index": index, "name": "A100", "memory_total_mib": 81_920} for index in range(2)]
    those = hosts()
    for host in those.values():
        body = host.answers["facts"](None)
        host.answers["facts"] = {**body, "gpus": gpus}
    await checked(job, those)
    assert [request["world_size"] for request in asked(those)] == [3, 6]


async def test_a_launch_asks_nobody_about_torchruns_arguments_and_a_thorough_check_does() -> None:
    those = hosts()
    await checked(DDP, those)
    assert asked(those) == []
    await checked(DDP, those, thorough=True)
    (request,) = asked(those)
    assert request["checks"] == ["torchrun"]
    assert "--nnodes=3" in request["argv"]


async def test_a_host_without_the_interpreter_is_asked_nothing() -> None:
    agent = Host()
    agent.answers["facts"] = facts_with(pythons=[])
    board = await checked(DEEPSPEED, {**hosts(), "a": agent})
    assert agent.requests == []
    assert ("python-missing", "a") in [(item.code, item.subject) for item in board.errors]


async def test_settings_that_nobody_reads_in_a_container_are_told_of() -> None:
    def inside(job: Job) -> Job:
        container = {"image": "torch:1", "engine": "docker"}
        return job.model_copy(update={"run": Run(script="train.py", workdir="/srv", container=container)})

    those = hosts()
    for host in those.values():
        host.answers["image"] = {"has_engine": True, "has_image": True, "image_id": "sha256:" + "a" * 64}
    board = await checked(inside(DEEPSPEED), those)
    for name in NAMES:
        told = board.rows[name][Check.SOFTWARE].text
        assert told == "docker · torch:1 · aaaaaaaaaaaa · settings not read: in a container"
    assert asked(those) == []
    # A launch would not have asked about torchrun's arguments either way.
    board = await checked(inside(DDP), those)
    assert board.rows["a"][Check.SOFTWARE].text == "docker · torch:1 · aaaaaaaaaaaa"


def test_a_container_is_not_looked_into_and_older_frameworks_have_nobody_to_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = plan(DEEPSPEED, INVENTORY)
    assert request_for(made, made.nodes[0], thorough=True) is not None
    run = Run(script="train.py", workdir="/srv", container={"image": "torch:1", "engine": "docker"})
    inside = plan(DEEPSPEED.model_copy(update={"run": run}), INVENTORY)
    assert request_for(inside, inside.nodes[0], thorough=True) is None
    assert "verdicts" in dir(Framework)
