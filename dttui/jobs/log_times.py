"""From when on a log is shown: points in time as people write them, and the place in a file that one stands for."""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from typing import BinaryIO

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.jobs.sparse_files import read_kept
from dttui.spec.durations import parse_duration
from dttui.spec.problems import shown

READ_BYTES = 1 << 20
MOST_LINE_BYTES = 1 << 20
_DAYS = re.compile(r"([0-9]{1,5})d")
_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?")
_STAMP = re.compile(
    rb"^[^\n]{0,40}?\b([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,][0-9]{1,9})? ?"
    rb"(Z|[+-][0-9]{2}:?[0-9]{2})?",
    re.MULTILINE,
)
"""A date and time near the beginning of a line, as loggers write them."""


def parse_since(text: str, now: float, option: str = "--since") -> float:
    """Return the Unix time of `10m`, `3d`, `13:05`, `2026-11-21 13:05:00` or the same with an offset, `+08:00`.

    A time of day is the last one that has been: today's, or yesterday's.

    Args:
        text: what a person wrote; without an offset it is the local time of this machine.
        now: Unix time.
        option: where it was written.

    Raises:
        UsageError: it is none of these.
    """
    word = text.strip()
    if days := _DAYS.fullmatch(word):
        return now - 86_400.0 * int(days[1])
    try:
        return now - parse_duration(word)
    except ValueError:
        pass
    is_clock = _CLOCK.fullmatch(word) is not None
    if is_clock:
        word = f"{datetime.fromtimestamp(now):%Y-%m-%d} {word.zfill(8) if word.count(':') == 2 else word.zfill(5)}"
    try:
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", word))
        if is_clock and moment.timestamp() > now:  # Shortly after midnight a person means the evening before.
            moment -= timedelta(days=1)
        return moment.timestamp()
    except (ValueError, OverflowError, OSError) as fault:
        raise UsageError(
            _("{option}: {value} is no time and no duration").format(option=option, value=shown(text)),
            _("Write it as in {example}").format(
                example='10m, 2h, 30d, 13:05, "2026-11-21 13:05:00", 2026-11-21T13:05Z'
            ),
        ) from fault


def start_since(stream: BinaryIO, since: float) -> tuple[int, bool]:
    """Return where the lines since a Unix time begin, at the first of that time or a later one; and if none has a time.

    A line without a time has that of the line before it. Where no line has one, the whole file counts if it was written
    to since then.
    """
    info = os.fstat(stream.fileno())
    if info.st_mtime < since:
        return info.st_size, False
    position, rest, has_times = 0, b"", False
    while True:
        start, data = read_kept(stream.fileno(), position + len(rest), READ_BYTES)
        if not data:
            return (position, False) if has_times else (0, True)
        if start > position + len(rest):  # What was dropped ends a line.
            position, rest = start, b""
        block = rest + data
        whole = block.rfind(b"\n") + 1
        if not whole and len(block) < MOST_LINE_BYTES:
            rest = block
            continue
        whole = whole or len(block)
        for match in _STAMP.finditer(block, 0, whole):
            moment = _timestamp(match)
            has_times = has_times or moment is not None
            if moment is not None and moment >= since:
                return position + match.start(), False
        position, rest = position + whole, block[whole:]


def line_time(line: bytes) -> float | None:
    """Return the Unix time that a line carries near its beginning, without an offset in the time of this machine."""
    match = _STAMP.match(line)
    return _timestamp(match) if match is not None else None


def _timestamp(match: re.Match[bytes]) -> float | None:
    day, clock, offset = (part.decode() if part else "" for part in match.groups())
    zone = "+00:00" if offset == "Z" else f"{offset[:3]}:{offset[-2:]}" if offset else ""
    try:
        return datetime.fromisoformat(f"{day}T{clock}{zone}").timestamp()
    except (ValueError, OverflowError, OSError):
        return None
