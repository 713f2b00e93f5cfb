"""Who sends what to whom: right for any number of ranks, as often and as much as the formulas say, in their time."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from math import ceil, log2
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch")

import dttui_collectives
import torch
from dtagent.payload.collectives import AllReduceOperator, create_ring_topology
from dtagent.payload.collectives.choosing import KnownLinks
from dtagent.payload.collectives.clock import NetworkLink, simulate
from dtagent.payload.collectives.operators import bus_bandwidth_factor
from dtagent.payload.collectives.requests import agree, request, schedule
from dtagent.payload.collectives.schedules import (
    ALGORITHMS,
    Collective,
    butterfly_all_reduce,
    even_cuts,
    hierarchical_all_reduce,
    linear_broadcast,
    linear_gather,
    linear_scatter,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    schedule_of,
    tree_all_reduce,
    tree_broadcast,
    tree_gather,
    tree_scatter,
)

from dttui.planning.cost import collectives as formulas
from dttui.planning.cost.hardware import Interconnect

if TYPE_CHECKING:
    from dtagent.payload.collectives.schedules import Schedule

LINK = NetworkLink(20e-6, 1e9)
PRICED = Interconnect(bandwidth=1e9, latency_s=20e-6)
WORLDS = range(1, 10)
COUNTS = (0, 1, 5, 40)


def done(make: Callable[[int], Schedule], ranks: int, count: int) -> list[list[int]]:
    """Return the vectors that ranks end with, of which each begins with numbers of its own."""
    vectors = brought(ranks, count)
    schedules = [list(make(rank)) for rank in range(ranks)]
    assert len({len(rounds) for rounds in schedules}) == 1, "all count the same rounds"
    for transfers_of in zip(*schedules, strict=True):
        for rank, transfers in enumerate(transfers_of):
            assert all(rank in (item.source, item.target) for item in transfers)
        sent = [item for rank, transfers in enumerate(transfers_of) for item in transfers if item.source == rank]
        expected = [item for rank, transfers in enumerate(transfers_of) for item in transfers if item.target == rank]
        assert sorted(sent) == sorted(expected), "what one sends the other expects"
        messages = [vectors[item.source][item.begin : item.end] for item in sent]
        for item, message in zip(sent, messages, strict=True):
            own = vectors[item.target][item.begin : item.end]
            new = [mine + theirs for mine, theirs in zip(own, message, strict=True)] if item.reduces else message
            vectors[item.target][item.begin : item.end] = new
    return vectors


def brought(ranks: int, count: int) -> list[list[int]]:
    return [[rank * 1000 + place for place in range(count)] for rank in range(ranks)]


def hosts_of(ranks: int) -> list[Sequence[Sequence[int]]]:
    """Return how ranks may lie on hosts: all on one, each on its own, halves, every other, one and the rest."""
    everyone = range(ranks)
    parts = [[everyone], [[rank] for rank in everyone]]
    if ranks > 1:
        parts += [[everyone[: ranks // 2], everyone[ranks // 2 :]], [everyone[::2], everyone[1::2]]]
        parts += [[[0], everyone[1:]]]
    return parts  # type: ignore[return-value]  # ranges are sequences


@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize("count", COUNTS)
def test_all_reduces_end_with_the_sum_everywhere(ranks: int, count: int) -> None:
    cuts = even_cuts(count, ranks)
    expected = [sum(column) for column in zip(*brought(ranks, count), strict=True)] if count else []
    makes: list[Callable[[int], Schedule]] = [
        lambda rank: ring_all_reduce(rank, cuts),
        lambda rank: tree_all_reduce(rank, ranks, count),
        lambda rank: butterfly_all_reduce(rank, ranks, count),
    ]
    for hosts in hosts_of(ranks):
        makes.append(functools.partial(hierarchical_all_reduce, hosts=hosts, count=count))
    for make in makes:
        assert done(make, ranks, count) == [expected] * ranks
    scattered = done(lambda rank: ring_reduce_scatter(rank, cuts), ranks, count)
    for rank in range(ranks):
        part = slice(cuts[rank], cuts[rank + 1])
        assert scattered[rank][part] == expected[part]


@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize("count", COUNTS)
def test_what_goes_from_or_to_a_root_arrives_whole(ranks: int, count: int) -> None:
    cuts, own = even_cuts(count, ranks), brought(ranks, count)
    together = [own[rank][place] for rank in range(ranks) for place in range(cuts[rank], cuts[rank + 1])]
    assert done(lambda rank: ring_all_gather(rank, cuts), ranks, count) == [together] * ranks
    for root in range(ranks):
        for broadcast in (tree_broadcast, linear_broadcast):
            found = done(lambda rank, how=broadcast, root=root: how(rank, ranks, count, root), ranks, count)  # type: ignore[misc]
            assert found == [own[root]] * ranks
        for gather in (tree_gather, linear_gather):
            assert done(lambda rank, how=gather, root=root: how(rank, cuts, root), ranks, count)[root] == together  # type: ignore[misc]
        for scatter in (tree_scatter, linear_scatter):
            found = done(lambda rank, how=scatter, root=root: how(rank, cuts, root), ranks, count)  # type: ignore[misc]
            for rank in range(ranks):
                part = slice(cuts[rank], cuts[rank + 1])
                assert found[rank][part] == own[root][part]


Traffic = tuple[int, int, int, int, int]
"""Rounds, messages of all ranks, what they send in all, and the most that one sends and receives, in parts."""


def traffic_by_formula(kind: Collective, algorithm: str, ranks: int) -> Traffic:
    """Return what goes over the network where every rank's vector has `ranks` equal parts, and rank 0 is the root.

    Of a hierarchical all-reduce every other rank is on the same of two hosts.
    """
    n, others = ranks, ranks - 1
    depth, power = ceil(log2(n)), 1 << (n.bit_length() - 1)
    spare, passed_on = n - power, sum(f"{rank:b}".count("1") for rank in range(n))
    subtree = max(min(1 << level, n - (1 << level)) for level in range(depth))
    m, h = ceil(n / 2), min(n, 2)
    if algorithm == "hierarchical" and n % h:  # One of each host speaks for it.
        leader = ceil(log2(m)) * n + n  # To its own ranks, and half of the vector twice to the other host.
        inside = (ceil(log2(m)), m - 1 + n - m - 1)
        sent = 2 * inside[1] * n + 2 * (h - 1) * n
        return 2 * inside[0] + 2 * (h - 1), 2 * inside[1] + 2 * h * (h - 1), sent, leader, leader
    return {
        (Collective.ALL_REDUCE, "ring"): (2 * others, 2 * n * others, 2 * n * others, 2 * others, 2 * others),
        (Collective.ALL_REDUCE, "tree"): (2 * depth, 2 * others, 2 * others * n, depth * n, depth * n),
        (Collective.ALL_REDUCE, "butterfly"): (
            2 * (power.bit_length() - 1) + 2 * (spare > 0),
            2 * power * (power.bit_length() - 1) + 2 * spare,
            2 * (power - 1) * n + 2 * spare * n,
            2 * (power - 1) * n // power + n * (spare > 0),
            2 * (power - 1) * n // power + n * (spare > 0),
        ),
        (Collective.ALL_REDUCE, "hierarchical"): (
            2 * (m - 1) + 2 * (h - 1),
            n * (2 * (m - 1) + 2 * (h - 1)),
            n * (2 * (m - 1) * n // m + 2 * (h - 1) * n // (h * m)),
            2 * (m - 1) * n // m + 2 * (h - 1) * n // (h * m),
            2 * (m - 1) * n // m + 2 * (h - 1) * n // (h * m),
        ),
        (Collective.BROADCAST, "tree"): (depth, others, others * n, depth * n, n),
        (Collective.BROADCAST, "linear"): (others, others, others * n, others * n, n),
        (Collective.ALL_GATHER, "ring"): (others, n * others, n * others, others, others),
        (Collective.REDUCE_SCATTER, "ring"): (others, n * others, n * others, others, others),
        # A part goes through as many ranks as its rank's number has ones.
        (Collective.GATHER, "tree"): (depth, others, passed_on, subtree, others),
        (Collective.GATHER, "linear"): (others, others, others, 1, others),
        (Collective.SCATTER, "tree"): (depth, others, passed_on, others, subtree),
        (Collective.SCATTER, "linear"): (others, others, others, others, 1),
    }[kind, algorithm]


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 6, 7, 8, 9, 16])
def test_rounds_messages_bytes_and_load_are_what_the_formulas_say(ranks: int) -> None:
    halves, part = [range(0, ranks, 2), range(1, ranks, 2)], 12 * 4 * 4  # Which all of them cut into equal pieces.
    for kind, algorithms in ALGORITHMS.items():
        for algorithm in algorithms:
            cuts = even_cuts(part * ranks, ranks)
            told = simulate([schedule_of(kind, algorithm, rank, cuts, hosts=halves) for rank in range(ranks)], 4, LINK)
            amounts = (sum(told.sent_bytes), max(told.sent_bytes), max(told.received_bytes))
            found = (told.rounds, sum(told.messages), *(amount // (4 * part) for amount in amounts))
            assert found == traffic_by_formula(kind, algorithm, ranks), (kind, algorithm)
            assert sum(told.sent_bytes) == sum(told.received_bytes)
            if algorithm == "ring":
                assert len({*told.sent_bytes, *told.received_bytes}) == 1, "all are loaded alike"
                assert told.sent_bytes[0] == pytest.approx(bus_bandwidth_factor(kind, ranks) * 4 * part * ranks)


@pytest.mark.parametrize("ranks", [*WORLDS, 16])
def test_the_clock_takes_the_time_of_the_formulas(ranks: int) -> None:
    count = ranks * ranks << 10  # Which all of them cut into equal parts.
    size, cuts, everyone = 4.0 * count, even_cuts(count, ranks), range(ranks)
    halves = [everyone[::2], everyone[1::2]] if ranks > 1 else [everyone]
    all_reduce_s, gather_s, broadcast_s = formulas.all_reduce_s, formulas.gather_s, formulas.broadcast_s
    expected: dict[tuple[Collective, str], float] = {
        (Collective.ALL_REDUCE, "ring"): all_reduce_s(size, ranks, PRICED),
        (Collective.ALL_REDUCE, "tree"): formulas.stepwise_all_reduce_s(size, ranks, PRICED),
        (Collective.ALL_REDUCE, "butterfly"): all_reduce_s(size, ranks, PRICED, "butterfly"),
        (Collective.ALL_REDUCE, "hierarchical"): formulas.hosts_all_reduce_s(
            size, len(halves[0]), len(halves), PRICED, is_even=ranks == 1 or ranks % 2 == 0
        ),
        (Collective.BROADCAST, "tree"): broadcast_s(size, ranks, PRICED),
        (Collective.BROADCAST, "linear"): broadcast_s(size, ranks, PRICED, "linear"),
        (Collective.ALL_GATHER, "ring"): formulas.all_gather_s(size, ranks, PRICED),
        (Collective.REDUCE_SCATTER, "ring"): formulas.all_gather_s(size, ranks, PRICED),
        (Collective.GATHER, "tree"): gather_s(size, ranks, PRICED),
        (Collective.GATHER, "linear"): gather_s(size, ranks, PRICED, "linear"),
        (Collective.SCATTER, "tree"): gather_s(size, ranks, PRICED),
        (Collective.SCATTER, "linear"): gather_s(size, ranks, PRICED, "linear"),
    }
    assert set(expected) == {(kind, name) for kind, names in ALGORITHMS.items() for name in names}
    found = {
        (kind, name): simulate(
            [schedule_of(kind, name, rank, cuts, hosts=halves) for rank in everyone], 4, LINK
        ).seconds
        for kind, name in expected
    }
    # A butterfly halves what three, five or seven ranks do not divide into powers of two.
    assert found == pytest.approx(expected, rel=1e-3)
    for kind in Collective:
        assert bus_bandwidth_factor(kind, ranks) == formulas.bus_bandwidth_factor(kind.value, ranks)


def test_a_rank_receives_one_message_at_a_time() -> None:
    told = simulate([linear_gather(rank, even_cuts(4000, 4)) for rank in range(4)], 4, NetworkLink(0.0, 1000.0))
    assert told.seconds == 12


def test_a_tree_takes_the_rounds_of_its_depth_for_any_number() -> None:
    for ranks in WORLDS:
        depth = ceil(log2(ranks))
        assert simulate([tree_broadcast(rank, ranks, 8) for rank in range(ranks)], 4, LINK).rounds == depth
        assert simulate([tree_gather(rank, even_cuts(80, ranks)) for rank in range(ranks)], 4, LINK).rounds == depth


def test_between_hosts_a_hierarchical_all_reduce_sends_a_part_of_what_a_ring_of_all_does() -> None:
    """Four hosts of four ranks: from each host 2(h-1)/h of the vector crosses, not 2(n-1)/n of it from each border."""
    hosts = [range(first, first + 4) for first in range(0, 16, 4)]
    count = 1 << 16

    def link(source: int, target: int) -> NetworkLink:
        return NetworkLink(1e-6, 100e9) if source // 4 == target // 4 else NetworkLink(50e-6, 1e9)

    flat = simulate([ring_all_reduce(rank, even_cuts(count, 16)) for rank in range(16)], 4, link)
    stepped = simulate([hierarchical_all_reduce(rank, hosts, count) for rank in range(16)], 4, link)
    assert stepped.seconds < flat.seconds / 3


def test_operators_of_one_process_tell_what_they_would_take_on_a_network() -> None:
    network = KnownLinks(LINK, NetworkLink(1e-6, 100e9))
    comms = create_ring_topology(8, hosts=[range(4), range(4, 8)], network=network)
    took: dict[str, float] = {}
    for algorithm in ("ring", "butterfly", "hierarchical"):
        before = comms[0].network_s or 0.0
        for comm in comms:
            AllReduceOperator(comm, algorithm).all_reduce(torch.ones(1 << 16))
        took[algorithm] = (comms[-1].network_s or 0.0) - before
    size = 4.0 * (1 << 16)
    assert took["ring"] == pytest.approx(formulas.all_reduce_s(size, 8, PRICED), rel=1e-3)
    # Half of what a butterfly halves stays inside of hosts, and between them a ring of two takes an eighth of it twice.
    assert took["butterfly"] < formulas.all_reduce_s(size, 8, PRICED, "butterfly")
    between = 2 * (LINK.latency_s + size / 8 / LINK.bandwidth)
    assert took["hierarchical"] == pytest.approx(between, rel=0.1)
    assert create_ring_topology(2)[0].network_s is None
    many = create_ring_topology(1024, network=network)
    results = [AllReduceOperator(comm, "tree").all_reduce(torch.ones(1)) for comm in many]
    assert {int(result) for result in results} == {1024}
    assert many[0].network_s == pytest.approx(formulas.stepwise_all_reduce_s(4, 1024, PRICED), rel=1e-3)


def test_a_thousand_ranks_are_simulated() -> None:
    cuts = even_cuts(1 << 18, 1000)
    told = simulate([ring_all_reduce(rank, cuts) for rank in range(1000)], 4, LINK)
    assert told.seconds == pytest.approx(formulas.all_reduce_s(1 << 20, 1000, PRICED), rel=0.01)


@pytest.mark.parametrize(("ranks", "count", "rounds"), [(8, 100, 6), (8, 1 << 17, 14), (2, 100, 2)])
def test_small_all_reduces_take_fewer_rounds(ranks: int, count: int, rounds: int) -> None:
    asked = [request(Collective.ALL_REDUCE, torch.empty(count))] * ranks
    layout = agree(asked)
    assert simulate([schedule(asked[0], layout, rank) for rank in range(ranks)], 4, LINK).rounds == rounds


def test_scripts_are_offered_the_clock() -> None:
    cuts = dttui_collectives.even_cuts(4000, 4)
    rings = [
        dttui_collectives.schedule_of(dttui_collectives.Collective.ALL_REDUCE, "ring", rank, cuts) for rank in range(4)
    ]
    told = dttui_collectives.simulate(rings, 4, dttui_collectives.NetworkLink(latency_s=1.0, bandwidth=1000.0))
    assert (told.seconds, told.sent_bytes) == (6 * (1 + 4), [24000] * 4)


def test_the_clock_needs_no_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from dtagent.payload.collectives import Collective, NetworkLink, even_cuts, schedule_of, simulate\n"
        "both = [schedule_of(Collective.BROADCAST, 'tree', rank, even_cuts(10, 2)) for rank in range(2)]\n"
        "print(simulate(both, 1, NetworkLink(1.0, 10.0)).seconds)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "2.0\n"
