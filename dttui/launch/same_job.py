"""Which job that runs is the one that is about to be launched: applying a job twice attaches to it.

Two jobs are the same when they come from the same directory, say the same in their job files, whatever the comments and
the order of keys, and would run the same commands on the same environments. The files they send do not count: what of
those has changed since is told.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from dtagent.protocol.tree import decode_tree

from dttui import locations
from dttui.errors import UsageError
from dttui.files import make_private
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.launch_file import LaunchFile
from dttui.planning.models import Plan
from dttui.spec import parse_document
from dttui.spec.models import Job
from dttui.workdir.selection import survey
from dttui.workdir.sending import make_bundle

START_S = 30.0
"""How long after its submission a job counts as running that has no controller yet."""


def identity(job: Job, plan: Plan, inventory: Inventory, base: Path) -> str:
    """Return what two submissions of the same job have in common.

    Args:
        job: as its file says.
        plan: made of it from the inventory alone.
        inventory: the environments it uses.
        base: directory that its relative paths start from.
    """
    body = {
        "base": str(base.resolve()),
        "job": job.model_dump(mode="json"),
        "inventory": inventory.model_dump(mode="json"),
        "nodes": plan.model_dump(mode="json", include={"nodes"})["nodes"],
    }
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def find_running(wanted: str) -> JobDirectory | None:
    """Return a job of this identity that is being started or runs under a controller, the newest of several."""
    return next((directory for directory, launch in _running() if launch.identity == wanted), None)


def find_earlier(job: Job, base: Path, file: str) -> tuple[JobDirectory, list[str]] | None:
    """Return the newest job that runs from the same file, and the keys in which the file was another then.

    Args:
        job: as the file says now.
        base: the file's directory.
        file: what the person calls it.
    """
    for directory, launch in _running():
        name = launch.file
        if name is None or launch.base != base or Path(name).name != Path(file).name:
            continue
        with contextlib.suppress(OSError, UsageError):
            before = parse_document(directory.document.read_text(encoding="utf-8"), name).job
            return directory, sorted(_differing(before.model_dump(mode="json"), job.model_dump(mode="json")))
    return None


def _differing(one: object, other: object, path: str = "") -> Iterator[str]:
    """Yield the keys, such as `run.args`, whose values are not the same."""
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from _differing(one.get(key), other.get(key), f"{path}.{key}" if path else str(key))
    else:
        yield path


def _running() -> Iterator[tuple[JobDirectory, LaunchFile]]:
    """Yield the jobs that are being started or run under a controller, and what was written at their launch."""
    found = []
    for launch in locations.jobs_directory().glob("*/launch.json"):
        with contextlib.suppress(OSError):
            found.append((launch.stat().st_mtime, launch))
    for _written_at, launch in sorted(found, reverse=True):
        directory = JobDirectory(launch.parent)
        with contextlib.suppress(OSError, UsageError):
            is_there = directory.has_controller() or _is_starting(launch)
            if is_there and not directory.is_over():
                yield directory, directory.read_launch()


@contextlib.contextmanager
def one_submission_at_a_time() -> Iterator[None]:
    """Keep another dttui of this user from submitting a job meanwhile."""
    root = locations.jobs_directory()
    try:
        make_private(root)
        lock = os.open(root / ".submit.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(
            _("cannot write to {path}: {reason}").format(path=root, reason=error.strerror),
            _("Free some room, or set XDG_STATE_HOME to a directory you may write to."),
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


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
