"""Benches on the embedded cluster, for real: what they hold meanwhile, when they end, and what is said of their end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dttui.app import App
from dttui.compose import link_bench
from dttui.inventory.demo import demo_inventory
from dttui.jobs import JobDirectory
from dttui.jobs.view import JobView
from dttui.planning.submission import Submission
from dttui.spec.loader import load_document
from tests.integration.headless import DEADLINE_S, EXAMPLE, dttui_here, shell_job, write_job
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

pytestmark = pytest.mark.torch
ONE, TWO = "pytorch-dev-env", "llm-training-env"
IN_A_RANK = """
import functools, os, pathlib, sys, time
if "RANK" in os.environ:
    import torch, torch.distributed as dist
    from datetime import timedelta
    rank, place = int(os.environ["RANK"]), pathlib.Path(__file__).parent
"""
WAITS = """
    init = dist.init_process_group
    def init_process_group(*told, **named):
        (place / "here").touch()
        while not (place / "go").exists():
            time.sleep(0.05)
        init(*told, **named)
    dist.init_process_group = init_process_group
"""
LATE = """
    dist.send = lambda tensor, peer: dist.isend(tensor, peer).wait(timedelta(seconds=2))
    if rank == 1:
        dist.recv = lambda *told: time.sleep(600)
"""
"""What gloo has to say after two minutes it says after two seconds."""
LATE_IN_THE_RING = """
    usual = dist.all_reduce
    def all_reduce(*told, **named):
        (module,) = [module for name, module in sys.modules.items() if name.endswith("collectives.communicator")]
        found = module.DistributedCommunicator
        if rank == 1:
            found.call = lambda *told, **named: time.sleep(600)
        else:
            found.call = functools.partialmethod(call_of.setdefault(rank, found.call), timeout_s=2.0)
        return usual(*told, **named)
    call_of = {}
    dist.all_reduce = all_reduce
"""
WITHOUT_MEMORY = """
    if rank == 1:
        dist.recv = lambda *told: torch.empty(1 << 50, dtype=torch.uint8)
"""


def begun(directory: Path, change: str, largest: int = 64) -> JobDirectory:
    """Start a bench of one rank on each of two hosts, whose ranks are changed in something."""
    (directory / "changes").mkdir()
    (directory / "changes" / "sitecustomize.py").write_text(IN_A_RANK + change)
    run = {"script": "train.py", "env": {"PYTHONPATH": str(directory / "changes")}}
    (directory / "train.py").touch()
    job = load_document(write_job(directory, {ONE: 1, TWO: 1}, framework="pytorch-ddp", run=run)).job
    inventory = demo_inventory(Path(os.environ["DTTUI_DEMO_ROOT"]), EXAMPLE.parent, sys.executable)
    face = App()
    wanted = face.bench.submission(inventory, (), Submission(job, inventory, directory), largest)
    return face.submit(wanted, face.plan(wanted), starts_another=True).directory


def ended(directory: JobDirectory) -> JobView:
    follower = App().follow(directory, reads_samples=False)

    def is_over() -> bool:
        follower.catch_up()
        return follower.is_over

    wait_until(is_over, "the bench to end", DEADLINE_S)
    return follower.view


def test_a_bench_holds_what_it_measures_until_it_ends_and_begins_no_size_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_bench, "LIMIT_S", 0.0)
    directory = begun(tmp_path, WAITS)
    (tmp_path / "other").mkdir()
    other = shell_job(tmp_path / "other", {ONE: 2}, "true")
    try:
        wait_until(lambda: (tmp_path / "changes" / "here").exists(), "a rank of the bench to run", DEADLINE_S)
        refused = dttui_here("--demo", "--apply", other)
        refused_by_host = dttui_here("--demo", "--apply", other, "--new", "--ignore", "gpus-taken")
    finally:
        (tmp_path / "changes" / "go").touch()
    for done, free in ((refused, "1 free GPU"), (refused_by_host, "2 simulated GPUs are wanted and 1 are free here")):
        assert done.returncode, done.stdout
        assert free in done.stderr
        assert f"job {directory.job_id}" in done.stderr
    view = ended(directory)
    assert view.exit_code == 0, view.reason
    kept, findings = App().bench.finish(directory, view)
    sizes = [(row.op, row.algorithm, row.size_bytes) for row in kept.report.rows]
    assert sizes == [
        ("sendrecv", "ping-pong", 8),
        ("all_reduce", "native", 8),
        ("all_reduce", "ring", 8),
        ("all_gather", "native", 8),
        ("reduce_scatter", "native", 8),
        ("broadcast", "native", 8),
    ]
    assert not kept.report.is_whole
    assert len(sizes) + kept.report.left_out == kept.report.total
    assert findings == ()
    done = dttui_here("--demo", "--apply", other)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("change", "codes", "told", "remedies"),
    [
        (LATE, {"collective-timeout"}, "did not come to a collective in time", ("network", "smaller batches")),
        (LATE_IN_THE_RING, {"collective-timeout"}, "did not come to a collective in time", ("network",)),
        (
            WITHOUT_MEMORY,
            {"memory-refused", "memory-limit"},  # By what was read of the host by then.
            "had no memory",
            ("smaller batches", "gradient accumulation", "mixed precision"),
        ),
    ],
    ids=["late", "late in the ring", "without memory"],
)
def test_what_ended_a_bench_is_found_in_its_job_with_the_remedies(
    tmp_path: Path, change: str, codes: set[str], told: str, remedies: tuple[str, ...]
) -> None:
    directory = begun(tmp_path, change)
    view = ended(directory)
    assert view.exit_code == 100, view.reason
    kept, findings = App().bench.finish(directory, view)
    assert len(findings) == 1, view.reason
    (finding,) = findings
    assert finding.code in codes
    assert told in finding.message
    assert all(remedy in finding.hint for remedy in remedies)
    assert kept.report.total
    assert not kept.report.is_whole
