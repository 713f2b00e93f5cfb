"""The scalars in the records of TensorBoard's event files and of W&B's offline runs. Pure, and for hostile input.

Formats: TFRecord (tensorflow/core/lib/io/record_writer.h) with messages of tensorflow/core/util/event.proto and of
framework/summary.proto; LevelDB's log (leveldb/doc/log_format.md) with messages of wandb/proto/wandb_internal.proto.
Checksums are not looked at: what is torn has lengths that do not fit.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

MAX_RECORD_BYTES = 1024 * 1024
"""A longer record is no scalar's: images and histograms are passed over."""
_LONGEST_RECORD = 1 << 32
MAX_SCALARS = 256
"""Of one record."""
_WANDB_HEADER = b":W&B"
_WANDB_HEADER_BYTES = 7
_BLOCK_BYTES = 32 * 1024
_CHUNK_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Scalars(NamedTuple):
    """What one record tells."""

    step: int | None
    values: dict[str, float]


class MalformedError(ValueError):
    """The bytes are no such records."""


def event_records(data: bytes, written: int | None = None) -> tuple[list[Scalars], int]:
    """Return the scalars of the whole records at the beginning of `data`, and how many bytes these take.

    Args:
        data: what comes from some record on.
        written: bytes that the file has from there on, were they not in `data`: a record that is too long for one of
            scalars is passed over once it is whole.

    Raises:
        MalformedError: it is no event file.
    """
    found, at = [], 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if length > _LONGEST_RECORD:
            raise MalformedError("a record without bounds")
        if length > MAX_RECORD_BYTES and at + 16 + length <= (written or 0):
            at += 16 + length
            continue
        if at + 16 + length > len(data):
            break
        found.append(_event(data[at + 12 : at + 12 + length]))
        at += 16 + length
    return [scalars for scalars in found if scalars.values], at


def wandb_records(data: bytes, offset: int) -> tuple[list[Scalars], int]:
    """Return the history in the whole records of `data`, and how many of its bytes these take.

    Args:
        data: what comes from `offset` on.
        offset: where in the file it begins: 0, or where the last call ended.

    Raises:
        MalformedError: it is no offline run.
    """
    found: list[Scalars] = []
    at, taken, record = 0, 0, b""
    if offset == 0:
        if not data.startswith(_WANDB_HEADER[: len(data)]):
            raise MalformedError("no offline run")
        at = taken = min(_WANDB_HEADER_BYTES, len(data))
    while True:
        left = _BLOCK_BYTES - (offset + at) % _BLOCK_BYTES
        at += left if left < _CHUNK_HEADER.size else 0  # Filled up with zeros.
        if at + _CHUNK_HEADER.size > len(data):
            break
        _checksum, length, kind = _CHUNK_HEADER.unpack_from(data, at)
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or length > _BLOCK_BYTES:
            raise MalformedError("no record")
        if at + _CHUNK_HEADER.size + length > len(data):
            break
        chunk = data[at + _CHUNK_HEADER.size : at + _CHUNK_HEADER.size + length]
        at += _CHUNK_HEADER.size + length
        record = chunk if kind in (_FULL, _FIRST) else (record + chunk)[: MAX_RECORD_BYTES + 1]
        if kind in (_FULL, _LAST):
            if len(record) <= MAX_RECORD_BYTES:
                found.append(_history(record))
            taken, record = at, b""
    return [scalars for scalars in found if scalars.values], taken


def _event(message: bytes) -> Scalars:
    step = 0  # Which is left out where it is nought.
    values: dict[str, float] = {}
    for number, kind, value in _fields(message):
        if number == 2 and kind == _VARINT and isinstance(value, int):
            step = _signed(value)
        elif number == 5 and isinstance(value, bytes):
            for inner, _kind, summary in _fields(value):
                if inner == 1 and isinstance(summary, bytes) and len(values) < MAX_SCALARS:
                    values.update(_summary_value(summary))
    return Scalars(step, values)


def _summary_value(message: bytes) -> dict[str, float]:
    tag, scalar = "", None
    for number, kind, value in _fields(message):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode(errors="replace")
        elif number == 2 and kind == _FIXED32 and isinstance(value, bytes):
            (scalar,) = struct.unpack("<f", value)
        elif number == 8 and isinstance(value, bytes):
            scalar = _tensor(value)
    return {tag: scalar} if tag and scalar is not None else {}


def _tensor(message: bytes) -> float | None:
    """Return the only element of a tensor of float (1) or double (2); `None` for others."""
    dtype, content = None, b""
    for number, kind, value in _fields(message):
        if number == 1 and isinstance(value, int):
            dtype = value
        elif number in (4, 5, 6) and isinstance(value, bytes) and kind in (_BYTES, _FIXED32, _FIXED64):
            content = value
    form = {(1, 4): "<f", (2, 8): "<d"}.get((dtype or 0, len(content)))
    return float(struct.unpack(form, content)[0]) if form else None


def _history(message: bytes) -> Scalars:
    """Return the numbers of a Record's HistoryRecord."""
    step: int | None = None
    values: dict[str, float] = {}
    for number, _kind, history in _fields(message):
        if number != 2 or not isinstance(history, bytes):
            continue
        for inner, _inner_kind, value in _fields(history):
            if inner == 1 and isinstance(value, bytes) and len(values) < MAX_SCALARS:
                values.update(_history_item(value))
            elif inner == 2 and isinstance(value, bytes):
                step = next(
                    (_signed(item) for at, _k, item in _fields(value) if at == 1 and isinstance(item, int)), step
                )
    return Scalars(step, values)


def _history_item(message: bytes) -> dict[str, float]:
    parts, number = [], None
    for at, _kind, value in _fields(message):
        if at in (1, 2) and isinstance(value, bytes):
            parts.append(value.decode(errors="replace"))
        elif at == 16 and isinstance(value, bytes):
            number = _json_number(value)
    name = "/".join(filter(None, parts))
    return {name: number} if name and number is not None else {}


def _json_number(text: bytes) -> float | None:
    if len(text) > 64:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if value == "NaN" or value in ("Infinity", "-Infinity"):
        return math.nan
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield number, wire type and value of a message's fields, as far as they are whole."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            if at <= len(message):
                yield number, kind, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            return
        yield number, kind, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; behind the end of the message where it is not whole."""
    value = 0
    for index in range(10):
        if at + index >= len(message):
            break
        byte = message[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & (2**64 - 1), at + index + 1
    return value, len(message) + 1


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
