"""The head of the run screen: how far the job is, and when its last checkpoint was written."""

from __future__ import annotations

from dttui.jobs import JobView
from dttui.jobs.saved_text import SavedFiles
from dttui.tui.run_head import progress_line


def test_how_old_the_last_checkpoint_is_is_told_only_while_the_job_goes_on() -> None:
    view = JobView("job-1")
    view.saved = (SavedFiles("/here", "checkpoints", 1, 1, newest=1000.0),)
    assert progress_line(view, 80, 1090.0, is_over=False).plain.endswith("1m ago")
    over = progress_line(view, 80, 1090.0, is_over=True).plain
    assert over.startswith("last checkpoint ")
    assert "ago" not in over, "time stands still in a job that is over"
