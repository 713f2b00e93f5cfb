"""The working directory that goes to every host: which files, how large at most, and the sending itself."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from dtagent.protocol.jobs import AttemptKey, UploadRequest
from dtagent.protocol.rpc import MAX_CHUNK_BYTES

from dttui.errors import AgentError, UsageError
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.services.agent import AgentClient

MAX_BYTES = 64 * 1000**2
MAX_FILES = 5000
MAX_STEPS_BACK = 3
"""Times that a host may ask for a part of a file again."""
SKIPPED = {".git", ".hg", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "node_modules"}
PRIVATE = (".*", "*.env", "*.pem", "id_rsa", "id_ed25519", "id_ecdsa")
"""Names of what may hold secrets, which no rank needs and every host would keep."""


@dataclass(frozen=True)
class UploadFile:
    """A file to send."""

    path: Path
    relative: str
    size: int
    executable: bool


@dataclass(frozen=True)
class Upload:
    """What a directory comes to."""

    files: tuple[UploadFile, ...]
    left_out: tuple[str, ...]
    """Fit to be shown: what may hold secrets, and links that lead elsewhere. Caches and version control go untold."""
    misnamed: tuple[str, ...]
    """Fit to be shown: files whose name is not UTF-8."""


def survey(directory: Path) -> Upload:
    """Return the regular files to send of a directory, and what stays here.

    Raises:
        UsageError: there are too many, or they are too large together.
    """
    files: list[UploadFile] = []
    left_out: list[str] = []
    misnamed: list[str] = []
    root = directory.resolve()
    total = 0
    for path, is_wanted in _walk(directory, root):
        relative = path.relative_to(directory).as_posix()
        if not is_wanted:
            left_out.append(_shown(relative))
            continue
        if not path.is_file():
            continue
        if not _is_utf8(relative):
            misnamed.append(_shown(relative))
            continue
        info = path.stat()
        total += info.st_size
        files.append(UploadFile(path, relative, info.st_size, bool(info.st_mode & 0o100)))
        if total > MAX_BYTES or len(files) > MAX_FILES:
            raise UsageError(
                _("{path} is too large to send: more than {files} files or {size} MB").format(
                    path=os.path.normpath(directory), files=MAX_FILES, size=MAX_BYTES // 1000**2
                ),
                _("Put the data on the hosts; make workdir an absolute path there, or a smaller directory here."),
            )
    return Upload(tuple(files), tuple(left_out), tuple(misnamed))


def list_upload(directory: Path) -> list[UploadFile]:
    """Return the files to send; see `survey`."""
    return list(survey(directory).files)


async def send(client: AgentClient, key: AttemptKey, files: list[UploadFile]) -> int:
    """Send the files to one host, going on where an earlier try ended; return the bytes sent.

    Raises:
        HostError: the host cannot be reached, or its agent does not take the files as it should.
        UsageError: a file changed meanwhile.
    """
    sent = 0
    for file in files:
        with file.path.open("rb") as stream:
            offset = steps_back = 0
            while True:
                stream.seek(offset)
                data = stream.read(min(MAX_CHUNK_BYTES, file.size - offset))
                if not data and offset < file.size:
                    raise UsageError(_("{path} became shorter while it was sent").format(path=file.path))
                request = UploadRequest(key, file.relative, offset, base64.b64encode(data).decode(), file.executable)
                length = await client.call("upload", request, int)
                sent += len(data)
                steps_back += offset > 0 and length <= offset
                # The first answer may be anything up to the size: it tells what an earlier try left there.
                is_stuck = offset == length == 0 < file.size
                if not 0 <= length <= file.size or is_stuck or steps_back > MAX_STEPS_BACK:
                    raise AgentError(
                        client.name,
                        _("{host}: the agent does not take {path}: it has {length} of {size} bytes").format(
                            host=client.name, path=file.relative, length=length, size=file.size
                        ),
                        _("Upgrade the agent: dttui agents deploy {host}").format(host=client.name),
                    )
                offset = length
                if offset == file.size:
                    break
    return sent


def _walk(directory: Path, root: Path) -> Iterator[tuple[Path, bool]]:
    """Yield each file, and each directory that is left out, with whether it may be sent."""
    for parent, names, files in os.walk(directory):
        kept = []
        for name in sorted(set(names) - SKIPPED):
            path = Path(parent, name)
            if _is_private(name) or path.is_symlink():
                yield path, False  # A linked directory is never entered: it may lead outside, or round in a circle.
            else:
                kept.append(name)
        names[:] = kept
        for name in sorted(files):
            path = Path(parent, name)
            yield path, not _is_private(name) and (not path.is_symlink() or _stays_inside(path, root))


def _stays_inside(link: Path, root: Path) -> bool:
    """Whether a link leads to what would be sent under its own name too."""
    try:
        target = PurePath(os.path.realpath(link)).relative_to(root)
    except ValueError:
        return False
    return not any(_is_private(part) for part in target.parts)


def _is_private(name: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in PRIVATE)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    return clean(os.fsencode(name).decode(errors="replace"))
