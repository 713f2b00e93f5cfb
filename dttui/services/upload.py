"""The working directory that goes to every host: which files, how large at most, and the sending itself."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path

from dtagent.protocol.jobs import AttemptKey, UploadRequest
from dtagent.protocol.rpc import MAX_CHUNK_BYTES

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.services.agent import AgentClient

MAX_BYTES = 64 * 1000**2
MAX_FILES = 5000
SKIPPED = {".git", ".hg", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "node_modules"}


@dataclass(frozen=True)
class UploadFile:
    """A file to send."""

    path: Path
    relative: str
    size: int
    executable: bool


def list_upload(directory: Path) -> list[UploadFile]:
    """Return the regular files under a directory, without version control, environments and caches.

    Raises:
        UsageError: there are too many, or they are too large together.
    """
    found: list[UploadFile] = []
    total = 0
    for parent, names, files in os.walk(directory):
        names[:] = sorted(name for name in names if name not in SKIPPED)
        for name in sorted(files):
            path = Path(parent, name)
            if not path.is_file():
                continue
            info = path.stat()
            total += info.st_size
            found.append(
                UploadFile(path, path.relative_to(directory).as_posix(), info.st_size, bool(info.st_mode & 0o100))
            )
            if total > MAX_BYTES or len(found) > MAX_FILES:
                raise UsageError(
                    _("{path} is too large to send: more than {files} files or {size} MB").format(
                        path=directory, files=MAX_FILES, size=MAX_BYTES // 1000**2
                    ),
                    _("Put the data on the hosts; make workdir an absolute path there, or a smaller directory here."),
                )
    return found


async def send(client: AgentClient, key: AttemptKey, files: list[UploadFile]) -> int:
    """Send the files to one host, going on where an earlier try ended; return the bytes sent."""
    sent = 0
    for file in files:
        with file.path.open("rb") as stream:
            offset = 0
            while True:
                data = stream.read(MAX_CHUNK_BYTES)
                request = UploadRequest(key, file.relative, offset, base64.b64encode(data).decode(), file.executable)
                length = await client.call("upload", request, int)
                sent += len(data)
                if length == offset + len(data):
                    offset = length
                else:
                    stream.seek(length)
                    offset = length
                if offset >= file.size or not data:
                    break
    return sent
