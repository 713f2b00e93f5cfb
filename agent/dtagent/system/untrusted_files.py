"""Reads small files that a job's own processes may have put anything in place of: never waits, never without bound."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

SMALL_BYTES = 64 * 1024
"""Longest record of a rank's process and the like."""
RECORD_BYTES = 8 * 1024 * 1024
"""Longest request that is kept on disk: a frame, and room for how it is written."""


class UnusableFileError(OSError):
    """Something lies there, but no file with bytes in it, or one with more than are read."""


def read(path: Path, limit_bytes: int = SMALL_BYTES) -> bytes:
    """Return what a regular file holds.

    Raises:
        UnusableFileError: it is a link, a pipe or a device, or longer than `limit_bytes`.
        OSError: it cannot be read.
    """
    with opened(path) as stream:
        data = stream.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise UnusableFileError(errno.EFBIG, f"longer than {limit_bytes} bytes", str(path))
    return data


def opened(path: Path) -> BinaryIO:
    """Open a regular file to be read.

    Raises:
        UnusableFileError: it is a link, a pipe, a device, a directory or a socket.
        OSError: it cannot be opened.
    """
    try:
        number = descriptor(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise UnusableFileError(errno.EINVAL, "not a regular file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise UnusableFileError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(number, "rb")


def descriptor(path: Path) -> int:
    """Open whatever lies there to be read, but no link; a pipe is not waited for. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def read_object(path: Path, limit_bytes: int = SMALL_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        OSError: as of `read`.
        ValueError: it holds none.
    """
    try:
        body = json.loads(read(path, limit_bytes))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(body, dict):
        raise ValueError(f"{path} holds no object")
    return body
