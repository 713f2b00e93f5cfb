"""A job as it is handed over to be planned, checked, launched or exported: what clients give to what acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from dttui.inventory.models import Inventory
    from dttui.spec.findings import Finding
    from dttui.spec.models import Job
    from dttui.spec.yaml_source import YamlSource


@dataclass(frozen=True)
class Submission:
    """A job to launch: what `--apply` and the TUI hand over alike."""

    job: Job
    inventory: Inventory
    base: Path
    """Directory that the job's relative paths start from: that of its file."""
    text: str | None = None
    """The job file as written, comments and all; made from the job where there is none."""
    file: str | None = None
    """What the person calls the file that `text` is of."""
    notes: tuple[Finding, ...] = ()
    """What that file says and the job has no place for, where it is of another form than a job file."""
    ignored: tuple[str, ...] = ()
    """Codes of errors that the preflight is to ignore."""
    source: YamlSource | None = None
    """What `text` was parsed to, where that is at hand."""
    is_queued: bool = False
    """Whether it waits until its hosts have room, in the order of asking."""
    for_s: float | None = None
    """For how long the person means to need the hosts; others are told, and nothing happens then."""
    keeps: bool = False
    """Whether what it leaves on its hosts stays there until somebody says otherwise."""
    continues: str | None = None
    """Id of a job that is over, from whose newest checkpoint this one goes on."""
