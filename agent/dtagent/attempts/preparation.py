"""What was prepared for an attempt, as it is kept on disk, and which attempts of a job there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from dacite import DaciteError, from_dict

from dtagent.attempts import adoption, history
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles, write_atomic
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.preparation import PrepareReply, PrepareRequest
from dtagent.protocol.rpc import ErrorCode, to_wire
from dtagent.supervision import journal
from dtagent.system import untrusted_files

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
"""What the directory of an attempt is called."""


def write(files: AttemptFiles, request: PrepareRequest, reply: PrepareReply) -> None:
    """Keep what was asked and answered."""
    write_atomic(files.prepared, json.dumps({"request": to_wire(request), "reply": to_wire(reply)}))


def read(files: AttemptFiles) -> tuple[PrepareRequest, PrepareReply]:
    """Return what was asked and answered. Raises RpcError DAMAGED where that cannot be read."""
    try:
        body = untrusted_files.read_object(files.prepared, untrusted_files.RECORD_BYTES)
        request = {**body["request"], "port_range": tuple(body["request"]["port_range"])}
        return from_dict(PrepareRequest, request), from_dict(PrepareReply, body["reply"])
    except (DaciteError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RpcError(ErrorCode.DAMAGED, sentences.CANNOT_READ(path=str(files.prepared))) from error


def key_of(files: AttemptFiles) -> AttemptKey:
    """Return the name of an attempt."""
    return AttemptKey(files.directory.parent.name, int(files.directory.name))


def was_started(files: AttemptFiles) -> bool:
    """Whether the attempt was started, also where the record of that is gone."""
    return files.start.exists() or journal.has_run(files)


def is_known(files: AttemptFiles) -> bool:
    """Whether more than checkpoints is left of an attempt."""
    return files.prepared.exists() or files.start.exists() or files.discarded.exists()


def is_running(files: AttemptFiles) -> bool:
    """Whether an attempt that was started has not come to its end."""
    return adoption.is_locked(files.lock) and not history.read(files).state.is_final


def known(root: Path, job_id: str = "*") -> Iterator[AttemptFiles]:
    """Yield the attempts under a root, of one job where that is given."""
    return filter(is_known, directories(root, job_id))


def directories(root: Path, job_id: str = "*") -> Iterator[AttemptFiles]:
    """Yield the attempts of which anything is left under a root, were it their checkpoints alone."""
    for path in sorted(root.glob(f"jobs/{job_id}/*")):
        if _NUMBER.fullmatch(path.name):
            yield AttemptFiles(path)
