"""Horovod's bundle: where each rank stands, how they meet, what is set of it, and what does not go with it."""

from __future__ import annotations

import pytest

from dttui.inventory import Inventory
from dttui.planning.models import Bindings, BoundPlan, NodeBinding, Plan, PlannedNode, PlannedProcess
from dttui.planning.planner import bind, plan
from dttui.spec.communication import AllReduce
from dttui.spec.findings import Severity
from dttui.spec.models import Communication, Node, Run
from tests.unit.seed_cluster import SEED, environment, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
"""Two, four and eight GPUs."""
MASTER = "192.168.1.10"
AWAIT = ("${PYTHON}", "${PAYLOAD}/horovod_rendezvous.py", "await", "${PYTHON}", "${PAYLOAD}/rank.py")


def horovod(*keys: str, **fields: object) -> Plan:
    return plan(make_job(*keys, framework="horovod", **fields), SEED)


def nodes_of(*keys: str, **fields: object) -> tuple[PlannedNode, ...]:
    made = horovod(*keys, **fields)
    assert made.errors == ()
    return made.nodes


def ranks_of(node: PlannedNode) -> list[PlannedProcess]:
    return [item for item in node.processes if not item.is_service]


def standing(process: PlannedProcess) -> tuple[str, ...]:
    names = ("HOSTNAME", "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    return tuple(process.env[f"HOROVOD_{name}"] for name in names)


def test_every_slot_is_a_process_that_knows_its_place_also_among_unequal_nodes() -> None:
    nodes = nodes_of(B, A, C)
    processes = [process for node in nodes for process in ranks_of(node)]
    assert [process.rank for process in processes] == list(range(14))
    assert [process.name for process in processes] == [str(rank) for rank in range(14)]
    assert [standing(process) for process in processes] == [
        ("node0", "0", "14", "0", "4", "0", "3"),
        ("node0", "1", "14", "1", "4", "0", "3"),
        ("node0", "2", "14", "2", "4", "0", "2"),
        ("node0", "3", "14", "3", "4", "0", "2"),
        ("node1", "4", "14", "0", "2", "1", "3"),
        ("node1", "5", "14", "1", "2", "1", "3"),
        ("node2", "6", "14", "0", "8", "2", "3"),
        ("node2", "7", "14", "1", "8", "2", "3"),
        ("node2", "8", "14", "2", "8", "1", "2"),
        ("node2", "9", "14", "3", "8", "1", "2"),
        ("node2", "10", "14", "4", "8", "0", "1"),
        ("node2", "11", "14", "5", "8", "0", "1"),
        ("node2", "12", "14", "6", "8", "0", "1"),
        ("node2", "13", "14", "7", "8", "0", "1"),
    ]


def test_over_mpi_one_mpirun_starts_the_ranks_of_one_host_and_none_of_several() -> None:
    over_mpi = Communication(protocol="MPI")
    made = horovod(B, communication=over_mpi, run=Run(script="train.py", args=("--steps", "3")))
    assert made.errors == ()
    (launcher,) = made.nodes[0].processes
    program = ("${PYTHON}", "${PAYLOAD}/mpi_launch.py", "4", "${PAYLOAD}/rank.py", "train.py", "--steps", "3")
    assert (launcher.name, launcher.rank, launcher.argv) == ("launcher", None, program)
    assert {launcher.env[f"HOROVOD_{name}"] for name in ("CONTROLLER", "CPU_OPERATIONS")} == {"mpi"}
    assert "HOROVOD_RANK" not in launcher.env
    assert made.nodes[0].ranks == (0, 1, 2, 3)
    (refused,) = horovod(A, B, communication=over_mpi).errors
    assert (refused.code, refused.subject) == ("mpi", "communication.protocol")
    assert "by ssh" in refused.message
    assert "Horovod runs over Gloo on any number of hosts" in refused.hint


def test_ranks_wait_for_the_rendezvous_that_only_the_master_serves() -> None:
    run = Run(script="train.py", args=("--steps", "3"), prefix=("numactl", "--localalloc"))
    master, worker = nodes_of(A, B, run=run)
    *ranks, service = master.processes
    assert not any(item.is_service for item in (*ranks, *worker.processes))
    assert (service.name, service.is_service, service.rank) == ("service-rendezvous", True, None)
    assert service.argv == (*AWAIT[:2], "serve", MASTER, "${MASTER_PORT}", "6")
    assert worker.processes[1].argv == ("numactl", "--localalloc", *AWAIT, "train.py", "--steps", "3")
    env = worker.processes[1].env
    assert {name: env[name] for name in env if "GLOO" in name or "OPERATIONS" in name or "CONTROLLER" in name} == {
        "GLOO_SOCKET_IFNAME": "${INTERFACE}",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": MASTER,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "${MASTER_PORT}",
        "HOROVOD_GLOO_IFACE": "${INTERFACE}",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "300",
    }
    assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == ("3", "1", "6", "4")


def bound(interface: str | None) -> BoundPlan:
    made = horovod(A)
    binding = NodeBinding(directory="/d", payload="/p", python="/py", interface=interface, gpu_ids=(0, 1))
    return bind(made, Bindings(job_id="j", attempt=0, master_port=29500, nodes={A: binding}))


def test_the_interface_is_left_out_where_the_host_cannot_tell_it() -> None:
    known, unknown = (bound(interface).plan.nodes[0].processes[0].env for interface in ("eth1", None))
    assert known["HOROVOD_GLOO_IFACE"] == "eth1"
    assert "HOROVOD_GLOO_IFACE" not in unknown


def test_the_interface_of_the_job_wins() -> None:
    made = make_job(A, framework="horovod")
    (node,) = made.cluster.nodes
    named = Node.model_validate({**node.model_dump(exclude_none=True), "network": {"interface": "ib0"}}, strict=False)
    job = made.model_copy(update={"cluster": made.cluster.model_copy(update={"nodes": (named,)})})
    assert plan(job, SEED).nodes[0].processes[0].env["HOROVOD_GLOO_IFACE"] == "ib0"


def test_options_become_the_variables_that_horovod_reads() -> None:
    options = {
        "fusion_threshold": 0,
        "cycle_time_ms": 3.5,
        "timeline": "timeline.json",
        "timeline_mark_cycles": True,
        "autotune": True,
        "autotune_log": "tuning.csv",
    }
    env = nodes_of(A, framework_options=options)[0].processes[0].env
    plain = nodes_of(A)[0].processes[0].env
    assert {name: env[name] for name in env.keys() - plain.keys()} == {
        "HOROVOD_FUSION_THRESHOLD": "0",
        "HOROVOD_CYCLE_TIME": "3.5",
        "HOROVOD_TIMELINE": "timeline.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "tuning.csv",
    }


def test_the_bucket_of_the_job_is_the_fusion_threshold_and_two_that_differ_are_an_error() -> None:
    communication = Communication(allreduce=AllReduce(buffer_size=1 << 20))
    assert nodes_of(A, communication=communication)[0].processes[0].env["HOROVOD_FUSION_THRESHOLD"] == "1048576"
    (finding,) = horovod(A, communication=communication, framework_options={"fusion_threshold": 5}).errors
    assert (finding.code, finding.subject) == ("framework-option", "framework_options.fusion_threshold")
    assert not horovod(A, communication=communication, framework_options={"fusion_threshold": 1 << 20}).errors


@pytest.mark.parametrize(("limit", "shutdown", "look"), [("5s", "5", "1"), ("90s", "90", "9"), ("1h", "3600", "60")])
def test_over_mpi_horovod_ends_where_a_rank_comes_to_no_collective_for_so_long_and_looks_often_enough(
    limit: str, shutdown: str, look: str
) -> None:
    over_mpi, over_gloo = (
        horovod(A, communication=Communication.model_validate({"collective_timeout": limit, "protocol": protocol}))
        for protocol in ("MPI", None)
    )
    env = over_mpi.nodes[0].processes[0].env
    assert (env["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"], env["HOROVOD_STALL_CHECK_TIME_SECONDS"]) == (shutdown, look)
    assert not any("STALL" in name for name in over_gloo.nodes[0].processes[0].env)
    notes = [
        [item.hint for item in made.findings if item.code == "collective-timeout"] for made in (over_mpi, over_gloo)
    ]
    assert notes == [[], ["Write recovery.hang_s and hang_first_s, which notice a job in which nothing goes on."]]


@pytest.mark.parametrize(
    ("options", "where", "words"),
    [
        ({"cycle_time": 1}, "cycle_time", "cycle_time_ms"),
        ({"cycle_time_ms": 0}, "cycle_time_ms", "above 0"),
        ({"fusion_threshold": -1}, "fusion_threshold", "0"),
        ({"autotune": "yes"}, "autotune", "true or false"),
        ({"timeline": "a\0b"}, "timeline", "NUL"),
    ],
)
def test_wrong_options_are_named_with_what_would_be_right(options: dict[str, object], where: str, words: str) -> None:
    (finding,) = horovod(A, framework_options=options).errors
    assert (finding.code, finding.subject) == ("framework-option", f"framework_options.{where}")
    assert words in f"{finding.message} {finding.hint}"


def test_the_hosts_are_written_as_horovodrun_takes_them_each_address_once() -> None:
    def file_of(inventory: Inventory) -> str:
        node = plan(make_job("a", "b", "c", framework="horovod"), inventory).nodes[1]
        return next(file.text for file in node.files if file.path == "horovod_hosts.txt")

    apart = Inventory(
        environments=(environment("a", 2, host="h1"), environment("b", 4, host="h2"), environment("c", 1))
    )
    assert file_of(apart) == f"h1:2,h2:4,{apart.environments[2].host}:1\n"
    same = Inventory(environments=tuple(environment(name, 2, host="h1") for name in "abc"))
    assert file_of(same) == "h1:6\n"


def test_a_master_with_an_ipv6_address_is_refused_since_horovods_client_knows_none() -> None:
    inventory = Inventory(environments=(environment("a", 1, address="fd00::1"), environment("b", 1)))
    found = {item.code for item in plan(make_job("a", "b", framework="horovod"), inventory).errors}
    assert found == {"horovod-ipv6"}


def test_commands_warm_starts_and_the_places_of_ranks_are_no_matter_of_the_job() -> None:
    def subjects(run: Run) -> list[str]:
        return [finding.subject for finding in horovod(A, run=run).errors]

    assert subjects(Run(command=("train",))) == ["run.command"]
    assert subjects(Run(script="t.py", warm_start=True)) == ["run.warm_start"]
    env = {"HOROVOD_RANK": "1", "HOROVOD_LOG_LEVEL": "debug", "HOROVOD_GLOO_RENDEZVOUS_PORT": "80"}
    assert subjects(Run(script="t.py", env=env)) == ["run.env.HOROVOD_GLOO_RENDEZVOUS_PORT", "run.env.HOROVOD_RANK"]


@pytest.mark.parametrize(
    ("ranks", "limit", "severity"),
    [
        (304, None, None),
        (312, None, Severity.INFO),
        (688, None, Severity.INFO),
        (696, None, Severity.WARNING),
        (696, "10m", Severity.INFO),
        (304, "30s", Severity.WARNING),
    ],
)
def test_a_meeting_of_so_many_ranks_that_it_takes_long_is_told(
    ranks: int, limit: str | None, severity: Severity | None
) -> None:
    names = [f"n{index}" for index in range(ranks // 8)]
    inventory = Inventory(environments=tuple(environment(name, 8) for name in names))
    made = plan(make_job(*names, framework="horovod", communication=Communication(rendezvous_timeout=limit)), inventory)
    found = [item for item in made.findings if item.code == "horovod-meeting"]
    assert [item.severity for item in found] == ([] if severity is None else [severity])
    assert all("communication.rendezvous_timeout" in item.hint for item in found if severity is Severity.WARNING)
    if ranks == 312:
        assert found[0].message.startswith("312 ranks ask Horovod's rendezvous about 243,360 times for each other: ")
        assert found[0].message.endswith("about 61 s")
