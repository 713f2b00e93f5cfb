"""The runs that estimates are held against: each is in the half that its name's hash says, cited, and adds up."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.accuracy import TABLES, tables

RUNS = Path(__file__).parents[3] / "bench/measured_runs"
MEASURES = {
    "tokens_per_s_per_gpu",
    "step_s",
    "tflops_per_gpu",
    "mfu_percent",
    "memory_gib",
    "memory_gb",
    "images_per_s",
}


def rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.load((RUNS / name).read_text(encoding="utf-8"), yaml.CSafeLoader)
    return found


@pytest.mark.parametrize(("half", "remainder"), [("fit", 0), ("end", 1)])
def test_a_run_is_in_the_half_that_the_hash_of_its_name_says(half: str, remainder: int) -> None:
    names = [row["id"] for row in rows(f"{half}.yaml")]
    assert len(names) == len(set(names)) > 250
    assert {int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 for name in names} == {remainder}


@pytest.mark.parametrize("half", ["fit", "end"])
def test_a_run_says_where_it_is_from_what_ran_and_what_was_measured(half: str) -> None:
    sources = (RUNS / "sources.md").read_text(encoding="utf-8")
    for row in rows(f"{half}.yaml"):
        assert row["where"], row["id"]
        assert row["id"].partition("/")[0] in sources, row["id"]
        assert row["gpu"]["count"] >= 1, row["id"]
        assert MEASURES & row["measured"].keys(), row["id"]


@pytest.mark.parametrize("half", ["fit", "end"])
def test_the_degrees_of_a_run_make_its_gpus(half: str) -> None:
    for row in rows(f"{half}.yaml"):
        layout = row["layout"]
        degrees = [layout.get(name) or 1 for name in ("tp", "pp", "cp")]
        model = degrees[0] * degrees[1] * degrees[2]
        assert row["gpu"]["count"] % model == 0, row["id"]
        assert (layout.get("dp") or row["gpu"]["count"] // model) * model == row["gpu"]["count"], row["id"]


def test_the_tables_of_runs_and_what_is_said_of_them_are_of_the_estimates_of_now() -> None:
    assert TABLES.read_text(encoding="utf-8").splitlines() == list(tables()), "run `python bench/accuracy.py --write`"
