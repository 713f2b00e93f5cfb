"""How torchrun has numbered a node's ranks, where it does so by itself: what the ranks wrote when they started."""

from __future__ import annotations

import contextlib
import itertools

from dtagent.locations import AttemptFiles, rank_of
from dtagent.protocol.jobs import MAX_NODE_RANKS
from dtagent.protocol.meeting import Numbering
from dtagent.system import untrusted_files

_KEYS = ("local_rank", "local_world_size", "world_size", "restarts", "port")


def read(files: AttemptFiles) -> Numbering | None:
    """Return the numbering; `None` where it is as planned, or the ranks are just being started anew."""
    found: dict[int, tuple[int, tuple[int, ...]]] = {}
    for path in itertools.islice(files.ranks.glob("*.json"), 3 * MAX_NODE_RANKS):
        rank = rank_of(path)
        if rank is None:
            continue
        try:
            body = untrusted_files.read_object(path)
            local_rank, *common = (body[key] for key in _KEYS)
        except (OSError, ValueError, KeyError):
            return None
        if not all(isinstance(value, int) for value in (local_rank, *common)) or local_rank in found:
            return None
        found[local_rank] = rank, tuple(common)
    if sorted(found) != list(range(len(found))) or len({common for _rank, common in found.values()}) != 1:
        return None
    local_world_size, world_size, restarts, port = found[0][1]
    if len(found) != local_world_size:
        return None
    with contextlib.suppress(ValueError):
        return Numbering([found[local_rank][0] for local_rank in range(len(found))], world_size, restarts, port)
    return None
