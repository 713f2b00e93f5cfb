"""How an attempt goes on from a checkpoint of an earlier one: what ranks are told, and where they write. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from dtagent.protocol.replication import STORE
from pydantic import BaseModel, ConfigDict, Field

from dttui.errors import LaunchError
from dttui.frameworks.bundle import Hole
from dttui.i18n import _
from dttui.spec.checkpoint import RESUME_PLACES

CHECKPOINT_DIR = "DTTUI_CHECKPOINT_DIR"
RESUME_FROM = "DTTUI_RESUME_FROM"
_PLACE = re.compile(r"\{(" + "|".join(RESUME_PLACES) + r")\}")


class Resume(BaseModel):
    """What an attempt goes on from."""

    # What a later version adds is read past: whatever wrote the plan, its job goes on.
    model_config = ConfigDict(frozen=True, extra="ignore")

    checkpoint: str
    """Absolute path of its directory, or of its file, on the hosts."""
    directory: str
    """Where it lies: the directory that was searched, or that beneath which it is."""
    step: int | None = None
    """Step or iteration, where its name tells it."""
    attempt: int = 0
    """Which wrote it."""
    elsewhere: Mapping[str, str] = Field(default_factory=dict)
    """Node → its path there, where that is another."""


class Resumption(BaseModel):
    """What a job's commands get besides, in an attempt that is not the first."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    resume_args: tuple[str, ...] = ()
    """Added at the end where there is a checkpoint; `{checkpoint}`, `{directory}` and `{step}` stand in them."""
    room_bytes: int | None = None
    """What the checkpoints that stay take, and one that is being written; `None` where no estimate tells."""
    copies: int = 0
    """On how many other nodes' disks each checkpoint is besides."""
    copy_bytes_per_s: int = 0
    """How much of a host's network that may take while ranks train."""
    keep: int = 1
    """How many stay of each, the newest."""
    interval_s: float | None = None
    """From one to the next, where that is known."""
    place: str | None = None
    """Where checkpoints go, where copies of them are made: the same absolute path on all hosts."""
    shared: bool = False
    """Whether all hosts see the same directories of checkpoints."""
    is_kept: bool = False
    """Whether the job says where its checkpoints go, and so how many stay."""
    own_args: tuple[str, ...] = ()
    """Added before those, whether there is one or not; `{own}` stands for the attempt's own directory."""


def directory_of(told: str, attempt: int) -> str:
    """Return where an attempt writes its checkpoints.

    No attempt writes into another's: of what an earlier one has left on a host that was lost, ranks may still be
    writing. One that the job does not name is the attempt's own already.

    Args:
        told: what `DTTUI_CHECKPOINT_DIR` is by the plan.
        attempt: its number; the first writes into what the job names.
    """
    if attempt == 0 or str(Hole.DIRECTORY) in told:
        return told
    return posixpath.join(told, f"attempt-{attempt}")


def store_of(resumption: Resumption, job_id: str, attempt: int) -> str | None:
    """Return where hosts keep copies of what others write in an attempt; `None` where none are made."""
    if resumption.place is None:
        return None
    return posixpath.join(directory_of(resumption.place, attempt), STORE, job_id)


def arguments(resumption: Resumption, attempt: int, own: str, resume: Resume | None, node: str) -> tuple[str, ...]:
    """Return what a command gets besides.

    Args:
        resumption: of the plan.
        attempt: the attempt's number.
        own: where it writes its checkpoints.
        resume: what it goes on from.
        node: where the command runs.

    Raises:
        LaunchError: the step is asked for, and the checkpoint's name tells none.
    """
    if attempt == 0:
        return ()
    given = tuple(word.replace("{own}", own) for word in resumption.own_args)
    if resume is None:
        return given
    if resume.step is None and any("{step}" in word for word in resumption.resume_args):
        message = _("the name of {checkpoint} tells no step, and recovery.checkpoint.resume_args asks for it")
        raise LaunchError(message.format(checkpoint=resume.checkpoint), _("Leave the step out of resume_args."))
    path = resume.elsewhere.get(node, resume.checkpoint)
    is_itself = resume.directory == resume.checkpoint
    directory = path if is_itself else posixpath.dirname(path) if node in resume.elsewhere else resume.directory
    values = {"checkpoint": path, "directory": directory, "step": str(resume.step)}
    return (*given, *(_PLACE.sub(lambda match: values[match[1]], word) for word in resumption.resume_args))


def variables(resume: Resume | None, node: str) -> dict[str, str]:
    """Return what the ranks of a node are told of what they go on from."""
    return {} if resume is None else {RESUME_FROM: resume.elsewhere.get(node, resume.checkpoint)}
