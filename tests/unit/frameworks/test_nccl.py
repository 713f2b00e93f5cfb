"""What NCCL and gloo are told on each node, and why: tables of jobs and hosts against variables and findings."""

from __future__ import annotations

from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.facts import HostFacts, PythonFacts
from dtagent.protocol.rdma import RdmaPort

from dttui.cli.plan_text import plan_text
from dttui.frameworks.parts.nccl import reason
from dttui.inventory.models import GpuResources, Inventory, Resources
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.preflight.software import judge_software
from dttui.spec.communication import AllReduce, Communication
from dttui.spec.models import Run
from tests.unit.seed_cluster import environment, host_facts, make_job

NODES = ("a", "b")
INVENTORY = Inventory(environments=tuple(environment(name, 1, python="/py") for name in NODES))
IB = (RdmaPort("mlx5_0", 1, "ACTIVE", "InfiniBand"), RdmaPort("mlx5_1", 1, "ACTIVE", "InfiniBand"))
DOWN = (RdmaPort("mlx5_0", 1, "DOWN", "InfiniBand"),)
ROCE = (RdmaPort("mlx5_2", 1, "ACTIVE", "Ethernet"),)
TWO_PORTS = (RdmaPort("mlx4_0", 1, "DOWN", "InfiniBand"), RdmaPort("mlx4_0", 2, "ACTIVE", "InfiniBand"))
HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"


def facts(rdma: tuple[RdmaPort, ...] | None, **packages: str) -> HostFacts:
    python = PythonFacts("/py", "/py", "3.11.7", packages=packages, nccl=packages.pop("nccl", None))
    return host_facts(1, rdma=None if rdma is None else list(rdma), pythons=[python])


def planned(
    *ports: tuple[RdmaPort, ...] | None, inventory: Inventory = INVENTORY, packages: dict[str, str] | None = None,
    **fields: Any,
) -> Plan:  # fmt: skip
    known = {name: facts(own, **(packages or {})) for name, own in zip(NODES, ports, strict=False)}
    return plan(make_job(*NODES, **fields), inventory, known)


def told(made: Plan, prefix: str) -> list[dict[str, str]]:
    """Return the variables of each node's last process whose names begin so."""
    found = [node.processes[-1].env for node in made.nodes]
    return [{name: value for name, value in env.items() if name.startswith(prefix)} for env in found]


@pytest.mark.parametrize(
    ("ports", "expected", "without"),
    [
        ((IB, IB), ["=mlx5_0,mlx5_1"] * 2, ""),
        ((IB, TWO_PORTS), ["=mlx5_0,mlx5_1", "=mlx4_0:2"], ""),
        ((ROCE, ROCE), ["=mlx5_2"] * 2, ""),
        (((*IB, *ROCE), IB), ["=mlx5_0,mlx5_1"] * 2, ""),
        (((*IB, *ROCE), ROCE), ["=mlx5_2"] * 2, ""),
        ((IB, ()), "off", "b has no active port of InfiniBand"),
        ((DOWN, IB), "off", "a has no active port of InfiniBand"),
        ((IB, ROCE), "off", "b has no active port of InfiniBand"),
        ((ROCE, ()), "off", "b has no active port of RoCE"),
        (((), ()), None, ""),
        ((DOWN, DOWN), None, ""),
        ((IB, None), None, ""),
        ((IB,), None, ""),
    ],
)
def test_nccl_gets_the_ports_that_all_nodes_can_use_or_none(
    ports: tuple[Any, ...], expected: list[str] | str | None, without: str
) -> None:
    made = planned(*ports)
    found = [finding.message for finding in made.findings if finding.code == "rdma-mixed"]
    if expected is None:
        assert told(made, "NCCL_IB") == [{}, {}]
    elif expected == "off":
        assert told(made, "NCCL_IB") == [{"NCCL_IB_DISABLE": "1"}] * 2
    else:
        assert told(made, "NCCL_IB") == [{"NCCL_IB_HCA": value} for value in expected]
    assert [message.partition(",")[0] for message in found] == ([without] if without else [])


def test_a_job_that_decides_about_the_ports_decides_alone() -> None:
    made = planned(IB, (), run=Run(script="t.py", env={"NCCL_IB_HCA": "=mlx5_7"}))
    assert told(made, "NCCL_IB") == [{"NCCL_IB_HCA": "=mlx5_7"}] * 2
    assert "rdma-mixed" not in {finding.code for finding in made.findings}


