"""What the job's own command has said of this host: the supervisor's record, which the job could write itself."""

from __future__ import annotations

import contextlib

from dacite import Config, DaciteError, from_dict

from dtagent.locations import AttemptFiles
from dtagent.protocol.health import Health
from dtagent.system import untrusted_files

_STRICT = Config(check_types=True)


def read(files: AttemptFiles) -> Health | None:
    """Return what was said last; `None` where nothing was, or it cannot be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, DaciteError):
        return from_dict(Health, untrusted_files.read_object(files.health), _STRICT)
    return None
