"""Ranks that end well without having trained together: told wherever a person looks, in both languages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dttui import jobs
from dttui.jobs.disturbances import APART
from tests.gloo import LEAVES
from tests.integration.gangs import ONE, TWO
from tests.integration.headless import dttui, dttui_here, result_of, write_job
from tests.processes import ended_agents as ended_agents

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

ALONE = "import torch.distributed\n"
TOGETHER = ALONE + "torch.distributed.init_process_group('gloo')\n" + LEAVES
NONE = "the 2 ranks have formed no process group"
NONE_IN_CHINESE = "2 个 rank 没有组成进程组"


def job(home: Path, text: str, **fields: Any) -> Path:
    (home / "train.py").write_text(text)
    run = {"script": "train.py", "python": sys.executable}
    return write_job(home, {ONE: 1, TWO: 1}, framework="pytorch-ddp", run=run, **fields)


def findings_of(job_id: str) -> list[dict[str, Any]]:
    """Return what the job's events say of its groups."""
    return [event.data for event in jobs.find(job_id).read_events() if event.data.get("code") == APART]


def test_two_trainings_that_end_well_are_told_as_two_wherever_it_is_looked(tmp_path: Path) -> None:
    """Within 60 s, though the ranks run for a moment only."""
    done = dttui("--demo", "--apply", job(tmp_path, ALONE))
    assert done.returncode == 0, done.stderr
    assert NONE in done.stdout
    assert "finished in " in done.stdout
    assert (done.stdout + done.stderr).count("The script never calls init_process_group") == 1
    (summary,) = jobs.list_jobs()
    found = {
        NONE: [dttui_here("status", summary.job_id), dttui_here("ps", "--all"), dttui_here("diagnose", summary.job_id)],
        NONE_IN_CHINESE: [
            dttui_here("--lang", "zh", "status", summary.job_id),
            dttui_here("--lang", "zh", "ps", "--all"),
            dttui_here("--lang", "zh", "diagnose", summary.job_id),
        ],
    }
    for words, said in found.items():
        assert all(words in item.stdout for item in said), said
    assert [item["severity"] for item in findings_of(summary.job_id)] == ["warning"]


def test_a_group_that_is_required_and_not_formed_makes_a_good_end_a_failure(tmp_path: Path) -> None:
    """Within 60 s; of ranks that train together, and of those that are to train apart, nothing is told."""
    required = dttui("--demo", "--output", "json", "--apply", job(tmp_path, ALONE, require_process_group=True))
    assert (required.returncode, result_of(required)["state"]) == (100, "FAILED")
    assert NONE in result_of(required)["reason"]
    for text, wanted in ((TOGETHER, True), (ALONE, False)):
        done = result_of(
            dttui("--demo", "--output", "json", "--apply", job(tmp_path, text, require_process_group=wanted))
        )
        assert done["state"] == "SUCCEEDED"
        assert findings_of(done["job_id"]) == []
