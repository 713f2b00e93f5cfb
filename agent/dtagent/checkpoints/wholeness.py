"""Whether a file of a checkpoint was written to its end, told from the file alone.

Nothing is run of what a file holds, and little of it is read: of an archive the record at its end, of safetensors the
header. Only what an attempt is to go on from is read to its end, where it has checksums. Formats: safetensors (eight
bytes of length, a JSON header with offsets), zip archives as torch, numpy and Keras write them (PKWARE's APPNOTE 6.3.3,
4.3.6 to 4.3.16), pickles, JSON.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from dtagent.protocol import sentences
from dtagent.protocol.said import Said
from dtagent.system.units import MIB
from dtagent.system.untrusted_files import opened, read

HEADER_BYTES = 100 * MIB
"""Longest header of a safetensors file: the bound of the format itself."""
TEXT_BYTES = 64 * MIB
"""Longest JSON file that is read."""

_ARCHIVES = (".pt", ".pth", ".ckpt", ".bin", ".npz", ".keras")
"""Suffixes of what is an archive, or else says nothing about its end."""
_ENTRY, _TABLE, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_END_64, _PLACE_OF_END_64 = b"PK\x06\x06", b"PK\x06\x07"
_NAMED_FILES = "weight_map"


class TornError(Exception):
    """A file or a checkpoint is not whole.

    Args:
        why: says what is missing.
    """

    def __init__(self, why: Said) -> None:
        super().__init__(why)
        self.why = why


def check_file(path: Path, name: str) -> None:
    """Look whether one file is whole; formats that say nothing about their end pass.

    Args:
        path: where it is.
        name: what it is called where it is told of, with the suffix that says its format.

    Raises:
        TornError: it is not.
        OSError: it cannot be read.
    """
    checks = {".safetensors": _check_safetensors, ".json": _check_json, ".pkl": _check_pickle}
    suffix = os.path.splitext(name)[1]
    check = _check_archive if suffix in _ARCHIVES else checks.get(suffix)
    if check is not None:
        check(path, name)


def check_contents(path: Path, name: str, deadline: float) -> None:
    """Look whether an archive still holds what was written to it, by its checksums; other formats have none, and pass.

    torch can be told to write none: each is 0 then.

    Args:
        path: where it is.
        name: what it is called.
        deadline: by the monotonic clock; what could not be read by then passes.

    Raises:
        TornError: it does not.
        OSError: it cannot be read.
    """
    if os.path.splitext(name)[1] not in (*_ARCHIVES, ".pkl"):
        return
    with opened(path) as stream:
        if stream.read(4) != _ENTRY:
            return
        try:
            with zipfile.ZipFile(stream) as archive:
                for entry in archive.infolist():
                    if entry.CRC and not _is_intact(archive, entry, deadline):
                        return
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise TornError(sentences.FILE_HAS_CHANGED(file=name)) from error
        except (NotImplementedError, RuntimeError, ValueError, struct.error):
            return  # Of a kind that nobody writes checkpoints in: who loads it tells.


def _is_intact(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, deadline: float) -> bool:
    """Read an entry to its end, where its checksum is compared; return whether there was time for it."""
    with archive.open(entry) as content:
        while content.read(MIB):
            if time.monotonic() > deadline:
                return False
    return True


def _check_safetensors(path: Path, name: str) -> None:
    with opened(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        first = stream.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if not 2 <= length <= min(HEADER_BYTES, size - 8):
            raise TornError(sentences.FILE_ENDS_EARLY(file=name))
        header = _parsed(stream.read(length), name)
    ends = [_end_of(item, name) for key, item in header.items() if key != "__metadata__"]
    if size < (end := 8 + length + max(ends, default=0)):
        raise TornError(sentences.FILE_IS_SHORT(file=name, size=size, wanted=end))


def _end_of(item: Any, name: str) -> int:
    offsets = item.get("data_offsets") if isinstance(item, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not isinstance(offsets[1], int):
        raise TornError(sentences.FILE_IS_NONE(file=name))
    return offsets[1]


def _check_json(path: Path, name: str) -> None:
    tree = _parsed(read(path, TEXT_BYTES), name, of_any_kind=not path.name.endswith(".index.json"))
    named = tree.get(_NAMED_FILES) if path.name.endswith(".index.json") else None
    for part in sorted({str(value) for value in named.values()} if isinstance(named, dict) else ()):
        if not (path.parent / part.replace("\0", "")).is_file():
            raise TornError(sentences.FILE_IS_MISSING(file=part))


def _check_archive(path: Path, name: str) -> None:
    """Look for the record at the end; what older torch wrote is no archive, and says nothing about its end."""
    with opened(path) as stream:
        start = stream.read(4)
        if not start.strip(b"\0"):
            raise TornError(sentences.FILE_IS_EMPTY(file=name))
        if start != _ENTRY:
            if len(start) < 4:
                raise TornError(sentences.FILE_ENDS_EARLY(file=name))
            return
        size = stream.seek(0, os.SEEK_END)
        record = _end_record(stream, size)
        if record is None:
            raise TornError(sentences.FILE_ENDS_EARLY(file=name))
        place, table, length = record
        stream.seek(table)
        if table + length != place or stream.read(4) != _TABLE:
            raise TornError(sentences.FILE_IS_NONE(file=name))


def _end_record(stream: BinaryIO, size: int) -> tuple[int, int, int] | None:
    """Return where the records at the end of an archive begin, where its table does, and how long that is.

    A comment may follow; none of what writes checkpoints writes one.
    """
    place = size - 22
    if place < 0:
        return None
    stream.seek(place)
    record = stream.read(22)
    if record[:4] != _END:
        return None
    length, table = struct.unpack("<LL", record[12:20])
    if place >= 20:
        stream.seek(place - 20)
        locator = stream.read(20)
        if locator[:4] == _PLACE_OF_END_64:
            (place_64,) = struct.unpack("<Q", locator[8:16])
            if place_64 + 56 > size:
                return None
            stream.seek(place_64)
            record_64 = stream.read(56)
            if record_64[:4] != _END_64:
                return None
            length, table = struct.unpack("<QQ", record_64[40:56])
            place = place_64
    return (place, table, length) if table < size else None


def _check_pickle(path: Path, name: str) -> None:
    """Look at both ends: a pickle ends with a full stop, which half of one seldom does."""
    with opened(path) as stream:
        start = stream.read(4)
        if start == _ENTRY:
            return _check_archive(path, name)
        if not start or start[:1] == b"\0":
            raise TornError(sentences.FILE_IS_EMPTY(file=name))
        stream.seek(-1, os.SEEK_END)
        if stream.read(1) != b".":
            raise TornError(sentences.FILE_ENDS_EARLY(file=name))
    return None


def _parsed(data: bytes, name: str, *, of_any_kind: bool = False) -> dict[str, Any]:
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TornError(sentences.FILE_IS_NONE(file=name)) from error
    if isinstance(tree, dict):
        return tree
    if of_any_kind:
        return {}
    raise TornError(sentences.FILE_IS_NONE(file=name))
