"""Compares what torch's flight recorder has of each rank: who is missing from a collective, or called another. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dtagent.protocol.stacks import Call, GroupCalls, RankStacks

from dttui.diagnosis.standing import spans
from dttui.i18n import Message, msg, nmsg
from dttui.sanitize import clean

_ALIKE = ("all_reduce", "allreduce", "broadcast", "reduce", "_reduce_scatter_base", "_allgather_base", "all_gather")
"""Collectives to which all ranks bring tensors of one size."""
MOST_SIZES = 4


@dataclass(frozen=True)
class Odd:
    """A collective that some ranks of a group have not called, or in which they called something else."""

    group: str
    """What it is called: the default group has no name of its own."""
    number: int
    ranks: tuple[int, ...]
    """Those that do otherwise than most."""
    others: tuple[int, ...]
    call: Call
    """What most have called."""
    other: Call | None
    """What those called instead; `None` where they have called nothing."""
    last: int | None = None
    """Number of their newest one, where they are behind."""


def odd_ones(found: Iterable[RankStacks]) -> tuple[Odd, ...]:
    """Return the first collective of each group that its ranks do not have in common."""
    groups: dict[tuple[str, str], dict[int, GroupCalls]] = {}
    for rank in found:
        for group in rank.groups:
            groups.setdefault((group.group, group.description), {})[rank.rank] = group
    odd = [_odd(_name(*key), ranks) for key, ranks in groups.items()]
    return tuple(item for item in odd if item is not None)


def _name(group: str, description: str) -> str:
    return clean(group if description in ("", "undefined") else description)


def _odd(name: str, ranks: dict[int, GroupCalls]) -> Odd | None:
    # Whose last is known is compared; of those that lack what others still have nothing was kept that long ago.
    calls = {rank: {call.number: call for call in group.calls} for rank, group in ranks.items()}
    newest = {rank: group.enqueued or 0 for rank, group in ranks.items()}
    oldest = max((min(known) for known in calls.values() if known), default=1)
    oldest = min(oldest, min(newest.values(), default=0) + 1)
    for number in range(max(1, oldest), max(newest.values(), default=0) + 1):
        here = {rank: known[number] for rank, known in calls.items() if number in known}
        missing = tuple(sorted(rank for rank, last in newest.items() if last < number))
        if missing and here:
            # Until they are done with it, others wait; where all are, the missing one is only not needed there.
            waiting = {rank: call for rank, call in here.items() if not call.is_done}
            if not waiting:
                continue
            first = waiting[min(waiting)]
            last = min(newest[rank] for rank in missing)
            return Odd(name, number, missing, tuple(sorted(waiting)), first, None, last)
        different = _different(here)
        if different is not None:
            odd, most = different
            return Odd(name, number, odd, most, here[most[0]], here[odd[0]])
    return None


def _different(here: dict[int, Call]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return those that called something else than most, and those; `None` where all called alike."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for rank, call in sorted(here.items()):
        is_alike = call.name in _ALIKE
        sizes = (tuple(map(tuple, call.sizes)), tuple(call.dtypes)) if is_alike else ()
        kinds.setdefault((call.name, sizes), []).append(rank)
    if len(kinds) < 2 or all(call.is_done for call in here.values()):
        return None
    ordered = sorted(kinds.values(), key=lambda ranks: (-len(ranks), ranks))
    return tuple(ordered[1]), tuple(ordered[0])


def sentences(found: Sequence[Odd]) -> tuple[Message, ...]:
    """Return what there is to say of each, in words."""
    return tuple(_sentence(item) for item in found)


def _sentence(odd: Odd) -> Message:
    who = nmsg("rank {ranks}", "ranks {ranks}", len(odd.ranks), ranks=spans(odd.ranks))
    others = nmsg("rank {ranks}", "ranks {ranks}", len(odd.others), ranks=spans(odd.others))
    where = msg("collective {number} of group {group}", number=odd.number, group=odd.group)
    if odd.other is not None:
        return msg(
            "in {where}, {who} called {call}, and {others} called {other}",
            where=where,
            who=who,
            call=_called(odd.other),
            others=others,
            other=_called(odd.call),
        )
    return msg(
        "{who} did not come to {where}, {call}, in which {others} wait; the newest one that came was {last}",
        who=who,
        where=where,
        call=_called(odd.call),
        others=others,
        last=odd.last or 0,
    )


def _called(call: Call) -> str:
    sizes = ", ".join(str(size) for size in call.sizes[:MOST_SIZES])
    types = ", ".join(dict.fromkeys(call.dtypes))
    return clean(f"{call.name} {sizes} {types}".strip())
