"""A preflight against agents that are well, late, old, hung or wrong: what is found, and that nobody is held up."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from dtagent.protocol.facts import HostFacts, PythonFacts, UserLimits
from dtagent.protocol.rpc import MAGIC, ErrorCode, to_wire
from dtagent.protocol.telemetry import GpuProcess, GpuSample, HostSample

from dttui import __version__
from dttui.errors import HostUnreachableError, PreflightError
from dttui.fleet.known_hardware import measured_links, record_links
from dttui.inventory.models import Inventory
from dttui.jobs.board import Board
from dttui.jobs.checks import Check, CheckStatus
from dttui.planning.cost.links import MeasuredLink, newest
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.preflight import preflight as preflight_run
from dttui.preflight import room
from dttui.preflight.nodes import CheckedHost
from dttui.preflight.preflight import Preflight
from dttui.spec.findings import warning
from dttui.spec.models import Checkpoint, GpuRequest, Job, Node, NodeResources, Recovery, ResourceDefaults, Run
from dttui.transport.base import Nobody
from tests.fake_transport import FakeHost, FakeProcess, FakeTransport
from tests.unit.seed_cluster import environment, host_facts, make_job

TORCH = PythonFacts("/py", "/py", "3.11.7", packages={"torch": "2.13.0"}, torch_cuda="12.8", nccl="2.27.3")
FACTS = host_facts(
    1, pythons=[TORCH], driver_version="570.1", shm_total_mib=64_000, limits=UserLimits(65536, None, None)
)
SAMPLE = HostSample(
    1, 0.0, 5.0, 0.1, gpus=[GpuSample(0, throttle_reasons=[], ecc_uncorrected=0, xid_count=0, processes=[])]
)
NAMES = ("a", "b", "c")
INVENTORY = Inventory(
    environments=tuple(environment(name, 1, python="/py", address=f"10.0.0.{i}") for i, name in enumerate(NAMES, 1))
)
JOB = make_job(*NAMES, run=Run(script="train.py", workdir="/srv"))
HELLO = {"version": 1, "hostname": "h", "pid": 1, "boot_id": "b", "time": 0.0}

Answers = Mapping[str, Any]
"""Method → its result, `None` for none at all, or a function that makes it of the params."""


class Agent:
    """Plays one agent. `answers` go before what a well one says."""

    def __init__(self, **answers: Any) -> None:
        self.asked: list[str] = []
        self.was_asked_to_reach = asyncio.Event()
        self.answers: dict[str, Any] = {
            "hello": {**HELLO, "agent_version": __version__},
            "ping": lambda _: {"time": time.time()},
            "facts": lambda _: to_wire(FACTS),
            "telemetry": lambda _: {"samples": [to_wire(SAMPLE)]},
            "paths": lambda params: {
                "paths": [{"path": path, "exists": True, "is_writable": True} for path in params["paths"]],
                "root": {"path": "/var/tmp", "exists": True, "free_mib": 70_000},
            },
            "listen": lambda _: {"port": 29517},
            "hush": lambda _: {"ended": True},
            "reach": lambda params: {
                "results": [
                    {
                        "outcome": "reached", "address": item["address"], "source": "10.0.0.9", "interface": "eth0",
                        "round_trip_s": 1e-4,
                    }
                    for item in params["targets"]
                ]
            },
            **answers,
        }  # fmt: skip

    async def play(self, process: FakeProcess) -> int:
        await process.stdout.write(MAGIC)
        while line := await process.stdin.readline():
            frame = json.loads(line)
            self.asked.append(frame["method"])
            if frame["method"] == "reach":
                self.was_asked_to_reach.set()
            answer = self.answers[frame["method"]]
            told = answer(frame.get("params", {})) if callable(answer) else answer
            if told is None:
                continue
            kind = "error" if isinstance(told, dict) and "code" in told else "result"
            await process.stdout.write(json.dumps({"id": frame["id"], kind: told}).encode() + b"\n")
        return 0


class Checking:
    """A preflight over fake hosts."""

    def __init__(self, job: Job = JOB, inventory: Inventory = INVENTORY, **agents: Agent | FakeHost) -> None:
        made = {name: agents.get(name, Agent()) for name in NAMES}
        hosts = {name: item if isinstance(item, FakeHost) else FakeHost(item.play) for name, item in made.items()}
        self.plan = plan(job, inventory)
        transport = FakeTransport(hosts)
        self.nodes = [
            CheckedHost(environment, planned, transport, Nobody())
            for planned in self.plan.nodes
            if (environment := inventory.find(planned.name)) is not None
        ]
        self._job, self._inventory = job, inventory

    async def run(self, *ignored: str) -> Board:
        preflight = Preflight(
            self.nodes,
            self.plan,
            self._inventory,
            self._plan_anew,
            ignored=frozenset(ignored),
        )
        try:
            return await asyncio.wait_for(preflight.run(), 20)
        finally:
            for node in self.nodes:
                await node.close()

    def _plan_anew(self, known: Inventory, facts: dict[str, HostFacts], links: Sequence[MeasuredLink]) -> Plan:
        assert threading.current_thread() is not threading.main_thread(), "it may look through many files"
        return plan(self._job, known, facts, links=newest(links), now=time.time())


def codes(board: Board) -> list[tuple[str, str]]:
    """Return code and subject of what is found, but for what the plan says of itself."""
    return [(item.code, item.subject) for item in board.findings if item not in (board.plan or board).findings]


def statuses(board: Board, check: Check) -> list[str]:
    return [board.rows[name][check].status.value for name in board.names]


def facts_with(**fields: Any) -> Callable[[Any], Any]:
    return lambda _: to_wire(replace(FACTS, **fields))


def python_with(**fields: Any) -> Callable[[Any], Any]:
    return facts_with(pythons=[replace(TORCH, **fields)])


async def test_well_hosts_pass_all_checks_and_the_plan_is_made_of_their_facts() -> None:
    agent = Agent()
    board = await Checking(a=agent).run()
    assert codes(board) == []
    for name in NAMES:
        row = board.rows[name]
        assert {check for check, cell in row.items() if cell.status is CheckStatus.NONE} == set()
        assert all(cell.status is CheckStatus.OK and cell.seconds is not None for cell in row.values()), row
    assert board.rows["b"][Check.MASTER].text == "eth0 0.1 ms"
    assert board.rows["a"][Check.GPUS].text == "1 of 1 free"
    assert board.plan is not None
    assert board.plan.backend == "nccl"
    board.raise_errors()
    assert agent.asked.count("listen") == agent.asked.count("hush") == 2


@pytest.mark.parametrize(
    ("needs", "what"),
    [
        ({"recovery": Recovery(on_node_failure="restart", self_fence_s=30)}, "recovery.self_fence_s"),
        ({"require_process_group": True}, "require_process_group"),
        ({"resources": ResourceDefaults(gpu=GpuRequest(ids=(0,)))}, "resources.gpu.ids"),
    ],
)
async def test_an_agent_too_old_for_what_the_job_needs_is_an_error_of_its_host_with_the_remedy(
    needs: dict[str, Any], what: str
) -> None:
    able = {**HELLO, "agent_version": __version__, "tells_groups": True, "fences_itself": True}
    able["takes_named_gpus"] = True
    wanted = make_job(*NAMES, **{"run": Run(script="train.py", workdir="/srv"), **needs})
    old = Agent(hello={**HELLO, "agent_version": __version__})
    board = await Checking(job=wanted, a=Agent(hello=able), b=old, c=Agent(hello=able)).run()
    (found,) = (item for item in board.findings if item.code == "agent-too-old")
    assert (found.severity.value, found.subject) == ("error", "b")
    assert found.message.startswith(f"b: its agent is too old for {what}")
    assert found.hint == "Upgrade it: dttui agents deploy b"
    assert board.rows["b"][Check.AGENT].status is CheckStatus.ERROR
    with pytest.raises(PreflightError, match="too old for"):
        board.raise_errors()


async def test_round_trips_are_kept_for_plans_to_come_and_leave_the_bandwidth_that_was_measured() -> None:
    record_links([MeasuredLink(kind="hosts", between=("a", "b"), bandwidth=1e9, round_trip_s=0.5, measured_at=1.0)])
    await Checking().run()
    kept = {link.between: (link.bandwidth, link.round_trip_s) for link in measured_links()}
    assert kept == {("a", "b"): (1e9, 1e-4), ("b", "c"): (None, 1e-4), ("c", "a"): (None, 1e-4)}


async def test_what_a_preflight_says_of_the_way_between_zones_is_what_it_has_just_measured() -> None:
    zones = {"a": "east", "b": "west", "c": "west"}
    known = tuple(item.model_copy(update={"zone": zones[item.name]}) for item in INVENTORY.environments)
    board = await Checking(inventory=Inventory(environments=known)).run()
    (told,) = (finding.message for finding in board.findings if finding.code == "cross-zone")
    assert "east ↔ west: 0.1 ms there and back" in told
    assert "measured just now" in told


@pytest.mark.usefixtures("unhurried")
async def test_a_host_that_does_not_answer_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight_run, "FACTS_TIMEOUT_S", 0.5)
    board = await Checking(b=Agent(facts=None)).run()
    assert ("unreachable", "b") in codes(board)
    assert "0.5 s" in board.unreachable["b"].message
    for name in ("a", "c"):
        assert all((cell.seconds or 0.0) < 0.4 for cell in board.rows[name].values())
    with pytest.raises(HostUnreachableError):
        board.raise_errors()


async def test_a_host_that_is_down_leaves_the_others_what_can_be_told_without_it() -> None:
    down = FakeHost(error=HostUnreachableError("a", "a: no answer", "Is it on?"))
    board = await Checking(a=down).run()
    assert codes(board) == [("unreachable", "a")]
    assert statuses(board, Check.REACH) == ["error", "ok", "ok"]
    assert statuses(board, Check.MASTER) == ["unknown"] * 3
    assert statuses(board, Check.PEERS) == ["unknown", "ok", "unknown"]
    assert statuses(board, Check.SOFTWARE) == ["unknown", "ok", "ok"]


@pytest.mark.usefixtures("unhurried")
async def test_a_check_that_hangs_is_unknown_and_says_after_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight_run, "PATHS_TIMEOUT_S", 0.3)
    board = await Checking(c=Agent(paths=None)).run()
    assert codes(board) == [("unchecked", "c")]
    assert "0.3 s" in board.rows["c"][Check.PATHS].text
    assert statuses(board, Check.PATHS) == ["ok", "ok", "unknown"]
    assert statuses(board, Check.ROOM) == ["ok", "ok", "unknown"]
    board.raise_errors()


async def test_an_older_agent_is_to_be_upgraded_for_what_it_cannot_check() -> None:
    unknown = {"code": int(ErrorCode.UNKNOWN_METHOD), "message": "no method"}
    old = Agent(paths=unknown, listen=unknown, reach=unknown, hello={**HELLO, "agent_version": "0.0.1"})
    board = await Checking(b=old).run()
    assert sorted(set(codes(board))) == [("agent-version", "b"), ("unchecked", "b")]
    assert statuses(board, Check.AGENT) == ["ok", "warning", "ok"]
    assert board.rows["b"][Check.MASTER].status is CheckStatus.UNKNOWN
    assert statuses(board, Check.SOFTWARE) == ["ok"] * 3
    assert all("agents deploy b" in item.hint for item in board.findings if item.code == "unchecked")


@pytest.mark.parametrize("nonsense", [{"time": "now"}, {}, {"time": None}])
async def test_an_agent_that_tells_no_time_costs_one_check(nonsense: dict[str, object]) -> None:
    board = await Checking(b=Agent(ping=nonsense)).run()
    assert codes(board) == [("unchecked", "b")]
    assert statuses(board, Check.CLOCK) == ["ok", "unknown", "ok"]


async def test_the_clock_that_is_off_is_the_one_that_differs_from_most() -> None:
    checking = Checking(c=Agent(ping=lambda _: {"time": time.time() + 120}))
    board = await checking.run()
    assert codes(board) == [("clock-skew", "c")]
    assert board.rows["c"][Check.CLOCK].text.startswith("+120.0 s ± ")
    assert [round(node.clock_offset_s) for node in checking.nodes] == [0, 0, 120]


async def test_versions_that_differ_are_a_table_of_most_and_others() -> None:
    board = await Checking(
        b=Agent(facts=python_with(packages={"torch": "2.12.1"}, nccl="2.26.2")),
        c=Agent(facts=facts_with(driver_version="550.9")),
    ).run()
    table = {item.item: (item.usual, item.usual_nodes, item.others) for item in board.drift}
    assert table == {
        "torch": ("2.13.0", ("a", "c"), {"2.12.1": ("b",)}),
        "NCCL": ("2.27.3", ("a", "c"), {"2.26.2": ("b",)}),
        "driver": ("570.1", ("a", "b"), {"550.9": ("c",)}),
    }
    assert codes(board) == [("nccl-drift", "NCCL"), ("drift", "torch"), ("drift", "driver")]
    with pytest.raises(PreflightError, match="NCCL"):
        board.raise_errors()


async def test_an_error_may_be_ignored_and_is_told_as_ignored() -> None:
    missing = Agent(facts=python_with(packages={}))
    board = await Checking(b=missing).run("package-missing")
    (finding,) = [item for item in board.findings if item.code == "package-missing"]
    assert finding.message.startswith("ignored: ")
    assert statuses(board, Check.SOFTWARE) == ["ok", "warning", "ok"]
    board.raise_errors()


async def test_what_is_wrong_on_all_hosts_alike_is_one_refusal_that_names_them() -> None:
    agents = {name: Agent(facts=python_with(packages={})) for name in NAMES}
    board = await Checking(JOB, INVENTORY, **agents).run()
    with pytest.raises(PreflightError) as refusal:
        board.raise_errors()
    assert str(refusal.value.message) == "on 3 nodes (a, b, c): /py has no torch"


async def test_what_nothing_can_start_without_is_not_ignored() -> None:
    board = await Checking(b=Agent(facts=python_with(error="not there"))).run("python-missing", "unreachable")
    with pytest.raises(PreflightError, match="not there"):
        board.raise_errors()


def taken(seq: int, is_taken: bool) -> dict[str, Any]:
    processes = [GpuProcess(4711, "li")] if is_taken else []
    gpus = [GpuSample(0, processes=processes, throttle_reasons=[], ecc_uncorrected=0, xid_count=0)]
    return {"samples": [to_wire(HostSample(seq, 0.0, 1.0, 0.1, gpus=gpus))]}


async def test_gpus_of_a_job_that_has_just_ended_are_waited_for() -> None:
    turns = iter(range(1, 100))

    def reading(_params: object) -> dict[str, Any]:
        seq = next(turns)
        return taken(seq, seq < 3)

    board = await Checking(b=Agent(telemetry=reading)).run()
    assert codes(board) == []
    assert board.rows["b"][Check.GPUS].text == "1 of 1 free"


async def test_gpus_that_stay_taken_are_an_error_that_names_who(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "ROOM_WAIT_S", 0.05)
    board = await Checking(b=Agent(telemetry=lambda _: taken(1, True))).run()
    assert codes(board) == [("gpus-taken", "b")]
    assert "li (pid 4711)" in board.errors[0].message


async def test_a_reach_without_a_result_is_a_failure_and_no_crash() -> None:
    board = await Checking(b=Agent(reach={"results": []})).run()
    assert ("master-unreachable", "b") in codes(board)


async def test_a_master_without_a_free_port_forbids_the_launch_and_the_rest_is_checked() -> None:
    def listen(params: dict[str, Any]) -> dict[str, Any]:
        refusal = {"code": int(ErrorCode.REFUSED), "message": "every port is taken"}
        return refusal if params.get("port_range") else {"port": 40_000}

    board = await Checking(a=Agent(listen=listen)).run("no-free-port")
    assert codes(board) == [("no-free-port", "a")]
    assert "port_range of a" in board.errors[0].hint
    assert statuses(board, Check.MASTER) == ["error", "unknown", "unknown"]
    assert statuses(board, Check.PEERS) == ["ok"] * 3
    with pytest.raises(PreflightError, match="29500 to 29999 are all taken"):
        board.raise_errors()


ALONE = make_job(Node(id="a", resources=NodeResources()), run=Run(script="train.py", workdir="/srv"))


async def test_a_job_of_one_node_only_looks_for_a_free_port() -> None:
    agent = Agent()
    board = await Checking(ALONE, a=agent).run()
    assert (board.rows["a"][Check.MASTER].status, board.rows["a"][Check.MASTER].text) == (CheckStatus.OK, "port 29517")
    assert board.rows["a"][Check.PEERS].status is CheckStatus.NONE
    assert codes(board) == []
    assert agent.asked.count("listen") == agent.asked.count("hush") == 1
    assert "reach" not in agent.asked


async def test_a_job_of_one_node_learns_before_its_start_that_every_port_is_taken() -> None:
    agent = Agent(listen={"code": int(ErrorCode.REFUSED), "message": "every port is taken"})
    board = await Checking(ALONE, a=agent).run()
    assert codes(board) == [("no-free-port", "a")]
    assert board.rows["a"][Check.MASTER].status is CheckStatus.ERROR


async def test_a_command_whose_program_or_file_no_host_has_is_refused_unless_that_is_ignored() -> None:
    run = Run(command=("python9", "train.py"), workdir="/srv", env={"PATH": "/opt/bin"})
    job = make_job(*NAMES, run=run, framework="command")
    asked: list[dict[str, Any]] = []

    def paths(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        there = [{"path": path, "exists": path != "/srv/train.py"} for path in params["paths"]]
        return {"paths": there, "missing_programs": [*params["programs"], "not asked for"]}

    board = await Checking(job, a=Agent(paths=paths)).run()
    assert (asked[0]["programs"], asked[0]["search_path"]) == (["python9"], "/opt/bin")
    assert codes(board) == [("command-missing", "a")] * 2
    assert [item.message for item in board.errors] == [
        "a: there is no program python9 on the PATH of jobs there",
        "a: there is no /srv/train.py, which run.command needs",
    ]
    assert (await Checking(job, a=Agent(paths=paths)).run("command-missing")).errors == ()


async def test_what_a_plan_warns_of_in_the_command_forbids_the_launch_unless_ignored() -> None:
    found = warning("command-missing", "run.command", "no train.py", "")

    def replan(known: Inventory, facts: Any, links: Any) -> Plan:
        made = plan(JOB, known, facts)
        return made.model_copy(update={"findings": (*made.findings, found)})

    for ignored, errors in (((), ["command-missing"]), (("command-missing",), [])):
        checking = Checking()
        preflight = Preflight(checking.nodes, checking.plan, INVENTORY, replan, ignored=frozenset(ignored))
        board = await asyncio.wait_for(preflight.run(), 20)
        assert [item.code for item in board.errors] == errors
        for node in checking.nodes:
            await node.close()


async def test_a_stop_in_the_middle_leaves_no_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(facts=None)
    checking = Checking(b=agent)
    preflight = Preflight(checking.nodes, checking.plan, INVENTORY, lambda known, facts, _: plan(JOB, known, facts))
    task = asyncio.create_task(preflight.run())
    await asyncio.wait_for(agent.was_asked_to_reach.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert agent.asked.count("hush") == agent.asked.count("listen") == 1
    for node in checking.nodes:
        await node.close()


async def test_what_a_checkpoint_took_before_tells_how_much_room_the_next_attempts_take() -> None:
    """Without a model in the job there is no estimate; known are the host on which one was seen, and the master's."""
    job = make_job(
        *NAMES, run=Run(script="train.py", workdir="/srv"), recovery=Recovery(checkpoint=Checkpoint(dir="/kept"))
    )

    def paths(params: Any) -> Any:
        return {"paths": [{"path": path, "exists": True, "free_mib": 2000} for path in params["paths"]]}

    for size, warned in ((400 << 20, []), (600 << 20, [("checkpoint-room", "a"), ("checkpoint-room", "b")])):
        checking = Checking(job, a=Agent(paths=paths), b=Agent(paths=paths), c=Agent(paths=paths))
        preflight = Preflight(
            checking.nodes,
            checking.plan,
            INVENTORY,
            lambda known, facts, _: plan(job, known, facts),
            checkpoint_bytes={"b": size},
        )
        board = await asyncio.wait_for(preflight.run(), 20)
        assert [item for item in codes(board) if item[0] == "checkpoint-room"] == warned
        for node in checking.nodes:
            await node.close()
