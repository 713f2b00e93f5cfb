"""Who sends what to whom in each round of a collective, and what that costs: `dttui bench --explain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dtagent.payload.collectives.schedules import Collective, even_cuts, schedule_of
from pydantic import BaseModel, ConfigDict

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.planning.cost.hardware import Interconnect
from dttui.spec.problems import printable

_PARTS_BY_PARTS = "(n−1)(α + S/(n·B))"
_PARTS_BY_TREE = "⌈log₂n⌉·α + (n−1)/n · S/B"
DRAWN: dict[str, tuple[Collective, str, str]] = {
    "ring": (Collective.ALL_REDUCE, "ring", "2(n−1)·α + 2(n−1)/n · S/B"),
    "tree": (Collective.ALL_REDUCE, "tree", "2⌈log₂n⌉(α + S/B)"),
    "butterfly": (Collective.ALL_REDUCE, "butterfly", "2·log₂n·α + 2(n−1)/n · S/B"),
    "hierarchical": (
        Collective.ALL_REDUCE,
        "hierarchical",
        "2(m−1)(α + S/(m·B)) + 2(h−1)(α + S/(h·m·B)), h hosts of m = 2 ranks",
    ),
    "reduce-scatter": (Collective.REDUCE_SCATTER, "ring", _PARTS_BY_PARTS),
    "all-gather": (Collective.ALL_GATHER, "ring", _PARTS_BY_PARTS),
    "broadcast": (Collective.BROADCAST, "tree", "⌈log₂n⌉(α + S/B)"),
    "broadcast-linear": (Collective.BROADCAST, "linear", "(n−1)(α + S/B)"),
    "gather": (Collective.GATHER, "tree", _PARTS_BY_TREE),
    "gather-linear": (Collective.GATHER, "linear", _PARTS_BY_PARTS),
    "scatter": (Collective.SCATTER, "tree", _PARTS_BY_TREE),
    "scatter-linear": (Collective.SCATTER, "linear", _PARTS_BY_PARTS),
}
"""Name that a person gives → collective, its algorithm, and the formula for numbers of ranks that it divides evenly."""

LEAST_RANKS, MOST_RANKS = 2, 64
RANKS_A_HOST = 2
"""Of the hierarchical one, as it is drawn."""
USUAL_LINK = Interconnect(bandwidth=1.25e9, latency_s=50e-6)
"""Where no other is known: messages by TCP over 10 Gbit/s."""


class RoundMessage(BaseModel):
    """A part of the vector that goes from one rank to another."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: int
    """Rank."""
    target: int
    """Rank."""
    begin: float
    """Where the part begins, of the whole vector: 0 to 1."""
    end: float
    """The same of its end."""
    reduces: bool
    """Whether the target takes it together with its own; else it takes the place of that."""


class RoundByRound(BaseModel):
    """A collective, round by round."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    algorithm: str
    ranks: int
    size_bytes: int
    """S: of the vector that is reduced or broadcast, of all parts together where they are gathered or scattered."""
    rounds: tuple[tuple[RoundMessage, ...], ...]
    """What is under way at one time."""
    formula: str
    """T by n ranks, α (a message of no size), S and B (the link's bandwidth)."""
    latencies: int
    """How many α that is."""
    volume: float
    """How many S/B that is."""
    latency_s: float
    """α."""
    bandwidth: float
    """B, bytes a second."""
    seconds: float
    """T."""


def explain(algorithm: str, ranks: int, size: int, link: Interconnect) -> RoundByRound:
    """Return what an algorithm does, counted from the very schedule that ranks follow, and its formula.

    Formulas: Thakur, Rabenseifner and Gropp 2005 (trees, recursive halving and doubling); Patarasuk and Yuan 2009 (the
    ring). Every rank sends one message and receives one at a time, and none is in another's way. An estimate
    prices a tree as NCCL's, whose rounds overlap for what is large: 2⌈log₂n⌉α + 2S/B.

    Args:
        algorithm: its name in `DRAWN`.
        ranks: n, 2 to 64.
        size: S, bytes.
        link: between all ranks.

    Raises:
        UsageError: there is no such algorithm, or it is not drawn for so many ranks.
    """
    if algorithm not in DRAWN:
        told = _('there is no algorithm "{name}"').format(name=printable(algorithm))
        raise UsageError(told, _("There are: {names}.").format(names=", ".join(DRAWN)))
    if not LEAST_RANKS <= ranks <= MOST_RANKS:
        told = _("a collective is drawn for {least} to {most} ranks")
        raise UsageError(told.format(least=LEAST_RANKS, most=MOST_RANKS), "--ranks 4")
    count = ranks * len(_hosts(ranks)) << ranks.bit_length()  # Elements that all of them cut into equal parts.
    rounds = tuple(found for found in _rounds(algorithm, ranks, count) if found)
    volume = sum(max(item.end - item.begin for item in found) for found in rounds)
    return RoundByRound(
        algorithm=algorithm,
        ranks=ranks,
        size_bytes=size,
        rounds=rounds,
        formula=_formula(algorithm, ranks),
        latencies=len(rounds),
        volume=volume,
        latency_s=link.latency_s,
        bandwidth=link.bandwidth,
        seconds=len(rounds) * link.latency_s + volume * size / link.bandwidth,
    )


def _rounds(algorithm: str, ranks: int, count: int) -> Iterator[tuple[RoundMessage, ...]]:
    """Return all messages of each round: what each rank sends in it."""
    kind, how, _text = DRAWN[algorithm]
    cuts, hosts = even_cuts(count, ranks), _hosts(ranks)
    of_ranks = [schedule_of(kind, how, rank, cuts, hosts=hosts) for rank in range(ranks)]
    for number in zip(*of_ranks, strict=True):
        yield tuple(
            RoundMessage(
                source=rank,
                target=item.target,
                begin=item.begin / count,
                end=item.end / count,
                reduces=item.reduces,
            )
            for rank, transfers in enumerate(number)
            for item in transfers
            if item.source == rank
        )


def _hosts(ranks: int) -> Sequence[Sequence[int]]:
    return [range(first, min(first + RANKS_A_HOST, ranks)) for first in range(0, ranks, RANKS_A_HOST)]


def _formula(algorithm: str, ranks: int) -> str:
    if algorithm == "butterfly" and ranks & (ranks - 1):
        return "2(⌊log₂n⌋+1)·α + (2(p−1)/p + 2) · S/B, p = 2^⌊log₂n⌋"
    if algorithm == "hierarchical" and ranks % RANKS_A_HOST:
        return "2⌈log₂m⌉(α + S/B) + 2(h−1)(α + S/(h·B)), h = ⌈n/2⌉ hosts of at most m = 2 ranks"
    return DRAWN[algorithm][2]
