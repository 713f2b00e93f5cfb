"""What a bench has printed that was never run, its job under way, and what is kept of it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from dtagent.protocol.events import JobState

from dttui.compose.bench_models import BenchReport, KeptBench
from dttui.compose.bench_report import MARK, make_report
from dttui.compose.kept_benches import keep_bench
from dttui.inventory.models import Inventory
from dttui.jobs.launch_file import LaunchFile
from dttui.spec.models import Job
from tests.tui.job_files import JobWriter

SIZES = (*(8 * 4**power for power in range(12)), 64 << 20)
FAST, SLOW = 3.1e9, 2.4e8
"""Bytes a second of links, of which the last is slow."""
ALPHA_S = 2.4e-5


def _seconds(size: int, alpha_s: float, bandwidth: float) -> float:
    """What a link takes that reaches with large messages alone what it can."""
    return alpha_s + size / bandwidth * (1 + 20_000 / (size + 20_000))


def bench_lines(hosts: int, ranks_a_host: int = 4, *, is_over: bool = True) -> list[str]:
    """Return what rank 0 prints; where it is not over, half of it."""
    pairs = list(combinations(range(hosts), 2))
    told: list[dict[str, Any]] = []
    for pair in pairs:
        bandwidth = SLOW if pair == pairs[-1] else FAST * (1 + 0.02 * pair[1])
        told.append({"kind": "tcp", "between": pair, "seconds": 2.1e-5})
        told += [
            {"kind": "pair", "between": pair, "size": size, "seconds": _seconds(size, ALPHA_S, bandwidth), "wrong": 0}
            for size in SIZES
        ]
    kinds = [("all_reduce", "native", host) for host in range(hosts)] + [
        (op, way, None)
        for op, way in (
            ("all_reduce", "native"),
            ("all_reduce", "ring"),
            ("all_gather", "native"),
            ("reduce_scatter", "native"),
            ("broadcast", "native"),
        )
    ]
    for number, (op, algorithm, host) in enumerate(kinds):
        ranks = ranks_a_host * (hosts if host is None else 1)
        usual = {"op": op, "algorithm": algorithm, "ranks": ranks, "host": host, "type": "float32", "wrong": 0}
        link = SLOW if host is None else 1.5e11
        told += [
            {**usual, "kind": "collective", "size": size, "seconds": (2 + number / 9) * _seconds(size, ALPHA_S, link)}
            for size in SIZES
        ]
    total = sum(record["kind"] != "tcp" for record in told)
    begin = {"kind": "begin", "backend": "nccl", "ranks": hosts * ranks_a_host, "total": total}
    records = [{**begin, "interfaces": ["eth0"] * hosts}, *told, {"kind": "end", "whole": True}]
    return [MARK + json.dumps(record) for record in (records if is_over else records[: len(records) // 2])]


def bench_report(names: Sequence[str]) -> BenchReport:
    """Return the report of it."""
    return make_report(bench_lines(len(names)), names)


def kept_bench(inventory: Inventory, names: Sequence[str]) -> KeptBench:
    """Keep it, of an hour ago."""
    addresses = {name: item.training_address for name in names if (item := inventory.find(name)) is not None}
    kept = KeptBench(measured_at=time.time() - 3600, job_id="bench-1", addresses=addresses, report=bench_report(names))
    keep_bench(kept)
    return kept


def bench_under_way(draft: Job, inventory: Inventory) -> JobWriter:
    """Return a job of which half is measured."""
    writer = JobWriter(draft, inventory)
    known = LaunchFile(inventory=inventory, base=Path(), language="en")
    writer.directory.launch.write_text(known.model_dump_json())
    for state in (JobState.PREFLIGHT, JobState.LAUNCHING, JobState.RUNNING):
        writer.state(state)
    first = writer.plan.nodes[0].name
    writer.logs(first, "0.out", *bench_lines(len(writer.plan.nodes), is_over=False))
    return writer