@pytest.mark.parametrize(
    ("fields", "expected", "codes"),
    [
        ({"algorithm": "ring"}, {"NCCL_ALGO": "allreduce:ring"}, set()),
        ({"algorithm": "tree"}, {"NCCL_ALGO": "allreduce:tree"}, set()),
        ({"buffer_size": 1 << 20}, {"NCCL_BUFFSIZE": "1048576"}, set()),
        ({"algorithm": "butterfly"}, {}, {"nccl-algorithm"}),
        ({"buffer_size": 1024}, {}, {"nccl-buffer"}),
        ({"buffer_size": 1 << 28}, {}, {"nccl-buffer"}),
        ({}, {}, set()),
    ],
)
def test_algorithm_and_buffer_are_passed_on_where_nccl_has_such(
    fields: dict[str, Any], expected: dict[str, str], codes: set[str]
) -> None:
    talk = Communication(allreduce=AllReduce(**fields))
    for framework in ("pytorch-ddp", "command"):
        run = Run(command=("x",)) if framework == "command" else Run(script="t.py")
        made = planned(communication=talk, framework=framework, run=run)
        (env, _second) = told(made, "NCCL_")
        assert {name: env[name] for name in env if name != "NCCL_SOCKET_IFNAME"} == expected
        assert {finding.code for finding in made.findings} & {"nccl-algorithm", "nccl-buffer"} == codes


@pytest.mark.parametrize(
    ("framework", "own"),
    [("tensorflow", {"NCCL_BUFFSIZE": "1048576"}), ("horovod", {"HOROVOD_FUSION_THRESHOLD": "1048576"})],
)
def test_nccl_is_told_alike_under_any_framework_but_what_is_a_buffer_of_the_frameworks_own(
    framework: str, own: dict[str, str]
) -> None:
    talk = Communication(allreduce=AllReduce(algorithm="ring", buffer_size=1 << 20))
    made = planned(IB, IB, communication=talk, framework=framework)
    env = made.nodes[1].processes[-1].env
    expected = {"NCCL_SOCKET_IFNAME": "=${INTERFACE}", "NCCL_IB_HCA": "=mlx5_0,mlx5_1", "NCCL_ALGO": "allreduce:ring"}
    names = {name for name in env if name.startswith("NCCL_") or name == "HOROVOD_FUSION_THRESHOLD"}
    assert {name: env[name] for name in names} == {**expected, **own}
    assert told(made, "TORCH_") == [{}, {}]
    assert not {finding.code for finding in made.findings} & {"nccl-algorithm", "nccl-buffer"}
    talk = Communication(allreduce=AllReduce(algorithm="butterfly", buffer_size=1024))
    found = {finding.code for finding in planned(communication=talk, framework=framework).findings}
    assert found & {"nccl-algorithm", "nccl-buffer"} == {
        "nccl-algorithm",
        *(["nccl-buffer"] if "NCCL_BUFFSIZE" in own else []),
    }


