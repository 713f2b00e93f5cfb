"""`again`: a job once more, as it was or with other values. It is another job, with a directory of its own."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Coroutine

from dttui import jobs
from dttui.app import App
from dttui.cli.printing import one_line
from dttui.cli.run import launch, print_plan
from dttui.cli.sources import read_inventory
from dttui.errors import UsageError
from dttui.i18n import _
from dttui.jobs import JobDirectory, JobFollower, check_ignored
from dttui.planning import Submission
from dttui.spec import decode, parse_document, read_bytes, with_values
from dttui.words import listed

MAX_NAMES = 5


def again(options: Namespace) -> int | Coroutine[object, object, int]:
    """Run a job once more; on the hosts as they were known then, where no inventory is named."""
    directory = jobs.find(options.job)
    submission = _read(directory, options)
    _tell_changed(directory, submission)
    if options.dry_run:
        return print_plan(submission, options)
    return launch(submission, submission.file or "--set", options, starts_another=True)


def _read(directory: JobDirectory, options: Namespace) -> Submission:
    """Return what was submitted then, with the values that are set now.

    Raises:
        UsageError: its files cannot be read, or the values are not what a job takes.
    """
    name = str(directory.document)
    text = decode(read_bytes(directory.document, name), name)
    loaded = parse_document(text, name)
    try:
        launched = directory.read_launch()
    except OSError as fault:
        raise UsageError(
            _("{path} cannot be read: {reason}").format(path=fault.filename, reason=fault.strerror)
        ) from fault
    inventory = read_inventory(options) if options.inventory or options.demo else launched.inventory
    ignored = tuple(dict.fromkeys((*launched.ignored, *check_ignored(options.ignore))))
    if options.settings:
        return Submission(with_values(loaded.job, options.settings), inventory, launched.base, ignored=ignored)
    return Submission(
        loaded.job, inventory, launched.base, text, launched.file or name, loaded.notes, ignored, loaded.source
    )


def _tell_changed(directory: JobDirectory, submission: Submission) -> None:
    """Say which files of the working directory are not what the job ran with."""
    if submission.job.run is None or submission.job.run.workdir is None:
        return
    follower = JobFollower(directory, reads_samples=False)
    follower.catch_up()
    upload = submission.base / submission.job.run.workdir
    if changed := App().changed_files(directory, follower.view.attempt, upload):
        told = _("⚠ these files are not what {id} ran with: {names}")
        sys.stderr.write(one_line(told.format(id=directory.job_id, names=listed(changed, MAX_NAMES))) + "\n")
