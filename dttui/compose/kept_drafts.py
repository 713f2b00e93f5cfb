"""The job that is being composed, kept on disk while it is not saved: a crash or a lost connection loses nothing."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from dttui import locations
from dttui.files import OF_ANOTHER_VERSION, write_atomic
from dttui.planning.compose_state import ComposeState


class KeptDraft(BaseModel):
    """One draft, as its screen held it."""

    model_config = ConfigDict(frozen=True, extra=OF_ANOTHER_VERSION)

    kept_at: float
    """Unix time."""
    inventory: str | None
    """File of the inventory that it is composed on; `None` for the embedded cluster."""
    base: str
    """Directory that its relative paths start from."""
    file: str | None
    """Job file that it was read from."""
    fingerprint: str | None = None
    """Of that file as it was then."""
    edited: str | None = None
    """Text of the job, where it was edited as such and its file does not have that."""
    unfinished: str | None = None
    """Text that is no job as it stands."""
    state: ComposeState


def keep(draft: KeptDraft) -> None:
    """Write the draft of this process. Raises OSError."""
    write_atomic(_own(), draft.model_dump_json(exclude_unset=True))


def drop() -> None:
    """Forget the draft of this process: it is saved, or not wanted."""
    forget(_own())


def left(inventory: str | None) -> tuple[Path, KeptDraft] | None:
    """Return the newest draft on an inventory that a screen has left behind which is no more, and where it lies."""
    found = [(path, draft) for path, draft in _left() if draft.inventory == inventory]
    return max(found, key=lambda item: item[1].kept_at, default=None)


def forget(path: Path) -> None:
    """Forget a draft that was left behind."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _left() -> Iterator[tuple[Path, KeptDraft]]:
    """Yield the drafts of screens of this host whose process has ended."""
    for path in locations.drafts_directory().glob("*.json"):
        node, _mark, process = path.stem.rpartition("@")
        number, _mark, born = process.partition("-")
        if node == platform.node() and number.isdigit() and _born(int(number)) != born:
            with contextlib.suppress(OSError, ValidationError):
                yield path, KeptDraft.model_validate_json(path.read_bytes())


def _own() -> Path:
    return locations.drafts_directory() / f"{platform.node()}@{os.getpid()}-{_born(os.getpid())}.json"


def _born(process: int) -> str | None:
    """Return when a process was started, in ticks since the start of the system: numbers are given away again.

    `None` where there is none.
    """
    try:
        return (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        )
    except (OSError, IndexError):
        return None
