"""Plans of a thousand nodes: what nodes share is held and sent once, and who only lists jobs reads none of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dtagent.calls import decode_params
from dtagent.daemon.greeting import greet
from dtagent.daemon.unpacking import unpacked
from dtagent.protocol.alike import fold, unfold
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.greeting import HelloRequest
from dtagent.protocol.jobs import NodeState, NodeStatus, PackedStartRequest, StartRequest
from dtagent.protocol.preparation import PrepareReply
from dtagent.protocol.rpc import MAGIC, RequestReader, encode, to_wire
from hypothesis import given
from hypothesis import strategies as st

from dttui import jobs
from dttui.engine.attempt import Attempt
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.context import JobContext
from dttui.engine.recovered import RecoveredState
from dttui.engine.start import GangStart
from dttui.files import write_atomic
from dttui.frameworks.bundle import IN_FULL
from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.jobs.event_log import EventLog
from dttui.planning.binding import bind
from dttui.planning.models import Bindings, BoundPlan, NodeBinding, Plan, PlannedNode
from dttui.planning.planner import plan
from dttui.spec.models import Cluster, DataParallel, Job, Model, Node, Run, Strategy
from dttui.transport.base import Nobody
from tests.fake_transport import FakeHost, FakeProcess, FakeTransport

FRAMEWORKS = ("pytorch-ddp", "pytorch-fsdp", "deepspeed", "horovod", "megatron-lm", "tensorflow", "command")
MOST_PLAN_BYTES = 3_000_000
MOST_SENT_BYTES = 15_000_000
MOST_STRING_BYTES = 128 * 1024
"""Of a variable or an argument, its end included, that Linux starts a process with."""


def job_of(count: int, framework: str, gpus: int = 8) -> tuple[Job, Inventory]:
    names = [f"gpu{index:04}" for index in range(count)]
    resources = Resources(gpu=GpuResources(count=gpus, type="A100", memory=80 * 10**9))
    environments = tuple(
        # As addresses of a large network are: no two follow each other.
        Environment(name=name, host=f"10.{index * 37 % 251}.{index * 101 % 241}.{index * 7 % 250}", resources=resources)
        for index, name in enumerate(names)
    )
    run = Run(command=("python3", "train.py")) if framework == "command" else Run(script="/opt/train.py")
    document = Job(
        name="large",
        framework=framework,
        run=run,
        dataset="none",
        cluster=Cluster(nodes=tuple(Node(id=name) for name in names)),
        model=Model(layers=24, hidden_size=2048, heads=16, seq_length=2048, vocab_size=51200),
        strategy=Strategy(data_parallel=DataParallel(batch_size=count * gpus)),
    )
    return document, Inventory(environments=environments)


def bindings_of(made: Plan) -> Bindings:
    root = "/var/tmp/dtagent-1000/attempts/large-1122-120000-abcd/0"
    nodes = {
        node.name: NodeBinding(
            directory=root,
            payload=f"{root}/payload",
            python="/opt/conda/bin/python3",
            interface="eth0",
            gpu_ids=tuple(range(node.slots)),
            port=29500 + node.node_rank * 7 % 500,
        )
        for node in made.nodes
    }
    return Bindings(job_id="large-1122-120000-abcd", attempt=0, master_port=29500, nodes=nodes)


# One of each way in which ranks are told of each other.
@pytest.mark.parametrize("framework", ["pytorch-ddp", "horovod", "tensorflow", "command"])
def test_a_plan_of_a_thousand_nodes_stays_below_three_megabytes_and_grows_as_they_do(framework: str) -> None:
    sizes = []
    for count in (250, 1000):
        made = plan(*job_of(count, framework, gpus=4))
        assert made.errors == ()
        bound = bind(made, bindings_of(made))
        sizes.append((len(made.model_dump_json(indent=2)), len(bound.model_dump_json(indent=2))))
    assert max(sizes[1]) < MOST_PLAN_BYTES
    assert sizes[1][0] < 4.4 * sizes[0][0]
    assert sizes[1][1] < 4.4 * sizes[0][1]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_plan_that_was_written_reads_as_it_was_and_so_does_one_of_an_earlier_version(framework: str) -> None:
    made = plan(*job_of(20, framework))
    bound = bind(made, bindings_of(made))
    for document in (made, bound):
        kind = type(document)
        for indent in (None, 2):
            assert kind.model_validate_json(document.model_dump_json(indent=indent)) == document
        earlier = kind.model_validate(document.model_dump(mode="json", context=IN_FULL))
        assert in_full(earlier) == in_full(document)
    everything = in_full(bound)["plan"]["nodes"]
    assert [node["address"] for node in everything] == [node.address for node in bound.plan.nodes]
    assert [file["text"] for file in everything[7]["files"]] == [file.text for file in bound.plan.nodes[7].files]


def test_what_is_damaged_of_a_plan_is_no_plan() -> None:
    document = json.loads(plan(*job_of(3, "pytorch-ddp")).model_dump_json())
    for nodes in ({}, {**document["nodes"], "rows": [[0]]}, {**document["nodes"], "kinds": [5]}, {"rows": [[1]]}):
        with pytest.raises(ValueError, match=r"nodes|fold|row"):
            Plan.model_validate({**document, "nodes": nodes})


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.text(min_size=120, max_size=130),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), _values, max_size=3), max_size=5))
def test_documents_that_were_folded_unfold_to_the_same(documents: list[dict[str, Any]]) -> None:
    read = unfold(json.loads(json.dumps(fold(documents))))
    assert read == documents
    assert json.dumps(read) == json.dumps(documents)  # True is not 1, and keys keep their order.


def in_full(document: Plan | BoundPlan) -> dict[str, Any]:
    return document.model_dump(mode="json", context=IN_FULL)


@pytest.mark.parametrize("framework", ["pytorch-ddp", "horovod", "tensorflow", "command"])
def test_no_process_of_thousands_of_nodes_gets_a_variable_that_linux_refuses(framework: str) -> None:
    made = plan(*job_of(2500, framework, gpus=1))
    for node in (made.nodes[0], made.nodes[-1]):
        for process in node.processes:
            assert max(len(f"{name}={value}") for name, value in process.env.items()) < MOST_STRING_BYTES / 2
            assert max(map(len, process.argv)) < MOST_STRING_BYTES / 2
    addresses = [node.address for node in made.nodes]
    for node in made.nodes[::800]:
        env = node.processes[0].env
        assert "DTTUI_NODE_ADDRESSES" not in env
        assert env["DTTUI_NODE_ADDRESSES_FILE"] == "${DIRECTORY}/node_addresses.txt"
        (text,) = (file.text for file in node.files if file.path == "node_addresses.txt")
        assert text.splitlines() == addresses


@pytest.mark.parametrize(("count", "name"), [(1000, "DTTUI_NODE_ADDRESSES"), (1001, "DTTUI_NODE_ADDRESSES_FILE")])
def test_up_to_a_thousand_addresses_are_a_variable_and_more_are_a_file(count: int, name: str) -> None:
    node = plan(*job_of(count, "pytorch-ddp", gpus=1)).nodes[-1]
    assert [item for item in node.processes[0].env if item.startswith("DTTUI_NODE_ADDRESSES")] == [name]
    assert ("node_addresses.txt" in [file.path for file in node.files]) == (count > 1000)


def test_long_names_go_by_a_file_although_they_are_few() -> None:
    job, inventory = job_of(400, "pytorch-ddp", gpus=1)
    long = tuple(
        item.model_copy(update={"address": f"{item.name}.{'x' * 60}.{'y' * 60}.{'z' * 60}.example.org"})
        for item in inventory.environments
    )
    env = plan(job, Inventory(environments=long)).nodes[0].processes[0].env
    assert "DTTUI_NODE_ADDRESSES" not in env
    assert "DTTUI_NODE_ADDRESSES_FILE" in env


class Agents:
    """Agents that prepare and start whatever they are asked to, with what came over their pipes counted.

    Args:
        is_old: whether they take nothing packed.
    """

    def __init__(self, *, is_old: bool = False) -> None:
        self.is_old = is_old
        self.received: dict[str, int] = {}
        self._keys: dict[str, AttemptKey] = {}
        self._starts: dict[str, tuple[str, dict[str, Any], bytes]] = {}
        self._root = "/var/tmp/dtagent-1000/attempts/large/0"

    async def play(self, process: FakeProcess) -> int:
        name = process.environment.name
        await process.stdout.write(MAGIC)
        reader = RequestReader()
        while data := await process.stdin.read():
            self.received[name] = self.received.get(name, 0) + len(data)
            for line, brought in reader.feed(data):
                frame = json.loads(line)
                reply = await self._answer(name, frame["method"], frame["params"], brought)
                await process.stdout.write(encode({"jsonrpc": "2.0", "id": frame["id"], "result": to_wire(reply)}))
        return 0

    async def _answer(self, name: str, method: str, params: dict[str, Any], brought: bytes) -> object:
        if method == "hello":
            reply = to_wire(await greet(HelloRequest(**params)))
            return {key: value for key, value in reply.items() if not (self.is_old and key == "unpacks")}
        if method == "prepare":
            self._keys[name] = AttemptKey(**params["key"])
            port = 29500 + params["node_rank"] * 7 % 500
            python, gpus = "/opt/conda/bin/python3", list(range(params["cuda_slots"]))
            return PrepareReply(
                self._root, python, f"{self._root}/payload", interface="eth0", gpu_ids=gpus, master_port=port
            )
        if method in ("start", "start_packed"):
            self._starts[name] = method, params, brought
            return NodeStatus(self._keys[name], params.get("node_rank", 0), NodeState.RUNNING)
        return {}

    def started(self, name: str) -> StartRequest:
        """Return what a node was asked to start, as its agent reads it."""
        method, params, brought = self._starts[name]
        if method == "start":
            request: StartRequest = decode_params("start", StartRequest, params)
            return request
        return unpacked(decode_params("start_packed", PackedStartRequest, {**params, "data": brought}))


async def start(made: Plan, inventory: Inventory, agents: Agents, base: Path) -> BoundPlan:
    directory = jobs.create("large")
    log = EventLog(directory.events)
    transport = FakeTransport({item.name: FakeHost(agents.play) for item in inventory.environments})
    secrets = {"TOKEN": "s3cret"}
    gang = Attempt(
        JobContext(
            directory,
            log,
            transport,
            Nobody(),
            inventory=inventory,
            replan=lambda *_: made,
            base=base,
            secrets=secrets,
        ),
        RecoveredState.new(made),
    )
    nodes = gang.nodes
    try:
        await asyncio.gather(*(node.connect() for node in nodes))
        return await GangStart(directory, AttemptLog(log, 0), nodes, made, base, secrets).run(gang.unless_stopped)
    finally:
        await asyncio.gather(*(node.close() for node in nodes))


@pytest.mark.parametrize("framework", ["pytorch-ddp", "tensorflow"])
async def test_a_start_on_a_thousand_nodes_sends_fifteen_kilobytes_to_each_at_most(
    framework: str, tmp_path: Path
) -> None:
    job, inventory = job_of(1000, framework, gpus=1)
    made = plan(job, inventory)
    agents = Agents()
    bound = await start(made, inventory, agents, tmp_path)
    assert sum(agents.received.values()) < MOST_SENT_BYTES, agents.received
    for node in bound.plan.nodes[::97]:
        assert_is_started_as_planned(agents.started(node.name), node)


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_an_older_agent_is_told_all_by_itself_and_a_newer_one_the_same(framework: str, tmp_path: Path) -> None:
    job, inventory = job_of(5, framework)
    made = plan(job, inventory)
    told = []
    for is_old in (True, False):
        agents = Agents(is_old=is_old)
        bound = await start(made, inventory, agents, tmp_path)
        for node in bound.plan.nodes:
            assert_is_started_as_planned(agents.started(node.name), node)
            assert agents.started(node.name).secrets == {"TOKEN": "s3cret"}
        starts = {node.name: agents.started(node.name) for node in bound.plan.nodes}
        told.append({name: to_wire(item)["processes"][0]["argv"] for name, item in starts.items()})
    assert told[0] == told[1]


def assert_is_started_as_planned(request: StartRequest, node: PlannedNode) -> None:
    assert request.node_rank == node.node_rank
    assert request.ranks == list(node.ranks)
    assert [(item.path, item.text) for item in request.files] == [(item.path, item.text) for item in node.files]
    for asked, planned in zip(request.processes, node.processes, strict=True):
        assert (asked.name, asked.argv, asked.cwd, asked.env) == (
            planned.name,
            list(planned.argv),
            planned.cwd,
            planned.env,
        )


@pytest.mark.parametrize("is_earlier", [False, True])
def test_a_list_of_jobs_with_thousands_of_nodes_takes_little_memory(is_earlier: bool) -> None:
    made = plan(*job_of(300 if is_earlier else 1000, "pytorch-ddp"))
    directory = jobs.create("large")
    if is_earlier:  # One of 300 nodes was 11 MB; the same again makes the 100 MB of a thousand.
        document = made.model_dump(mode="json", context=IN_FULL)
        document["nodes"] *= 4
        text = json.dumps(document, indent=2)
        assert len(text) > 30_000_000
    else:
        text = made.model_dump_json(indent=2)
    write_atomic(directory.plan, text)
    summary = jobs.summarize(directory)
    assert (summary.name, summary.framework) == ("large", "pytorch-ddp")
    assert (summary.nodes, summary.world_size) == (len(made.nodes), made.world_size)
    code = (
        "from dttui.cli import main\ntry: main(['ps', '--all', '--output', 'json'])\n"
        "finally: print(open('/proc/self/status').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "large" in done.stdout
    peak_kib = int(done.stdout.partition("VmHWM:")[2].split()[0])
    assert peak_kib < 60 * 1024
