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
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.planning.models import Plan
from dttui.services.jobs import JobDirectory
from dttui.services.launch.sending import make_bundle
from dttui.services.launch.upload import survey
from dttui.spec.models import Job

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
        "nodes": [node.model_dump(mode="json") for node in plan.nodes],
    }
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def find_running(wanted: str) -> JobDirectory | None:
    """Return a job of this identity that is being started or runs under a controller, the newest of several."""
    found = []
    for launch in locations.jobs_directory().glob("*/launch.json"):
        directory = JobDirectory(launch.parent)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            is_same = json.loads(launch.read_text(encoding="utf-8")).get("identity") == wanted
            if is_same and not directory.is_over() and (directory.has_controller() or _is_starting(launch)):
                found.append((launch.stat().st_mtime, launch.parent))
    return JobDirectory(max(found)[1]) if found else None


@contextlib.contextmanager
def one_submission_at_a_time() -> Iterator[None]:
    """Keep another dttui of this user from submitting a job meanwhile."""
    root = locations.jobs_directory()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
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
