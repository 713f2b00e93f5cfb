"""What the job says of its collectives, as dttui has written it into the file that `DTTUI_CONFIG` names.

Scripts that run without dttui have no such file: then nothing is said.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .schedules import ALGORITHMS, Collective

if TYPE_CHECKING:
    from .compression import Compression

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


def job_settings() -> JobSettings:
    """Return what the job says; each file is read once."""
    return _read(os.environ.get("DTTUI_CONFIG") or "")


def job_compression() -> Compression | None:
    """Return how the job has gradients compressed, as an option of `all_reduce` and of `GradientSynchronizer`.

    Each call makes another one, with nothing left out yet; `None` where they are sent as they are.
    """
    import torch  # Takes seconds, and whoever only asks for sizes goes without.

    from .compression import HalfPrecision, PowerSgd, TopK

    kinds: dict[str, Callable[[], Compression]] = {
        "fp16": lambda: HalfPrecision(torch.float16),
        "bf16": HalfPrecision,
        "topk": TopK,
        "powersgd": PowerSgd,
    }
    kind = job_settings().compression
    return kinds[kind]() if kind in kinds else None


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
    )
