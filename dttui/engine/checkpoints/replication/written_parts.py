"""Which parts of a checkpoint there are that each host has written to a disk of its own, and who has each or a copy."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence

from dtagent.protocol.checkpoints import PART, CheckpointsOf, FoundCheckpoint
from dtagent.protocol.replication import HeldCopy

from dttui.engine.checkpoints.checkpoint_places import CheckpointPlace, PlacedCheckpoint
from dttui.engine.checkpoints.resume_choice import whole_steps
from dttui.engine.nodes.node_run import NodeRun
from dttui.planning.models import BoundPlan

Answers = Mapping[str, Mapping[CheckpointPlace, CheckpointsOf]]
"""Node → what it has itself, by where it looked."""
Copies = Mapping[str, Sequence[HeldCopy]]
"""Node → what it keeps of others, also of a host that was lost."""


def parts_of(
    attempt: int,
    bound: BoundPlan,
    nodes: Sequence[NodeRun],
    answers: Answers,
    copies: Copies,
    unwanted: Collection[str] = (),
) -> list[dict[int, PlacedCheckpoint]]:
    """Return node rank → its part, of every step of which all that wrote one have theirs or others a copy.

    Args:
        attempt: which wrote them.
        bound: what ran in it.
        nodes: of the attempt that is to go on from them.
        answers: what they have.
        copies: what they keep of others.
        unwanted: paths that are passed over.

    Returns:
        The newest step first; none where a host that wrote is gone and nobody has a copy.
    """
    writers = bound.plan.nodes
    if len(writers) < 2:
        return []
    offsets_s = {node.name: node.clock_offset_s for node in nodes}
    parts = [
        _written_by(writer.name, attempt, answers.get(writer.name, {}), _copies_of(attempt, writer.node_rank, copies))
        for writer in writers
    ]
    # What was copied is of a whole: nothing is before the file is there that names all of it.
    copied = {copy.step for writer in writers for _, copy in _copies_of(attempt, writer.node_rank, copies)}
    told = [[part.found for part in of_writer.values() if part.found.path not in unwanted] for of_writer in parts]
    steps = whole_steps(
        told, {step for step in copied if step is not None}, [offsets_s.get(writer.name) for writer in writers]
    )
    found = [
        {writer.node_rank: of_writer[step] for writer, of_writer in zip(writers, parts, strict=True)} for step in steps
    ]
    return [
        of_step for of_step in found if len({posixpath.basename(item.found.path) for item in of_step.values()}) == 1
    ]


def _copies_of(attempt: int, node_rank: int, copies: Copies) -> Iterator[tuple[str, HeldCopy]]:
    """Yield who has a copy of which part that a node has written in an attempt."""
    for name, held in copies.items():
        for copy in held:
            if (copy.attempt, copy.node_rank, copy.form) == (attempt, node_rank, PART):
                yield name, copy


def _written_by(
    writer: str,
    attempt: int,
    by_place: Mapping[CheckpointPlace, CheckpointsOf],
    copies: Iterator[tuple[str, HeldCopy]],
) -> dict[int, PlacedCheckpoint]:
    """Return the parts that a node has written in an attempt, by step, and who has each: itself first."""
    found: dict[int, PlacedCheckpoint] = {}
    for place, told in by_place.items():
        for part in told.parts if place.attempt == attempt else ():
            if part.step is not None:
                found.setdefault(part.step, PlacedCheckpoint(part, False, {writer: part.path}))
    for name, copy in copies:
        if copy.step is None:
            continue
        own = found.get(copy.step)
        if own is None:
            item = FoundCheckpoint(copy.source, PART, copy.step, copy.size_bytes, copy.time, copy.changed_ns)
            found[copy.step] = PlacedCheckpoint(item, False, {name: copy.path})
        elif _is_of(copy, own.found):
            own.holders.setdefault(name, copy.path)
    return found


def _is_of(copy: HeldCopy, part: FoundCheckpoint) -> bool:
    """Whether a copy is of that part as it is: another may have been written over it since."""
    is_same_time = copy.changed_ns == part.changed_ns or None in (copy.changed_ns, part.changed_ns)
    return is_same_time and (copy.source, copy.size_bytes) == (part.path, part.size_bytes)
