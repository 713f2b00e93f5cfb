"""This client against an agent of protocol version 1: its recorded answers are enough to follow a job to its end."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.facts import FactsRequest, HostFacts
from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.protocol.logs import FollowReply, FollowRequest
from dtagent.protocol.preparation import PrepareReply
from dtagent.protocol.said import notice_line
from dtagent.protocol.telemetry import TelemetryReply, TelemetryRequest

from dttui.errors import AgentError, AgentGoneError
from dttui.i18n import set_language
from dttui.inventory.models import Environment
from dttui.rpc.client import AgentClient
from dttui.transport.base import Nobody
from tests.agent.recorded import version1
from tests.fake_transport import FakeHost, FakeProcess, FakeTransport
from tests.tui.catalogue import compile_catalogues

ENVIRONMENT = Environment(name="gpu1", host="gpu1")
MAGIC = b"dtagent-bridge 1\n"


def old_agent(asked: list[dict[str, Any]]) -> Callable[[FakeProcess], Awaitable[int]]:
    """Answer each method with its next recorded reply, whatever else the question holds."""
    left: dict[str, list[dict[str, Any]]] = {}
    for exchange in version1("/root"):
        left.setdefault(exchange["call"]["method"], []).append(exchange["reply"])

    async def play(process: FakeProcess) -> int:
        await process.stdout.write(MAGIC)
        while line := await process.stdin.readline():
            frame = json.loads(line)
            asked.append(frame)
            replies = left[frame["method"]]
            reply = {**(replies.pop(0) if len(replies) > 1 else replies[0]), "id": frame["id"]}
            await process.stdout.write(json.dumps(reply).encode() + b"\n")
        return 0

    return play


async def connect(handler: Callable[[FakeProcess], Awaitable[int]]) -> AgentClient:
    return await AgentClient.connect(ENVIRONMENT, FakeTransport({"gpu1": FakeHost(handler)}), Nobody(), 5.0)


async def test_every_answer_of_an_older_agent_is_understood() -> None:
    asked: list[dict[str, Any]] = []
    client = await connect(old_agent(asked))
    assert client.hello is not None
    assert client.hello.version == 1
    key = AttemptKey("recorded", 0)
    assert (await client.call("facts", FactsRequest(), HostFacts)).hostname == "gpu1"
    assert len((await client.call("telemetry", TelemetryRequest(), TelemetryReply)).samples) == 1
    assert (await client.call("prepare", key, PrepareReply)).master_port
    assert (await client.call("status", key, NodeStatus)).state is NodeState.PREPARED
    request = FollowRequest(key, {"0.out": 0}, "", 0.0, 4096, inodes={"0.out": 7})
    reply = await client.call("follow", request, FollowReply)
    assert reply.status.state is NodeState.ENDED
    assert reply.status.warnings == []
    assert {(chunk.stream, chunk.gap_bytes, chunk.inode, chunk.is_new_file) for chunk in reply.chunks} == {
        ("0.out", 0, None, False),
        ("0.err", 0, None, False),
        ("metrics", 0, None, False),
    }
    assert asked[-1]["params"]["inodes"] == {"0.out": 7}  # It is told what it does not know, and passes over it.
    await client.close()


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        (None, "dttui agents deploy gpu1"),
        ({"versions": [0]}, "dttui agents deploy gpu1"),
        ({"versions": [7, 8]}, "Upgrade dttui"),
        ({"versions": "many"}, "dttui agents deploy gpu1"),
    ],
)
async def test_without_a_common_version_both_are_named_and_the_remedy(data: object, remedy: str) -> None:
    async def other(process: FakeProcess) -> int:
        await process.stdout.write(MAGIC)
        frame = json.loads(await process.stdin.readline())
        error = {"code": 1, "message": "dtagent 9 speaks [7, 8], dttui 0.1.0 speaks [1]", "data": data}
        await process.stdout.write(json.dumps({"id": frame["id"], "error": error}).encode() + b"\n")
        await process.stdin.readline()
        return 0

    with pytest.raises(AgentError, match=r"\[7, 8\].*\[1\]") as caught:
        await connect(other)
    assert remedy in caught.value.hint


@pytest.fixture
def chinese() -> Iterator[None]:
    compile_catalogues()
    set_language("zh")
    yield
    set_language("en")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ({"told": {"id": "there is no {paths} here", "values": {"paths": "/data"}}}, "there is no /data here"),
        ({"notice": {"code": "paths-missing", "values": {"paths": "/data"}}}, "这里没有 /data"),
        ({"notice": {"code": "paths-on-the-moon", "values": {"paths": "/data"}}}, "there is no /data here"),
        ({"notice": {"code": "paths-missing", "values": {}}}, "there is no /data here"),
        ({"notice": "paths-missing"}, "there is no /data here"),
        (None, "there is no /data here"),
    ],
    ids=["recipe", "code", "unknown", "lacking", "spoilt", "text"],
)
@pytest.mark.usefixtures("chinese")
async def test_a_refusal_of_an_older_or_a_newer_agent_is_shown_by_its_code_or_else_as_it_came(
    data: object, shown: str
) -> None:
    async def refuses(process: FakeProcess) -> int:
        hello = version1("/root")[0]["reply"]
        await process.stdout.write(MAGIC)
        frame = json.loads(await process.stdin.readline())
        await process.stdout.write(json.dumps({**hello, "id": frame["id"]}).encode() + b"\n")
        frame = json.loads(await process.stdin.readline())
        error = {"code": 4, "message": "there is no /data here", "data": data}
        await process.stdout.write(json.dumps({"id": frame["id"], "error": error}).encode() + b"\n")
        await process.stdin.readline()
        return 0

    client = await connect(refuses)
    with pytest.raises(AgentError) as refused:
        await client.call("prepare", AttemptKey("job", 0), PrepareReply)
    assert refused.value.message == f"gpu1：{shown}"
    await client.close()


STUCK = "the daemon has not taken a connection for 20 s: it hangs, or is stopped"


@pytest.mark.parametrize(
    ("stdout", "stderr", "shown", "is_gone"),
    [
        ("", f"dtagent: {STUCK}", STUCK, False),
        (
            notice_line(sentences.DAEMON_STUCK(seconds="20")),
            "dtagent: put otherwise",
            "守护进程已 20 秒没有接受连接",
            False,
        ),
        (notice_line(sentences.ROOT_NOT_READ(root="/r", error="EIO")), "dtagent: oh", "无法读取 /r：EIO", True),
        ("Welcome\n", "sh: 1: exec: python: not found", "sh: 1: exec: python: not found", True),
        ('dtagent-notice {"code": "of-next-year", "values": {}}\n', "dtagent: oh", "oh", True),
        ("dtagent-notice [[[\n", "dtagent: oh", "oh", True),
    ],
    ids=["stuck-before-codes", "stuck", "root", "shell", "unknown", "spoilt"],
)
@pytest.mark.usefixtures("chinese")
async def test_a_bridge_that_ends_is_known_by_its_code_and_of_an_older_agent_by_what_it_says(
    stdout: str, stderr: str, shown: str, is_gone: bool
) -> None:
    async def ends(process: FakeProcess) -> int:
        await process.stdout.write(stdout.encode())
        process.stderr.extend(f"{stderr}\n".encode())
        return 1

    with pytest.raises(AgentError) as refused:
        await connect(ends)
    assert isinstance(refused.value, AgentGoneError) == is_gone
    assert shown in refused.value.message
