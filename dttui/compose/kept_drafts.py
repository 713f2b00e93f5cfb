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
    for path in locations.drafts_directory().glob(f"{platform.node()}-*.json"):
        process = path.stem.rpartition("-")[2]
        if process.isdigit() and not _lives(int(process)):
            with contextlib.suppress(OSError, ValidationError):
                yield path, KeptDraft.model_validate_json(path.read_bytes())


def _own() -> Path:
    return locations.drafts_directory() / f"{platform.node()}-{os.getpid()}.json"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # Of somebody else: the number has been given away since.
        return False
    return True
