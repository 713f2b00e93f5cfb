"""`again` and `restart`: a job once more, from its beginning or from where it had come. It is another job each time."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Coroutine
from dataclasses import replace

from dttui import jobs
from dttui.app import App
from dttui.cli.apply import launch, print_plan
from dttui.cli.printing import one_line
from dttui.cli.sources import read_inventory
from dttui.i18n import _
from dttui.jobs import JobDirectory, check_ignored
from dttui.planning import Submission
from dttui.spec import with_values
from dttui.words import listed

MAX_NAMES = 5


def again(options: Namespace) -> int | Coroutine[object, object, int]:
    """Run a job once more; on the hosts as they were known then, where no inventory is named."""
    directory = jobs.find(options.job)
    return _launched(directory, _read(directory, options, continues=False), options)


def restart(options: Namespace) -> int | Coroutine[object, object, int]:
    """Do the same, and let it go on from the newest checkpoint that the hosts have.

    Raises:
        UsageError: the job is not over.
    """
    directory = jobs.find(options.job)
    submission = _read(directory, options, continues=True)
    told = _("goes on from the newest complete checkpoint of {id}: its hosts are asked before the start")
    sys.stderr.write(one_line(told.format(id=directory.job_id)) + "\n")
    return _launched(directory, submission, options)


def _launched(
    directory: JobDirectory, submission: Submission, options: Namespace
) -> int | Coroutine[object, object, int]:
    _tell_changed(directory, submission)
    if options.dry_run:
        return print_plan(submission, options)
    return launch(submission, submission.file or "--set", options, starts_another=True)


def _read(directory: JobDirectory, options: Namespace, *, continues: bool) -> Submission:
    """Return what was submitted then, with the values that are set now.

    Raises:
        UsageError: its files cannot be read, or the values are not what a job takes; or it is to be gone on from, and
            not over.
    """
    launched = App().resubmission(directory, continues=continues)
    inventory = read_inventory(options) if options.inventory or options.demo else launched.inventory
    ignored = tuple(dict.fromkeys((*launched.ignored, *check_ignored(options.ignore))))
    if options.settings:
        job, before = with_values(launched.job, options.settings), launched.continues
        return Submission(job, inventory, launched.base, ignored=ignored, continues=before)
    return replace(launched, inventory=inventory, ignored=ignored)


def _tell_changed(directory: JobDirectory, submission: Submission) -> None:
    """Say which files of the working directory are not what the job ran with."""
    if changed := App().changed_since(directory, submission):
        told = _("⚠ these files are not what {id} ran with: {names}")
        sys.stderr.write(one_line(told.format(id=directory.job_id, names=listed(changed, MAX_NAMES))) + "\n")
