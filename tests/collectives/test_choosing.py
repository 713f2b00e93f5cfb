"""By which algorithm an all-reduce goes where none is named: by α and β of the links, and by who is on which host."""

from __future__ import annotations

import json
import operator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dtagent.payload.collectives.choosing import SMALL_BYTES, KnownLinks, all_reduce_seconds, usual_algorithm
from dtagent.payload.collectives.clock import NetworkLink, simulate
from dtagent.payload.collectives.schedules import Collective, even_cuts, schedule_of

from dttui.compose.bench_report import MARK, make_report, measured_by
from dttui.frameworks.parts.environment import CONFIG_FILE
from dttui.inventory.models import GpuResources, Inventory, Resources
from dttui.planning.cost import collectives as formulas
from dttui.planning.cost.hardware import Interconnect
from dttui.planning.cost.links import MeasuredLink, newest
from dttui.planning.planner import plan
from dttui.spec.models import Cluster, GpuRequest, Node, NodeResources
from tests.gloo import LEAVES
from tests.unit.seed_cluster import GB, environment, make_job

FAST, SLOW, FAR = NetworkLink(2e-5, 4e9), NetworkLink(1e-4, 1.25e8), NetworkLink(2e-2, 1.25e8)
MIB = 1 << 20
TWO_BY_TWO = [[0, 1], [2, 3]]
usual = partial(usual_algorithm, Collective.ALL_REDUCE)


def test_without_alpha_and_beta_the_size_alone_decides() -> None:
    assert [usual(4, size) for size in (SMALL_BYTES, SMALL_BYTES + 4)] == ["tree", "ring"]
    assert usual(2, 8) == "ring"
    assert usual(4, 64 * MIB, TWO_BY_TWO) == "ring"  # What is inside a host may be as slow.
    assert usual_algorithm(Collective.BROADCAST, 4, MIB, TWO_BY_TWO, KnownLinks(SLOW, FAST)) == "tree"


