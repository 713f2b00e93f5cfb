"""Files of measurements that this login node keeps for plans to come; what another version added is left out."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dttui.errors import UsageError
from dttui.files import OF_ANOTHER_VERSION
from dttui.i18n import _

Kept = TypeVar("Kept", bound=BaseModel)


def read_measurements(path: Path, model: type[Kept], most_bytes: int, remedy: str) -> Kept | None:
    """Return what a file keeps; `None` where there is none.

    Args:
        path: the file.
        model: what it holds.
        most_bytes: a file that is larger is none of dttui's.
        remedy: what to do about one that cannot be read.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(most_bytes + 1)
        if len(text) > most_bytes:
            raise _damaged(path, _("it is too large"), remedy)
        return model.model_validate_json(text, extra=OF_ANOTHER_VERSION)
    except (FileNotFoundError, NotADirectoryError):  # Of the second who keeps something there tells.
        return None
    except ValidationError as fault:
        detail = fault.errors(include_url=False)[0]
        key = ".".join(str(part) for part in detail["loc"])
        raise _damaged(path, f"{key}: {detail['msg']}" if key else detail["msg"], remedy) from fault
    except (OSError, UnicodeDecodeError) as fault:
        raise _damaged(path, getattr(fault, "strerror", None) or str(fault), remedy) from fault


def _damaged(path: Path, reason: str, remedy: str) -> UsageError:
    return UsageError(_("{path} cannot be read: {reason}").format(path=path, reason=reason), remedy)
