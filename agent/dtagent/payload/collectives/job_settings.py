"""What the job says of its collectives, as dttui has written it into the file that `DTTUI_CONFIG` names.

Scripts that run without dttui have no such file: then nothing is said.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .choosing import KnownLinks
from .clock import NetworkLink
from .schedules import ALGORITHMS, Collective

_PLACES = {
    Collective.ALL_REDUCE: "allreduce",
    Collective.BROADCAST: "broadcast",
    Collective.ALL_GATHER: "allgather",
    Collective.REDUCE_SCATTER: "reduce_scatter",
    Collective.GATHER: "gather",
}
"""What the job calls them."""


class JobSettings(NamedTuple):
    """What of it matters here."""

    algorithms: Mapping[Collective, str] = {}
    """The algorithm of each collective of which the job names one that there is."""
    bucket_bytes: int | None = None
    """Gradients that go together."""
    compression: str = "none"
    """`none`, `fp16`, `bf16`, `topk` or `powersgd`."""
    overlaps: bool = True
    """Whether gradients are sent while the backward pass computes others."""
    ranks_per_node: tuple[int, ...] = ()
    """Of each node, in their order of ranks; nothing where that is not the same for as long as the job runs."""
    network: KnownLinks | None = None
    """What is known of the links between and inside the nodes."""


def job_settings() -> JobSettings:
    """Return what the job says; each file is read once."""
    return _read(os.environ.get("DTTUI_CONFIG") or "")


@functools.lru_cache(maxsize=1)
def _read(path: str) -> JobSettings:
    if not path:
        return JobSettings()
    document: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    talk, distributed = document.get("communication") or {}, document.get("distributed") or {}
    named = {}
    for kind, place in _PLACES.items():
        said = talk.get(place) or (talk.get("collective_ops") or {}).get(place) or {}
        if said.get("algorithm") in ALGORITHMS[kind]:
            named[kind] = said["algorithm"]
    return JobSettings(
        named,
        distributed.get("bucket_bytes"),
        distributed.get("compression") or "none",
        distributed.get("overlap") is not False,
        tuple(distributed.get("ranks_per_node") or ()),
        _network(distributed.get("links") or {}),
    )


def _network(links: Mapping[str, Any]) -> KnownLinks | None:
    between, inside = (
        NetworkLink(link["latency_s"], link["bandwidth"]) if (link := links.get(name)) else None
        for name in ("between", "inside")
    )
    return KnownLinks(between, inside) if between is not None else None