def test_the_same_size_goes_another_way_where_the_link_is_another() -> None:
    near, far = KnownLinks(SLOW), KnownLinks(FAR)
    assert usual(6, MIB // 2, None, near) == "ring"
    assert usual(6, MIB // 2, None, far) == "tree"
    assert usual(4, MIB, None, near) == "butterfly"  # Of four hosts with a rank each.
    assert usual(4, 64 * MIB, None, near) == "ring"  # In segments.


def test_two_hosts_of_two_ranks_reduce_inside_first_where_less_comes_through_between_them() -> None:
    size = 4 * MIB
    assert usual(4, size, TWO_BY_TWO, KnownLinks(SLOW, FAST)) == "hierarchical"
    assert usual(4, size, TWO_BY_TWO, KnownLinks(FAST, FAST)) == "ring"
    assert usual(4, size, TWO_BY_TWO, KnownLinks(SLOW, SLOW)) == "ring"
    assert usual(4, size, TWO_BY_TWO, KnownLinks(SLOW)) == "ring"  # Nobody has measured the insides.
    assert usual(4, size, [[0, 1, 2, 3]], KnownLinks(SLOW, FAST)) == "ring"
    assert usual(5, size, [[0, 1, 2], [3, 4]], KnownLinks(SLOW, FAST)) == "hierarchical"


@pytest.mark.parametrize(("hosts", "size"), [(2, 64 << 10), (4, MIB), (8, 64 * MIB)])
def test_what_algorithms_are_taken_to_cost_is_what_the_estimates_say(hosts: int, size: int) -> None:
    between, inside = (Interconnect(link.bandwidth, link.latency_s) for link in (SLOW, FAST))
    apart = all_reduce_seconds(hosts, size, None, KnownLinks(SLOW))
    assert apart["ring"] == pytest.approx(formulas.all_reduce_s(size, hosts, between))
    assert apart["tree"] == pytest.approx(formulas.stepwise_all_reduce_s(size, hosts, between))
    if "butterfly" in apart:
        assert apart["butterfly"] == pytest.approx(formulas.all_reduce_s(size, hosts, between, "butterfly"))
    places = [[3 * host, 3 * host + 1, 3 * host + 2] for host in range(hosts)]
    steps = 2 * formulas.all_gather_s(size, 3, inside) + formulas.all_reduce_s(size, hosts, between)
    assert all_reduce_seconds(3 * hosts, size, places, KnownLinks(SLOW, FAST))["hierarchical"] == pytest.approx(steps)


def test_the_clock_agrees_with_the_choice() -> None:
    """Between hosts each rank of a host has half of what that sends."""
    halved = NetworkLink(SLOW.latency_s, SLOW.bandwidth / 2)
    taken = {}
    for name in ("ring", "hierarchical"):
        alone = name == "ring"  # Of which one rank of a host sends at a time.

        def link(source: int, target: int, *, alone: bool = alone) -> NetworkLink:
            return FAST if source // 2 == target // 2 else SLOW if alone else halved

        rounds = [schedule_of(Collective.ALL_REDUCE, name, rank, even_cuts(MIB, 4), 0, TWO_BY_TWO) for rank in range(4)]
        taken[name] = simulate(rounds, 4, link).seconds
    assert taken["hierarchical"] < taken["ring"]
    priced = all_reduce_seconds(4, 4 * MIB, TWO_BY_TWO, KnownLinks(SLOW, FAST))
    assert taken["hierarchical"] == pytest.approx(priced["hierarchical"], rel=0.01)
    assert taken["ring"] == pytest.approx(priced["ring"], rel=0.2)  # Not all hops are between hosts.


def written(
    directory: Path, links: list[MeasuredLink], counts: tuple[int, int], *, simulated: bool = True, **more: Any
) -> Path:
    """Write what a plan of two hosts has for the script; where their GPUs are simulated it talks by gloo."""
    gpus = [NodeResources(gpu=GpuRequest(count=count)) for count in counts]
    cluster = Cluster(nodes=tuple(Node(id=name, resources=own) for name, own in zip("ab", gpus, strict=True)))
    job = make_job("a", "b", framework="pytorch-ddp").model_copy(update={"cluster": cluster, **more})
    gpu = GpuResources(count=2, type="A100", memory=80 * GB, simulated=simulated)
    hosts = tuple(environment(name, resources=Resources(gpu=gpu)) for name in "ab")
    made = plan(job, Inventory(environments=hosts), links=newest(links), now=2.0)
    (directory / "config.json").write_text(next(file.text for file in made.nodes[0].files if file.path == CONFIG_FILE))
    return directory / "config.json"


BETWEEN = MeasuredLink(kind="hosts", between=("a", "b"), bandwidth=1.25e8, round_trip_s=2e-4, measured_at=1.0)


def insides(backend: str) -> list[MeasuredLink]:
    """Return what a bench keeps of the insides of both hosts: a ring of two ranks has two hops of half the data."""
    told: list[dict[str, Any]] = [{"kind": "begin", "backend": backend}]
    told += [
        {"kind": "collective", "op": "all_reduce", "algorithm": "native", "ranks": 2, "host": host, "wrong": 0}
        | {"size": size, "seconds": 2 * (FAST.latency_s + size / 2 / FAST.bandwidth)}
        for host in (0, 1)
        for size in (8, MIB, 64 * MIB)
    ]
    report = make_report([f"{MARK}{json.dumps(item)}" for item in told], ("a", "b"))
    return measured_by(report, [environment(name, 2) for name in "ab"], 1.0)


def test_the_launch_hands_on_what_was_measured_and_who_is_where(tmp_path: Path) -> None:
    found = json.loads(written(tmp_path, [BETWEEN, *insides("gloo")], (2, 2)).read_text())["distributed"]
    assert found["ranks_per_node"] == [2, 2]
    ends = operator.itemgetter("latency_s", "bandwidth")
    assert ends(found["links"]["between"]) == pytest.approx(SLOW)
    assert ends(found["links"]["inside"]) == pytest.approx(FAST, rel=1e-3)
    for by, simulated in (("gloo", False), ("nccl", True)):  # Another way than the ranks talk says nothing of theirs.
        path = written(tmp_path, [BETWEEN, *insides(by)], (2, 2), simulated=simulated)
        assert json.loads(path.read_text())["distributed"]["links"]["inside"] is None
    path = written(tmp_path, [BETWEEN, *insides("nccl")], (2, 2), simulated=False)
    assert ends(json.loads(path.read_text())["distributed"]["links"]["inside"]) == pytest.approx(FAST, rel=1e-3)
    found = json.loads(written(tmp_path, [BETWEEN], (2, 1)).read_text())["distributed"]
    assert (found["ranks_per_node"], found["links"]["inside"]) == ([2, 1], None)
    assert json.loads(written(tmp_path, [], (2, 2)).read_text())["distributed"]["links"] is None
    elastic: dict[str, Any] = {"framework_options": {"elastic": {"min_nodes": 1}}}
    assert json.loads(written(tmp_path, [], (2, 1), **elastic).read_text())["distributed"]["ranks_per_node"] is None
    assert json.loads(written(tmp_path, [], (2, 2), **elastic).read_text())["distributed"]["ranks_per_node"] == [2, 2]


RANK = (
    """
import sys, torch, torch.distributed as dist
from dtagent.payload.collectives import AllReduceOperator, DistributedCommunicator
from dtagent.payload.collectives import message_passing
rank, store = int(sys.argv[1]), dist.FileStore(sys.argv[2], 4)
dist.init_process_group("gloo", rank=rank, world_size=4, store=store)
comm = DistributedCommunicator(rank, 4)
operator = AllReduceOperator(comm)
total = operator.all_reduce(torch.full((1 << 20,), rank + 1.0))
(timing,) = operator.benchmark([(1 << 20,)], num_trials=1)
print(timing.algorithm, comm.group.hosts, total.unique().tolist(), flush=True)
"""
    + LEAVES
)


def test_ranks_of_a_launch_choose_by_it_over_gloo(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.collectives.starting import printed

    (tmp_path / "rank.py").write_text(RANK)
    for links, algorithm in (([BETWEEN, *insides("gloo")], "hierarchical"), ([BETWEEN], "ring")):
        config = written(tmp_path, links, (2, 2))
        store = tmp_path / f"store {algorithm}"
        commands = [[str(tmp_path / "rank.py"), str(rank), str(store)] for rank in range(4)]
        told = printed(commands, 120, {"DTTUI_CONFIG": str(config)})
        assert [line.strip() for line in told] == [f"{algorithm} [[0, 1], [2, 3]] [10.0]"] * 4
