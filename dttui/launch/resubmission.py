"""A job once more: what was submitted then, read from its directory; and what of its files is another now."""

from __future__ import annotations

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.jobs import JobDirectory
from dttui.jobs.following import JobFollower
from dttui.launch.same_job import changed_files
from dttui.planning import Submission
from dttui.spec import decode, parse_document, read_bytes


def read_submission(directory: JobDirectory, *, continues: bool) -> Submission:
    """Return what was submitted then, on the hosts as they were known then.

    Args:
        directory: of the job.
        continues: whether it is to go on from the job's newest checkpoint.

    Raises:
        UsageError: its files cannot be read, or it is to go on and is not over.
        DocumentError: its job file is damaged.
    """
    if continues and not directory.is_over():
        raise UsageError(
            _("{id} is not over").format(id=directory.job_id),
            _("Stop it first: dttui stop {id}").format(id=directory.job_id),
        )
    name = str(directory.document)
    text = decode(read_bytes(directory.document, name), name)
    loaded = parse_document(text, name)
    try:
        launched = directory.read_launch()
    except OSError as fault:
        raise UsageError(
            _("{path} cannot be read: {reason}").format(path=fault.filename, reason=fault.strerror)
        ) from fault
    return Submission(
        loaded.job,
        launched.inventory,
        launched.base,
        text,
        launched.file or name,
        loaded.notes,
        tuple(launched.ignored),
        loaded.source,
        continues=directory.job_id if continues else None,
    )


def changed_since(directory: JobDirectory, submission: Submission) -> list[str]:
    """Return the files of a submission's working directory that are not what the job ran with, as far as is known."""
    if submission.job.run is None or submission.job.run.workdir is None:
        return []
    follower = JobFollower(directory, reads_samples=False)
    follower.catch_up()
    upload = submission.base / submission.job.run.workdir
    return changed_files(directory, follower.view.attempt, upload) or []
