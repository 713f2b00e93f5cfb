"""Who sends what to whom in each round of a collective: pure, the same for every back-end, and for a clock alone.

A collective moves parts of a vector that every rank holds, in elements. What an algorithm does is a schedule: for one
rank, the transfers of each round in which it takes part. Rounds are counted alike by all ranks, so that those of one
number, taken together, are what crosses the network at that time. Sources: Thakur, Rabenseifner and Gropp 2005
(recursive halving and doubling, binomial trees), Patarasuk and Yuan 2009 (the ring).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # Older interpreters cannot make these names of generics.
    from collections.abc import Callable, Iterator, Sequence

    Cuts = Sequence[int]
    """Where the parts of the ranks begin, in elements, and where the last one ends: one more than there are ranks."""
    Round = tuple["Transfer", ...]
    Schedule = Iterator[Round]
    """Of one rank: its transfers, round by round."""


class Collective(str, Enum):
    """A collective."""

    ALL_REDUCE = "all_reduce"
    BROADCAST = "broadcast"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    GATHER = "gather"
    SCATTER = "scatter"


ALGORITHMS: dict[Collective, tuple[str, ...]] = {
    Collective.ALL_REDUCE: ("ring", "tree", "butterfly", "hierarchical"),
    Collective.BROADCAST: ("tree", "linear"),
    Collective.ALL_GATHER: ("ring",),
    Collective.REDUCE_SCATTER: ("ring",),
    Collective.GATHER: ("tree", "linear"),
    Collective.SCATTER: ("tree", "linear"),
}
"""Collective → its algorithms, the one that is taken by default first."""


class Transfer(NamedTuple):
    """A part of the vector that goes from one rank to another."""

    source: int
    target: int
    begin: int
    """In elements, as `end`."""
    end: int
    reduces: bool = False
    """Whether the target takes it together with its own, by the operation; else it takes the place of that."""

    @property
    def size(self) -> int:
        """How many elements it has."""
        return self.end - self.begin


def schedule_of(
    kind: Collective,
    algorithm: str,
    rank: int,
    cuts: Cuts,
    root: int = 0,
    hosts: Sequence[Sequence[int]] | None = None,
) -> Schedule:
    """Return what a rank does in a collective.

    Args:
        kind: which.
        algorithm: one of its `ALGORITHMS`.
        rank: of whom.
        cuts: where the parts of the ranks begin and end.
        root: of a broadcast, gather or scatter.
        hosts: the ranks of each host, for the hierarchical algorithm; all are on one without it.
    """
    ranks, count = len(cuts) - 1, cuts[-1]
    whole: dict[tuple[Collective, str], Callable[[], Schedule]] = {
        (Collective.ALL_REDUCE, "ring"): lambda: ring_all_reduce(rank, cuts),
        (Collective.ALL_REDUCE, "tree"): lambda: tree_all_reduce(rank, ranks, count),
        (Collective.ALL_REDUCE, "butterfly"): lambda: butterfly_all_reduce(rank, ranks, count),
        (Collective.ALL_REDUCE, "hierarchical"): lambda: hierarchical_all_reduce(rank, hosts or [range(ranks)], count),
        (Collective.BROADCAST, "tree"): lambda: tree_broadcast(rank, ranks, count, root),
        (Collective.BROADCAST, "linear"): lambda: linear_broadcast(rank, ranks, count, root),
        (Collective.ALL_GATHER, "ring"): lambda: ring_all_gather(rank, cuts),
        (Collective.REDUCE_SCATTER, "ring"): lambda: ring_reduce_scatter(rank, cuts),
        (Collective.GATHER, "tree"): lambda: tree_gather(rank, cuts, root),
        (Collective.GATHER, "linear"): lambda: linear_gather(rank, cuts, root),
        (Collective.SCATTER, "tree"): lambda: tree_scatter(rank, cuts, root),
        (Collective.SCATTER, "linear"): lambda: linear_scatter(rank, cuts, root),
    }
    return whole[kind, algorithm]()


def even_cuts(count: int, ranks: int) -> list[int]:
    """Return cuts into parts that differ by one element at most, the longer ones first."""
    size, longer = divmod(count, ranks)
    return [index * size + min(index, longer) for index in range(ranks + 1)]


def ring_all_reduce(rank: int, cuts: Cuts) -> Schedule:
    """Reduce all in 2(n-1) rounds, in each of which a rank sends a part and receives one: 2(n-1)/n of the vector."""
    yield from ring_reduce_scatter(rank, cuts)
    yield from ring_all_gather(rank, cuts)


def ring_reduce_scatter(rank: int, cuts: Cuts) -> Schedule:
    """Reduce so that each rank ends with its own part, in n-1 rounds."""
    ranks = len(cuts) - 1
    for number in range(ranks - 1):
        yield _around(rank, cuts, (rank - number - 1) % ranks, reduces=True)


def ring_all_gather(rank: int, cuts: Cuts) -> Schedule:
    """Give each rank's own part to all, in n-1 rounds."""
    ranks = len(cuts) - 1
    for number in range(ranks - 1):
        yield _around(rank, cuts, (rank - number) % ranks, reduces=False)


