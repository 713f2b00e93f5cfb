"""What a person types to see only some environments: words, and terms such as `gpu:A100 free>=4 state:idle`. Pure."""

from __future__ import annotations

from collections.abc import Collection

from dttui.tui import filter_terms
from dttui.tui.filter_terms import Terms
from dttui.tui.widgets.environment_row import EnvironmentRow

Filter = filter_terms.Filter[EnvironmentRow]


def _amount(text: str) -> float:
    return float(text.removesuffix("%").removesuffix("gb"))


TERMS: Terms[EnvironmentRow] = Terms(
    search=lambda row: row.search,
    texts={
        "name": lambda row: (row.name,),
        "gpu": lambda row: (row.gpus,),
        "zone": lambda row: (row.zone,),
        "kind": lambda row: row.kinds,
        "state": lambda row: row.states,
        "image": lambda row: (row.image,),
        "user": lambda row: (row.note,),
    },
    numbers={
        "gpus": lambda row: row.gpu_count,
        "free": lambda row: row.free_gpus,
        "util": lambda row: None if row.load is None else 100 * row.load,
        "cpus": lambda row: row.cpus,
        "memory": lambda row: row.memory_gb,
    },
    units=dict.fromkeys(("gpus", "free", "util", "cpus", "memory"), _amount),
)
"""GPUs, those that nobody has, load in percent, CPUs, memory in GB."""


def parse_filter(text: str) -> Filter:
    """Return what a person means; see `Terms.parse`."""
    return TERMS.parse(text)


def completions(text: str, rows: Collection[EnvironmentRow]) -> list[str]:
    """Return what the last word of a text may become; see `Terms.completions`."""
    return TERMS.completions(text, rows)
