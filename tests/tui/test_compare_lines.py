"""What is told of jobs that are compared: only what differs, a letter each, in as many cells as there are."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from dttui import jobs
from dttui.jobs import JobEntry, smoothed
from dttui.spec.models import Run
from dttui.tui.compare_lines import compared_curves, difference_lines, job_lines
from tests.tui import job_files
from tests.tui.fake_fleet import job, make_inventory
from tests.tui.screens import CHOSEN


def test_of_three_jobs_only_what_differs_is_told_and_each_has_its_curve() -> None:
    inventory = make_inventory()
    faster = Run(script="/opt/train.py", args=("--lr", "0.003"))
    writers = [
        job_files.trained(job(*CHOSEN, name="base"), inventory, 1.0),
        job_files.trained(job(*CHOSEN, name="faster", run=faster), inventory, 1.6),
        job_files.trained(job(*CHOSEN[:2], name="small", run=faster), inventory, 0.7),
    ]
    silent = jobs.create("silent")
    found = jobs.contrast([*(writer.directory for writer in writers), silent])
    assert {item.key for item in found.differences} >= {"plan.world_size", "plan.nodes.2.name"}
    assert "name" not in {item.key for item in found.differences}  # The last one has no job file to compare.
    loss, speed = compared_curves(found)
    assert [stroke.letter for stroke in speed.curves.strokes] == ["A", "B", "C"]
    assert [stroke.letter for stroke in loss.curves.strokes] == ["", "", "", "A", "B", "C"]
    raw, smooth = loss.curves.strokes[0], loss.curves.strokes[3]
    assert (raw.part, smooth.part) == ("faint plot-loss", "plot-loss")
    assert smooth.points == smoothed(tuple(raw.points)), "as on the screen of each job"
    assert loss.curves.strokes[0].points[-1][0] == 400.0

    found = jobs.contrast([writer.directory for writer in writers])
    told = {item.key: item.values for item in found.differences}
    assert told["name"] == ("base", "faster", "small")
    assert told["run.args.0"] == ("--steps", "--lr", "--lr")
    assert "framework" not in told


@pytest.mark.parametrize("width", [40, 77, 197])
def test_lines_of_a_comparison_fit(width: int) -> None:
    inventory = make_inventory()
    writers = [job_files.trained(job(*CHOSEN, name=name * 9), inventory, 1.0) for name in ("长名", "b")]
    found = jobs.contrast([writer.directory for writer in writers])
    entries = [JobEntry(jobs.summarize(writer.directory)) for writer in writers]
    lines = difference_lines(found, width).plain.splitlines()
    assert lines[0].split() == ["A", "B"]
    assert all(cell_len(line) <= width for line in lines)
    if width > 70:
        assert all(cell_len(line) <= width for line in job_lines(entries, found, width).plain.splitlines())