def _around(rank: int, cuts: Cuts, part: int, *, reduces: bool) -> Round:
    """Return a round of a ring: a part to the next rank, and from the one before the part before."""
    ranks = len(cuts) - 1
    other = (part - 1) % ranks
    return (
        Transfer(rank, (rank + 1) % ranks, cuts[part], cuts[part + 1], reduces),
        Transfer((rank - 1) % ranks, rank, cuts[other], cuts[other + 1], reduces),
    )


def tree_reduce(rank: int, ranks: int, count: int, root: int = 0) -> Schedule:
    """Reduce to the root along a binomial tree: ⌈log₂n⌉ rounds, each with the whole vector."""
    for step in reversed(list(_doublings(ranks))):
        yield tuple(
            Transfer(source, target, 0, count, True)
            for target, source in _pairs(rank, ranks, root, step)
            if rank in (source, target)
        )


def tree_broadcast(rank: int, ranks: int, count: int, root: int = 0) -> Schedule:
    """Give the root's vector to all along a binomial tree: ⌈log₂n⌉ rounds."""
    for step in _doublings(ranks):
        yield tuple(
            Transfer(source, target, 0, count)
            for source, target in _pairs(rank, ranks, root, step)
            if rank in (source, target)
        )


def tree_all_reduce(rank: int, ranks: int, count: int) -> Schedule:
    """Reduce to rank 0 and broadcast from there: 2⌈log₂n⌉ rounds; for what is small."""
    yield from tree_reduce(rank, ranks, count)
    yield from tree_broadcast(rank, ranks, count)


def linear_broadcast(rank: int, ranks: int, count: int, root: int = 0) -> Schedule:
    """Have the root send to one rank after another: n-1 rounds."""
    for target in _others(ranks, root):
        yield (Transfer(root, target, 0, count),) if rank in (root, target) else ()


def linear_gather(rank: int, cuts: Cuts, root: int = 0) -> Schedule:
    """Have each rank send its part to the root, one after another: n-1 rounds."""
    for source in _others(len(cuts) - 1, root):
        yield (Transfer(source, root, cuts[source], cuts[source + 1]),) if rank in (root, source) else ()


def linear_scatter(rank: int, cuts: Cuts, root: int = 0) -> Schedule:
    """Have the root send each rank its part, one after another: n-1 rounds."""
    for target in _others(len(cuts) - 1, root):
        yield (Transfer(root, target, cuts[target], cuts[target + 1]),) if rank in (root, target) else ()


def tree_gather(rank: int, cuts: Cuts, root: int = 0) -> Schedule:
    """Gather along a binomial tree: ⌈log₂n⌉ rounds, in which what has come together goes on together."""
    ranks = len(cuts) - 1
    for step in _doublings(ranks):
        yield tuple(
            Transfer(_real(place + step, ranks, root), _real(place, ranks, root), begin, end)
            for place in _meeting(rank, ranks, root, step)
            for begin, end in _stretches(cuts, place + step, min(place + 2 * step, ranks), root)
        )


def tree_scatter(rank: int, cuts: Cuts, root: int = 0) -> Schedule:
    """Scatter along a binomial tree: ⌈log₂n⌉ rounds, in which half of what is left goes on."""
    ranks = len(cuts) - 1
    for step in reversed(list(_doublings(ranks))):
        yield tuple(
            Transfer(_real(place, ranks, root), _real(place + step, ranks, root), begin, end)
            for place in _meeting(rank, ranks, root, step)
            for begin, end in _stretches(cuts, place + step, min(place + 2 * step, ranks), root)
        )


