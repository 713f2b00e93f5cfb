"""Where the files of a job are: the directory that is sent, the working directory, the dataset, what must be there."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from dttui.frameworks.base import DatasetLocation
from dttui.frameworks.bundle import Hole
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.spec.findings import Finding, error
from dttui.spec.models import Job, Run, Storage
from dttui.spec.problems import did_you_mean

SENT_DIRECTORY = "work"
"""Where a directory that is sent arrives, relative to the attempt's."""


@dataclass(frozen=True)
class Sources:
    """Where processes start, and what they need there."""

    upload: str | None
    """Directory to send, relative to the job file's; `None` where nothing is sent."""
    cwd: str
    """Working directory on the hosts."""
    required_paths: tuple[str, ...]
    """Absolute paths that must exist on every host."""
    findings: tuple[Finding, ...]


def locate_sources(run: Run) -> Sources:
    """Return where a job's program is.

    An absolute `workdir` is on every host already. A relative one lies beside the job file and is sent; so is the
    directory of the job file itself where a relative script comes without a `workdir`.
    """
    workdir, script = run.workdir, run.script
    for key, path in (("run.workdir", workdir), ("run.script", script)):
        if path is not None and path.startswith("~"):
            message = _("{key} begins with ~, which means another directory on every host").format(key=key)
            return Sources(None, str(Hole.DIRECTORY), (), (error("tilde", key, message, _("Write the whole path.")),))
    if workdir is None and script is not None and not posixpath.isabs(script):
        workdir = "."
    absolute_script = (script,) if script is not None and posixpath.isabs(script) else ()
    if workdir is None:
        return Sources(None, str(Hole.DIRECTORY), absolute_script, ())
    if posixpath.isabs(workdir):
        there = posixpath.normpath(workdir)
        programs = (posixpath.normpath(posixpath.join(there, script)),) if script is not None else ()
        return Sources(None, there, (there, *programs), ())
    findings: tuple[Finding, ...] = ()
    if script is not None and not absolute_script and posixpath.normpath(script).split("/")[0] == "..":
        message = _("the script {script} is outside the directory that is sent").format(script=script)
        hint = _("Set run.workdir to a directory that holds it, and write the script relative to that.")
        findings = (error("script-outside", "run.script", message, hint),)
    cwd = f"{Hole.DIRECTORY}/{SENT_DIRECTORY}"
    return Sources(posixpath.normpath(workdir), cwd, absolute_script, findings)


def locate_dataset(job: Job, inventory: Inventory) -> tuple[DatasetLocation | None, list[Finding]]:
    """Return the dataset of a job; a path the job gives itself needs no entry in the catalogue."""
    wanted = job.dataset
    if wanted is None:
        message = _("the job does not say which dataset it uses")
        hint = _("Write dataset: {id: …}, or dataset: none where the script needs none from the catalogue.")
        return None, [error("dataset-missing", "dataset", message, hint)]
    if wanted == "none":
        return None, []
    if wanted.path is not None:
        return DatasetLocation(wanted.id, wanted.version, wanted.path), []
    dataset = inventory.find_dataset(wanted.id)
    if dataset is None:
        known = [item.id for item in inventory.datasets]
        message = _('the catalogue has no dataset "{id}"').format(id=wanted.id)
        return None, [error("unknown-dataset", "dataset.id", message, _hint(wanted.id, known))]
    version = dataset.find(wanted.version)
    if version is None:
        known = [item.id for item in dataset.versions]
        message = _('the dataset "{id}" has no version "{version}"').format(id=wanted.id, version=wanted.version)
        return None, [error("unknown-dataset-version", "dataset.version", message, _hint(str(wanted.version), known))]
    return DatasetLocation(dataset.id, version.id, version.path), []


def required_paths(job: Job, dataset: DatasetLocation | None, sources: Sources | None) -> tuple[str, ...]:
    """Return the absolute paths that must exist on every host: of the program, the dataset and declared storage."""
    stored = (item.path for item in _storage(job) if item.path and posixpath.isabs(item.path))
    data = (dataset.path,) if dataset is not None and posixpath.isabs(dataset.path) else ()
    return tuple(dict.fromkeys((*(sources.required_paths if sources is not None else ()), *data, *stored)))


def required_room(job: Job) -> dict[str, int]:
    """Return the absolute paths that must have room on every host, and how many bytes."""
    room: dict[str, int] = {}
    for item in _storage(job):
        if item.path and item.size is not None:
            room[item.path] = max(item.size, room.get(item.path, 0))
    return room


def _storage(job: Job) -> list[Storage]:
    storage = job.resources.storage
    return [item for item in (storage.local, storage.shared) if item is not None] if storage is not None else []


def _hint(word: str, known: list[str]) -> str:
    if not known:
        return _("The inventory lists no datasets; add it there, or give its path in the job.")
    return did_you_mean(word, known) or _("There are: {names}.").format(names=", ".join(known[:10]))
