"""Files a person opens and saves from the screen: job files, hosts to import, the job and hosts of the demo."""

from __future__ import annotations

import os
import posixpath
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dttui import locations
from dttui.errors import UsageError
from dttui.i18n import _
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Environment, Inventory
from dttui.inventory.ssh_hosts import import_ssh_config
from dttui.inventory.writer import add_environments
from dttui.services.launch import Submission
from dttui.spec import Job, dump_job, load_job

DEMO_JOB = Path("gpt", "job.yaml")
"""Relative to the examples."""


def load_demo() -> tuple[Inventory, Submission]:
    """Return the embedded cluster, and the job that is ready to launch on it."""
    examples = locations.shipped("examples")
    inventory = demo_inventory(locations.demo_root(), examples, sys.executable)
    path = examples / DEMO_JOB
    return inventory, Submission(load_job(path), inventory, path.parent)


def open_job(path: Path, inventory: Inventory) -> Submission:
    """Return the job of a file. Raises DocumentError with every problem and its place."""
    full = path.expanduser()
    return Submission(load_job(full), inventory, full.resolve().parent)


def save_job(path: Path, submission: Submission) -> Submission:
    """Write a job file that does from where it lies what the submission does, and return it as a submission.

    A directory that is sent with the job is named relative to the new file.

    Raises:
        UsageError: the file cannot be written.
    """
    target = Path(os.path.realpath(path.expanduser()))
    job = _moved(submission.job, submission.base, target.parent)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, dump_job(job))
    except OSError as error:
        raise UsageError(_("cannot write {file}: {reason}").format(file=path, reason=error.strerror)) from error
    return Submission(job, submission.inventory, target.parent)


def is_there(path: Path) -> bool:
    """Whether a file of that name exists."""
    return path.expanduser().exists()


def has_comments(path: Path) -> bool:
    """Whether a file seems to have comments in it; `False` where it cannot be read."""
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return re.search(r"(^|\s)#", text, re.MULTILINE) is not None


def importable_hosts(inventory: Inventory) -> list[Environment]:
    """Return the hosts of ~/.ssh/config that the inventory lacks. Raises DocumentError where it cannot be read."""
    return [item for item in import_ssh_config(locations.ssh_config_file()) if inventory.find(item.name) is None]


def import_hosts(path: Path, hosts: Sequence[Environment]) -> Inventory:
    """Add hosts to an inventory file. Raises UsageError where it cannot be written."""
    return add_environments(path, hosts)


def _moved(job: Job, base: Path, directory: Path) -> Job:
    run = job.run
    if run is None or directory == base.resolve():
        return job
    sent = run.workdir
    if sent is None and run.script is not None and not posixpath.isabs(run.script):
        sent = "."
    if sent is None or posixpath.isabs(sent):
        return job
    workdir = os.path.relpath(base.resolve() / sent, directory)
    return job.model_copy(update={"run": run.model_copy(update={"workdir": workdir})})


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
