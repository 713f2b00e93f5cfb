"""Which job that runs is the one that is about to be launched: applying a job twice attaches to it.

Two jobs are the same when they come from the same directory, say the same in their job files, whatever the comments and
the order of keys, and use the same environments. The files they send do not count: what of those has changed since is
told.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from dtagent.protocol.tree import decode_tree

from dttui import locations
from dttui.errors import UsageError
from dttui.files import alone
from dttui.inventory.models import Dataset, Environment, Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.launch_file import LaunchFile
from dttui.spec import parse_document
from dttui.spec.models import DatasetRef, Job
from dttui.workdir.selection import survey
from dttui.workdir.upload import make_bundle

START_S = 30.0
"""How long after its submission a job counts as running that has no controller yet."""
MOST_KEPT = 16
"""Job files of jobs that run, which are compared with the one to be launched in two ways."""


def find_running(job: Job, inventory: Inventory, base: Path, names: Collection[str]) -> JobDirectory | None:
    """Return the same job that is being started or runs under a controller, the newest of several.

    What was recorded at its launch is read and compared as values, so that what a newer dttui adds changes nothing.

    Args:
        job: as its file says.
        inventory: where those are that it uses; whatever else has changed there is no other job's mark.
        base: directory that its relative paths start from.
        names: of the environments that it names.
    """
    for directory, launch in _running():
        if launch is None or launch.base.resolve() != base.resolve():
            continue
        if _used(launch.inventory, job, names) == _used(inventory, job, names) and _document(directory) == job:
            return directory
    return None


def _used(inventory: Inventory, job: Job, names: Collection[str]) -> tuple[dict[str, Environment], Dataset | None]:
    """Return what an inventory says of the environments of some names, and of the job's dataset."""
    environments = {item.name: item for item in inventory.environments if item.name in names}
    return environments, inventory.find_dataset(job.dataset.id) if isinstance(job.dataset, DatasetRef) else None


def find_earlier(job: Job, base: Path, file: str) -> tuple[JobDirectory, list[str]] | None:
    """Return the newest job that runs from the same file, and the keys in which the file was another then.

    Of one whose launch a newer dttui has recorded in a way of its own, the same job from the same directory is meant.

    Args:
        job: as the file says now.
        base: the file's directory.
        file: what the person calls it.
    """
    for directory, launch in _running():
        if launch is not None and (
            launch.file is None or launch.base != base or Path(launch.file).name != Path(file).name
        ):
            continue
        before = _document(directory)
        is_meant = launch is not None or (before == job and _base(directory) == base)
        if before is not None and is_meant:
            return directory, sorted(_differing(before.model_dump(mode="json"), job.model_dump(mode="json")))
    return None


def find_on_hosts(module: str, addresses: Collection[str]) -> tuple[JobDirectory, list[str]] | None:
    """Return the newest job that runs a module on any of some hosts, with the names that it has for those.

    Args:
        module: as `run.module` has it.
        addresses: by which the hosts reach each other.
    """
    for directory, launch in _running():
        job = _document(directory) if launch is not None else None
        if launch is None or job is None or job.run is None or job.run.module != module:
            continue
        known = [launch.inventory.find(node.id) for node in job.cluster.nodes]
        shared = [item.name for item in known if item is not None and item.training_address in addresses]
        if shared:
            return directory, shared
    return None


def _base(directory: JobDirectory) -> Path | None:
    """Return the directory that a job was launched from, as far as any version's record says so."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return Path(json.loads(directory.launch.read_bytes())["base"])
    return None


def _document(directory: JobDirectory) -> Job | None:
    """Return what the job file of a job says; `None` where it cannot be read any more."""
    with contextlib.suppress(OSError, UsageError):
        return _parsed(directory.document)
    return None


@functools.lru_cache(maxsize=MOST_KEPT)
def _parsed(document: Path) -> Job:
    """Return the job in the directory of one that runs; nobody writes there again. Raises OSError or UsageError."""
    return parse_document(document.read_text(encoding="utf-8"), str(document)).job


def _differing(one: object, other: object, path: str = "") -> Iterator[str]:
    """Yield the keys, such as `run.args`, whose values are not the same."""
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from _differing(one.get(key), other.get(key), f"{path}.{key}" if path else str(key))
    else:
        yield path


def _running() -> Iterator[tuple[JobDirectory, LaunchFile | None]]:
    """Yield the jobs that are being started or run under a controller, and what was written at their launch.

    That is `None` where it is of another version of dttui, or damaged.
    """
    found = []
    for path in locations.jobs_directory().glob("*/launch.json"):
        with contextlib.suppress(OSError):
            found.append((path.stat().st_mtime, path))
    for _written_at, path in sorted(found, reverse=True):
        directory = JobDirectory(path.parent)
        with contextlib.suppress(OSError):
            is_there = directory.has_controller() or _is_starting(path)
            if not is_there or directory.is_over():
                continue
            try:
                launch = directory.read_launch()
            except UsageError:
                launch = None
            yield directory, launch


def one_submission_at_a_time() -> contextlib.AbstractContextManager[None]:
    """Keep another dttui of this user from submitting a job meanwhile."""
    root = locations.jobs_directory()
    return alone(root / ".submit.lock", root)


def changed_files(directory: JobDirectory, attempt: int, upload: Path) -> list[str] | None:
    """Return the files of a working directory that are not what a job runs with; `None` where that is not known."""
    try:
        before = {item.path: item.digest for item in decode_tree(directory.files(attempt).read_text(encoding="utf-8"))}
        bundle = make_bundle(survey(upload).files)
    except (OSError, ValueError, UsageError):
        return None
    now = {item.path: item.digest for item in decode_tree(bundle.text)}
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def _is_starting(launch: Path) -> bool:
    return 0 <= time.time() - launch.stat().st_mtime < START_S