def test_torch_keeps_a_record_of_its_collectives_in_the_attempts_directory_by_the_names_it_knows() -> None:
    old, new = (
        told(planned(IB, IB, packages={"torch": release}), "TORCH_")[0] for release in ("2.5.1", "2.13.0+cu128")
    )
    assert old["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == new["TORCH_FR_DUMP_TEMP_FILE"] == "${DIRECTORY}/nccl_trace_rank_"
    assert old["TORCH_NCCL_TRACE_BUFFER_SIZE"] == new["TORCH_FR_BUFFER_SIZE"] == "2000"
    assert old.keys() & new.keys() == {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_DUMP_ON_TIMEOUT", HEARTBEAT}


def test_the_names_are_those_of_the_torch_that_is_installed() -> None:
    folder = Path(next(iter(find_spec("torch").submodule_search_locations)))  # type: ignore[union-attr,arg-type]  # there
    header = (folder / "include/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp").read_bytes()
    given = told(planned(IB, IB, packages={"torch": "2.13.0+cu128"}), "TORCH_")[0]
    with (folder / "lib/libtorch_cpu.so").open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as library:
        missing = [name for name in given if name.encode() not in header and library.find(name.encode()) < 0]
    assert missing == []


@pytest.mark.parametrize(("said", "seconds"), [(None, "480"), ("60s", "480"), ("20m", "1200")])
def test_no_rank_is_ended_for_waiting_as_long_as_the_job_lets_others_take(said: str | None, seconds: str) -> None:
    made = planned(communication=Communication(rendezvous_timeout=said))
    assert told(made, HEARTBEAT) == [{HEARTBEAT: seconds}] * 2


def test_where_gloo_is_used_nothing_is_said_of_nccl() -> None:
    simulated = Resources(gpu=GpuResources(count=1, type="A100", simulated=True))
    inventory = Inventory(environments=tuple(environment(name, resources=simulated) for name in NODES))
    talk = Communication(allreduce=AllReduce(algorithm="butterfly", buffer_size=1))
    made = planned(IB, (), inventory=inventory, communication=talk)
    assert told(made, "NCCL") == told(made, "TORCH") == [{}, {}]
    assert told(made, "GLOO") == [{"GLOO_SOCKET_IFNAME": "${INTERFACE}"}] * 2
    assert not {finding.code for finding in made.findings} & {"nccl-algorithm", "nccl-buffer", "rdma-mixed"}


@pytest.mark.parametrize(
    ("nccl", "algorithm", "codes"),
    [
        ("2.21.5", "ring", ["nccl-too-old"]),
        ("2.24.3", "ring", []),
        (None, "ring", []),
        ("2.21.5", None, []),
        ("2.21.5", "butterfly", []),
    ],
)
def test_a_preflight_finds_an_nccl_that_takes_no_algorithm_of_a_collective(
    nccl: str | None, algorithm: Any, codes: list[str]
) -> None:
    talk = Communication(allreduce=AllReduce(algorithm=algorithm))
    made = planned(communication=talk)
    packages = {"torch": "2.6.0", **({"nccl": nccl} if nccl else {})}
    judged = judge_software(made, made.nodes[0], facts(IB, **packages))
    assert [finding.code for finding in judged.findings] == codes
    if codes:
        assert "2.21.5" in judged.findings[0].message
        assert "communication.allreduce.algorithm" in judged.findings[0].hint


@pytest.mark.parametrize(
    ("name", "value", "given", "expected"),
    [
        ("NCCL_SOCKET_IFNAME", "=${INTERFACE}", (), "the interface that leads to the master"),
        ("GLOO_SOCKET_IFNAME", "ib0", (), "network.interface"),
        ("NCCL_BUFFSIZE", "1", (), "communication.allreduce.buffer_size, or what a long link holds at once"),
        ("NCCL_BUFFSIZE", "1048576", ("NCCL_BUFFSIZE",), "run.env"),
        ("DTTUI_NODE_RANK", "0", (), ""),
    ],
)
def test_each_variable_says_where_it_comes_from(name: str, value: str, given: tuple[str, ...], expected: str) -> None:
    assert reason(name, value, given) == expected


def test_a_plan_shows_the_variables_once_and_apart_where_nodes_differ() -> None:
    made = planned(IB, TWO_PORTS, run=Run(script="t.py", env={"OMP_NUM_THREADS": "4"}))
    lines = [line.strip() for line in plan_text(made).splitlines()]
    why = "the active ports of the kind that all nodes have"
    assert f"a: NCCL_IB_HCA==mlx5_0,mlx5_1  # {why}" in lines
    assert f"b: NCCL_IB_HCA==mlx4_0:2  # {why}" in lines
    assert lines.count("OMP_NUM_THREADS=4  # run.env") == 1
    assert lines.count("NCCL_SOCKET_IFNAME==${INTERFACE}  # the interface that leads to the master") == 1
    assert not any(line.startswith("DTTUI_") for line in lines)


@pytest.mark.parametrize("framework", ["pytorch-ddp", "pytorch-fsdp", "deepspeed", "command", "horovod", "tensorflow"])
def test_accelerate_is_told_to_distribute_where_a_slot_is_no_gpu(framework: str) -> None:
    run = {"command": ("python", "t.py")} if framework == "command" else {"script": "/w/t.py"}
    resources = Resources(gpu=GpuResources(count=1, simulated=True))
    simulated = environment("b", 1).model_copy(update={"resources": resources})
    mixed = Inventory(environments=(environment("a", 1), simulated))
    expected = [] if framework in ("horovod", "tensorflow") else [{"ACCELERATE_USE_CPU": "true"}] * 2

    def of(inventory: Inventory, **env: str) -> list[dict[str, str]]:
        made = planned((), (), inventory=inventory, framework=framework, run=Run(**run, env=env))
        return [item for item in told(made, "ACCELERATE") if item]

    assert of(mixed) == expected
    assert of(mixed, ACCELERATE_USE_CPU="no") == [{"ACCELERATE_USE_CPU": "no"}] * 2
    uses_deepspeed = {"ACCELERATE_USE_DEEPSPEED": "true"}
    assert of(mixed, **uses_deepspeed) == [uses_deepspeed] * 2, "told so, it would use no DeepSpeed"
    assert of(INVENTORY) == []
