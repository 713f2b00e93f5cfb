"""launch.json in a job's directory: what its controllers have to know besides the job file and the plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dttui.errors import UsageError
from dttui.files import OF_ANOTHER_VERSION
from dttui.i18n import _
from dttui.inventory.models import Inventory

VERSION = 1


class LaunchFile(BaseModel):
    """What was known at the submission of a job; it never changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    """Of this form of the file; one that names none is of the first."""
    identity: str = ""
    """A digest by which earlier versions told that a job is the same; not read."""
    inventory: Inventory
    """The environments that the job uses."""
    base: Path
    """Directory that the job's relative paths start from."""
    file: str | None = None
    """What the person calls the job file; `None` where there was none."""
    language: str
    """In which the controller speaks."""
    ignored: tuple[str, ...] = ()
    """Codes of errors that the preflight is to ignore."""
    asked_at: float | None = None
    """Unix time of the submission; whoever waits for GPUs since before that gets them first."""
    is_queued: bool = False
    """Whether the job waits until its hosts have room."""
    for_s: float | None = None
    """For how long the person means to need the hosts, from the first attempt on; others are told."""
    keeps: bool = False
    """Whether what the job leaves on its hosts stays there until somebody says otherwise."""
    earlier: tuple[str, ...] = ()
    """Job of each attempt before the first one of this job, which goes on from what those have written."""

    @property
    def first_attempt(self) -> int:
        """Number of the first attempt of this job: it counts on from the one that it goes on from."""
        return len(self.earlier)


def read_launch_file(path: Path) -> LaunchFile:
    """Read one.

    Raises:
        OSError: there is none, or it cannot be read.
        UsageError: it is of another version of dttui, or damaged.
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        version = body.get("version", VERSION) if isinstance(body, dict) else VERSION
        if version != VERSION:
            message = _("{path} is of version {version}, and this dttui reads version {known} of it")
            raise UsageError(
                message.format(path=path, version=version, known=VERSION),
                _("Use the version of dttui that has launched the job."),
            )
        return LaunchFile.model_validate(body, extra=OF_ANOTHER_VERSION)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = f"{key}: {first['msg']}" if key else first["msg"]
        raise UsageError(_("{path} cannot be read: {reason}").format(path=path, reason=reason)) from fault
    except (ValueError, RecursionError) as fault:
        raise UsageError(_("{path} cannot be read: {reason}").format(path=path, reason=str(fault))) from fault
