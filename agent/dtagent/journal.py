"""An append-only file of records: JSON lines with a checksum each, on disk before `append` returns."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any


def append(path: Path, record: dict[str, Any]) -> None:
    """Add one record; it has survived a power cut once this returns."""
    body = json.dumps(record, separators=(",", ":")).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size and not _ends_with_newline(path):
            os.write(descriptor, b"\n")
        os.write(descriptor, b"%08x %s\n" % (zlib.crc32(body), body))
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the records whose checksum holds, in order; a torn tail or a flipped bit loses that line alone."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        checksum, _, body = line.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(body):
            continue
        try:
            record = json.loads(body)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"
