"""When a host that says nothing any more is told as unknown, and how often it is asked until then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.protocol.logs import FollowReply
from dtagent.protocol.rpc import MAGIC, to_wire

from dttui import __version__, jobs
from dttui.engine.nodes.node_record import Shared
from dttui.engine.nodes.node_run import LEAST_PATIENCE_S, NodeRun
from dttui.inventory.models import Environment
from dttui.transport.base import Nobody
from tests.fake_transport import FakeHost, FakeProcess, FakeTransport
from tests.unit.jobs.test_follow import plan_for
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("unhurried")

HEARTBEAT_S = 0.6
HELLO = {"version": 1, "hostname": "h", "pid": 1, "boot_id": "b", "time": 0.0, "agent_version": __version__}
PIECES = 8


class Host:
    """An agent that answers questions for news as late as they allow, and from the fifth on not at all."""

    def __init__(self, drip_s: float = 0.0) -> None:
        self.waits: list[float] = []
        """How long each question for news might take."""
        self._drip_s = drip_s
        """Between two pieces of the fourth answer."""

    async def play(self, process: FakeProcess) -> int:
        await process.stdout.write(MAGIC)
        while line := await process.stdin.readline():
            frame = json.loads(line)
            result, drip_s = HELLO, 0.0
            if frame["method"] == "follow":
                self.waits.append(frame["params"]["wait_s"])
                if len(self.waits) > 4:
                    continue
                await asyncio.sleep(self.waits[-1])
                key = AttemptKey(frame["params"]["key"]["job_id"], 0)
                result = to_wire(FollowReply(NodeStatus(key, 0, NodeState.RUNNING), str(len(self.waits))))
                drip_s = self._drip_s if len(self.waits) == 4 else 0.0
            answer = json.dumps({"id": frame["id"], "result": result}).encode() + b"\n"
            size = -(-len(answer) // PIECES)
            for begin in range(0, len(answer), size):
                await process.stdout.write(answer[begin : begin + size])
                await asyncio.sleep(drip_s)
        return 0


@asynccontextmanager
async def followed(host: Host) -> AsyncIterator[NodeRun]:
    directory, environment = jobs.create("x"), Environment(name="a", host="a")
    key, transport = AttemptKey(directory.job_id, 0), FakeTransport({"a": FakeHost(host.play)})
    shared, planned = Shared(heartbeat_s=HEARTBEAT_S), plan_for("a").nodes[0]
    node = NodeRun(environment, planned, key, directory, transport, Nobody(), lambda: None, shared=shared)
    following = asyncio.create_task(node.follow())
    try:
        yield node
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await node.close()


async def test_a_host_is_asked_at_every_third_of_a_heartbeat_and_unknown_after_a_whole_one_without_a_word() -> None:
    async with followed(host := Host()) as node:
        await until(lambda: node.silent_since, "it to be unknown")
        assert node.silent_since is not None
        assert host.waits == [pytest.approx(HEARTBEAT_S / 3)] * 5
        assert node.silent_since - node.heard_at < LEAST_PATIENCE_S / 2, "which is many heartbeats"


async def test_an_answer_that_comes_bit_by_bit_for_longer_than_a_heartbeat_is_no_silence() -> None:
    async with followed(host := Host(drip_s=HEARTBEAT_S / 3)) as node:
        await until(lambda: node.silent_since or len(host.waits) == 5, "the next question")
        assert node.silent_since is None
