"""The answer of all hosts to where ranks stand: as data that goes between processes, and in words."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dtagent.protocol.rpc import to_wire
from dtagent.protocol.stacks import ProcessStacks, RankStacks
from pydantic import TypeAdapter

from dttui.diagnosis import flight_records, standing
from dttui.i18n import Message, _


@dataclass(frozen=True)
class NodeStacks:
    """Of one node."""

    node: str
    ranks: tuple[RankStacks, ...] = ()
    error: str = ""
    """Why nothing is known of it."""

    @staticmethod
    def rank_of(told: Any) -> RankStacks:
        """Return what plain data says of a rank. Raises ValueError."""
        return _rank_adapter().validate_python(told)


@functools.cache
def _rank_adapter() -> TypeAdapter[RankStacks]:
    return TypeAdapter(RankStacks)


@functools.cache
def _adapter() -> TypeAdapter[tuple[NodeStacks, ...]]:
    return TypeAdapter(tuple[NodeStacks, ...])


def to_data(found: Sequence[NodeStacks], *, is_short: bool = False) -> list[Any]:
    """Return it as plain data; where it has to be short, of each process the main thread alone."""
    kept = [replace(node, ranks=tuple(map(_short, node.ranks))) for node in found] if is_short else list(found)
    return [to_wire(node) for node in kept]


def of_data(told: Any) -> tuple[NodeStacks, ...]:
    """Return what plain data says. Raises ValueError."""
    return _adapter().validate_python(told)


def summary(found: Sequence[NodeStacks]) -> tuple[Message | str, ...]:
    """Return what there is to say: who is missing from a collective, then where all stand, then of whom none knows."""
    ranks = [(node.node, rank) for node in found for rank in node.ranks]
    odd = flight_records.sentences(flight_records.odd_ones(rank for _node, rank in ranks))
    groups = standing.sentences(standing.groups_of(ranks))
    return (*odd, *groups, *(node.error for node in found if node.error))


def groups_data(found: Sequence[NodeStacks]) -> list[Any]:
    """Return as plain data where ranks stand, those that stand at one place together."""
    return [to_wire(group) for group in standing.groups_of((node.node, rank) for node in found for rank in node.ranks)]


def stack_lines(found: Sequence[NodeStacks]) -> Iterator[str]:
    """Yield each stack once, after the ranks that have it."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for node in found:
        for rank in node.ranks:
            stack: list[str] = []
            for process in (rank.process, *rank.children):
                if process is not None and process.threads:
                    stack += _stack(process, is_below=process is not rank.process)
            if stack:
                alike.setdefault(tuple(stack), []).append(_head(node.node, rank))
    for lines, heads in alike.items():
        yield from ("", *(f"── {head}" for head in heads), *lines)


def _head(node: str, rank: RankStacks) -> str:
    own = rank.process
    head = _("rank {rank} on {host}").format(rank=rank.rank, host=node)
    return head if own is None else f"{head}  pid {own.pid} ({own.state})  {own.source}"


def _stack(process: ProcessStacks, *, is_below: bool) -> Iterator[str]:
    if is_below:
        yield "  " + _("a process below it: {command}").format(command=process.command) + f" ({process.state})"
    for thread in process.threads:
        frames = [frame for frame in thread.frames if not standing.is_launcher(frame)]
        if frames:
            yield "  " + (_("main thread") if thread.is_main else _("thread {name}").format(name=thread.name))
        yield from (f"    {frame.name}  {standing.in_job(frame.file)}:{frame.line or '?'}" for frame in frames)


def _short(rank: RankStacks) -> RankStacks:
    def short(process: ProcessStacks) -> ProcessStacks:
        return replace(process, threads=process.threads[:1])

    own = short(rank.process) if rank.process is not None else None
    groups = [replace(group, calls=group.calls[-4:]) for group in rank.groups]
    return replace(rank, process=own, children=[short(item) for item in rank.children[:4]], groups=groups)
