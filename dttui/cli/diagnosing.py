"""`diagnose`: why a job failed, or how it stands where it has not."""

from __future__ import annotations

from argparse import Namespace

from dttui import jobs
from dttui.app import App
from dttui.cli.printing import one_line, places_text, print_document, sections_text
from dttui.diagnosis import sections
from dttui.diagnosis.diagnosis_data import document
from dttui.errors import ExitCode
from dttui.i18n import _
from dttui.words import state_name


def diagnose_job(options: Namespace) -> int:
    """Tell why a job failed; return its outcome, or 101 while it is not over."""
    directory = jobs.find(options.job)
    follower = App().follow(directory, reads_samples=False)
    follower.catch_up()
    found = App().diagnose(directory, follower.view)
    if options.output != "human":
        print_document({**document(found), "directory": str(directory.path)}, options.output)
    else:
        attempt = _("attempt {number}").format(number=found.evidence.attempt)
        print(one_line(f"{directory.job_id}  {state_name(found.evidence.state)}  {attempt}"))
        print(sections_text(sections(found)) + places_text(follower.view, directory), end="")
    return follower.view.exit_code if follower.view.exit_code is not None else ExitCode.NOT_FINISHED
