"""`dttui bench --explain`: what is drawn is what ranks do, and its formula what that costs."""

from __future__ import annotations

import math
from math import ceil, floor, log2

import pytest

from dttui.errors import UsageError
from dttui.planning.cost.collectives import all_gather_s, all_reduce_s, broadcast_s
from dttui.planning.cost.hardware import Interconnect
from dttui.planning.cost.round_by_round import DRAWN, RoundByRound, explain

LINK = Interconnect(bandwidth=1e9, latency_s=20e-6)
SIZE = 64 << 20
WORLDS = range(2, 18)


def written(formula: str, ranks: int) -> float:
    """Return what a printed formula says, read as arithmetic."""
    formula, _comma, _words = formula.partition(",")
    hosts = ceil(ranks / 2)
    names = {
        "n": ranks, "m": 2, "h": hosts, "p": 2 ** floor(log2(ranks)),
        "α": LINK.latency_s, "S": SIZE, "B": LINK.bandwidth, "ceil": ceil, "floor": floor, "log2": log2,
    }  # fmt: skip
    for sign, meant in (
        ("⌈log₂n⌉", "ceil(log2(n))"), ("⌈log₂m⌉", "1"), ("⌊log₂n⌋", "floor(log2(n))"), ("log₂n", "log2(n)"),
        ("−", "-"), ("·", "*"), ("2(", "2*("), (")(", ")*("), ("1(", "1*("), ("log2*(", "log2("),
    ):  # fmt: skip
        formula = formula.replace(sign, meant)
    formula = formula.replace("2ceil", "2*ceil").replace("log2(n))(", "log2(n))*(").replace("21*", "2*1*")
    return float(eval(formula.replace(" * S/B", "*S/B"), {"__builtins__": {}}, names))


@pytest.mark.parametrize("algorithm", DRAWN)
def test_the_formula_that_is_written_is_what_the_rounds_cost(algorithm: str) -> None:
    for ranks in WORLDS:
        told = explain(algorithm, ranks, SIZE, LINK)
        assert told.seconds == pytest.approx(written(told.formula, ranks)), (ranks, told.formula)


def test_it_is_what_estimates_count_with() -> None:
    for ranks in WORLDS:
        told = {name: explain(name, ranks, SIZE, LINK).seconds for name in DRAWN}
        assert told["ring"] == pytest.approx(all_reduce_s(SIZE, ranks, LINK, "ring"))
        overlapping = told["tree"] - (2 * ceil(log2(ranks)) - 2) * SIZE / LINK.bandwidth  # NCCL's tree.
        assert overlapping == pytest.approx(all_reduce_s(SIZE, ranks, LINK, "tree"))
        assert told["all-gather"] == told["reduce-scatter"] == pytest.approx(all_gather_s(SIZE, ranks, LINK))
        assert told["broadcast"] == pytest.approx(broadcast_s(SIZE, ranks, LINK, "tree"))
        assert told["broadcast-linear"] == pytest.approx(broadcast_s(SIZE, ranks, LINK, "linear"))
        if log2(ranks).is_integer():
            assert told["butterfly"] == pytest.approx(all_reduce_s(SIZE, ranks, LINK, "butterfly"))


def drawn(told: RoundByRound) -> list[list[tuple[int, int, float, float, bool]]]:
    return [[(item.source, item.target, item.begin, item.end, item.reduces) for item in found] for found in told.rounds]


def test_a_ring_of_two_and_a_tree_of_three() -> None:
    assert drawn(explain("ring", 2, SIZE, LINK)) == [
        [(0, 1, 0.5, 1.0, True), (1, 0, 0.0, 0.5, True)],
        [(0, 1, 0.0, 0.5, False), (1, 0, 0.5, 1.0, False)],
    ]
    assert drawn(explain("tree", 3, SIZE, LINK)) == [
        [(2, 0, 0.0, 1.0, True)],
        [(1, 0, 0.0, 1.0, True)],
        [(0, 1, 0.0, 1.0, False)],
        [(0, 2, 0.0, 1.0, False)],
    ]


def test_another_name_and_too_many_ranks_are_refused_with_what_there_is() -> None:
    with pytest.raises(UsageError, match='no algorithm "rng"') as raised:
        explain("rng", 4, SIZE, LINK)
    assert "There are: ring, tree," in str(raised.value.hint)
    for ranks in (1, 65):
        with pytest.raises(UsageError, match="2 to 64 ranks"):
            explain("ring", ranks, SIZE, LINK)
    assert math.isfinite(explain("hierarchical", 64, SIZE, LINK).seconds)
