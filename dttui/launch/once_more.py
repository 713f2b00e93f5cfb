"""A job that was submitted before, to be submitted once more as it was."""

from __future__ import annotations

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.jobs.directory import JobDirectory
from dttui.planning.submission import Submission
from dttui.spec import decode, parse_document, read_bytes


def once_more(directory: JobDirectory, *, continues: bool) -> Submission:
    """Return what was submitted then.

    Args:
        directory: of the job.
        continues: whether it goes on from the newest checkpoint of that one.

    Raises:
        UsageError: its files cannot be read; or it is not over, and nothing can go on from it.
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
        launched.ignored,
        loaded.source,
        continues=directory.job_id if continues else None,
    )