def butterfly_all_reduce(rank: int, ranks: int, count: int) -> Schedule:
    """Reduce by recursive halving, gather by recursive doubling: 2⌊log₂n⌋ rounds, 2(n-1)/n of the vector.

    Of a number that is no power of two, as many ranks as are too many give theirs to a neighbour first, and get the
    result last: two rounds more.
    """
    power = 1 << (ranks.bit_length() - 1)
    spare = ranks - power  # Of the first 2·spare ranks the even ones only give and get.
    if spare:
        peer = rank ^ 1
        yield (Transfer(min(rank, peer), max(rank, peer), 0, count, True),) if rank < 2 * spare else ()
    idle = rank < 2 * spare and rank % 2 == 0
    place = rank // 2 if rank < 2 * spare else rank - spare
    begin, end = 0, count
    halves: list[tuple[int, int, int]] = []
    step = power // 2
    while step:
        peer = _active(place ^ step, spare)
        middle = begin + (end - begin) // 2
        low, high = (begin, middle), (middle, end)
        kept, given = (low, high) if not place & step else (high, low)
        yield () if idle else (Transfer(rank, peer, *given, True), Transfer(peer, rank, *kept, True))
        halves.append((peer, *given))
        begin, end = kept
        step //= 2
    for peer, other_begin, other_end in reversed(halves):
        yield () if idle else (Transfer(rank, peer, begin, end), Transfer(peer, rank, other_begin, other_end))
        begin, end = min(begin, other_begin), max(end, other_end)
    if spare:
        peer = rank ^ 1
        yield (Transfer(max(rank, peer), min(rank, peer), 0, count),) if rank < 2 * spare else ()


def hierarchical_all_reduce(rank: int, hosts: Sequence[Sequence[int]], count: int) -> Schedule:
    """Reduce inside each host, then between the hosts, then give the result to all of each host.

    Hosts of equally many ranks split the vector among those, so that all of them speak with other hosts: 2(m-1) rounds
    inside of m ranks, and 2(h-1) between h hosts with a part of 1/m. Else one rank of each host does, by trees inside.

    Args:
        rank: of whom.
        hosts: the ranks of each host; each rank once.
        count: elements of the vector.
    """
    own = next(members for members in hosts if rank in members)
    place, widest = own.index(rank), max(len(members) for members in hosts)
    if all(len(members) == widest for members in hosts):
        cuts = even_cuts(count, widest)
        yield from _renumbered(ring_reduce_scatter(place, cuts), own)
        column = [members[place] for members in hosts]
        inner = [cuts[place] + cut for cut in even_cuts(cuts[place + 1] - cuts[place], len(hosts))]
        yield from _renumbered(ring_all_reduce(column.index(rank), inner), column)
        yield from _renumbered(ring_all_gather(place, cuts), own)
        return
    depth = len(list(_doublings(widest)))
    leaders = [members[0] for members in hosts]
    inside = list(_renumbered(tree_reduce(place, len(own), count), own))
    yield from ((),) * (depth - len(inside))  # Whoever has fewer ranks waits for the others.
    yield from inside
    if place == 0:
        yield from _renumbered(ring_all_reduce(leaders.index(rank), even_cuts(count, len(hosts))), leaders)
    else:
        yield from ((),) * (2 * (len(hosts) - 1))
    back = list(_renumbered(tree_broadcast(place, len(own), count), own))
    yield from back
    yield from ((),) * (depth - len(back))


def _renumbered(schedule: Schedule, members: Sequence[int]) -> Schedule:
    for transfers in schedule:
        yield tuple(item._replace(source=members[item.source], target=members[item.target]) for item in transfers)


def _active(place: int, spare: int) -> int:
    """Return the rank at a place of those that halve and double."""
    return 2 * place + 1 if place < spare else place + spare


def _others(ranks: int, root: int) -> Iterator[int]:
    return ((root + index) % ranks for index in range(1, ranks))


def _doublings(ranks: int) -> Iterator[int]:
    """Return 1, 2, 4, …, below the number of ranks."""
    step = 1
    while step < ranks:
        yield step
        step *= 2


def _real(place: int, ranks: int, root: int) -> int:
    """Return the rank at a place of a tree whose root is at 0."""
    return (place + root) % ranks


def _pairs(rank: int, ranks: int, root: int, step: int) -> Iterator[tuple[int, int]]:
    """Return which rank hands on to which when `step` ranks have it, of those pairs in which one takes part."""
    place = (rank - root) % ranks
    if place < step and place + step < ranks:
        yield rank, _real(place + step, ranks, root)
    elif step <= place < 2 * step:
        yield _real(place - step, ranks, root), rank


def _meeting(rank: int, ranks: int, root: int, step: int) -> Iterator[int]:
    """Return the place that a rank meets the one `step` further at, or is met at, where it takes part in that round."""
    place = (rank - root) % ranks
    low = place - place % (2 * step)
    if place in (low, low + step) and low + step < ranks:
        yield low


def _stretches(cuts: Cuts, first: int, last: int, root: int) -> Iterator[tuple[int, int]]:
    """Return where the parts of places `first` to `last` lie: two stretches where they go around the end."""
    ranks = len(cuts) - 1
    begin, end = first + root, last + root
    for low, high in ((begin, min(end, ranks)), (max(begin, ranks) - ranks, end - ranks)):
        if low < high and cuts[low] < cuts[high]:
            yield cuts[low], cuts[high]
