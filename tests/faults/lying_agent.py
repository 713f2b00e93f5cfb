"""A bridge to a real agent that lies about what that says: `python -I lying_agent.py LIE MARKER [--root DIR …]`.

It passes every call on, and changes answers line by line. Where MARKER is a path, it lies until that exists, and makes
it with the first lie: a lie that is told once. With `-` for MARKER it never stops. Standard library only.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Frame = dict[str, Any]

POISON = (
    "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b[31m\x9b31m\u202e\u200b\r\x08"
    "[/foo][bold red]x[/][@click=app.quit]y[/]{host}{0.__class__}%s%(name)d\\"
)
"""Drives terminals, reorders text, and is markup to Textual and a hole to every way of formatting."""
STRUCTURE = {
    "state", "stamp", "stream", "data", "job_id", "boot_id", "jsonrpc", "directory", "python", "payload", "path",
    "executable", "interface", "source_address", "token",
}  # fmt: skip
"""Strings that are read by dttui itself; to spoil them is another lie."""


def poison(value: Any, end: str = POISON) -> Any:
    """Return a copy in which every string for people has another end."""
    if isinstance(value, dict):
        return {key: item if key in STRUCTURE else poison(item, end) for key, item in value.items()}
    if isinstance(value, list):
        return [poison(item, end) for item in value]
    return value + end if isinstance(value, str) else value


def _chunks(change: Callable[[Frame], None]) -> Callable[[str, Frame], list[Frame]]:
    """Make a lie of a change to each chunk of logs that comes with bytes already had before it."""

    def lie(method: str, frame: Frame) -> list[Frame]:
        if method == "follow" and "result" in frame:
            for chunk in frame["result"]["chunks"]:
                change(chunk)
        return [frame]

    return lie


_FOLLOWED: Frame = {}
"""What the newest call of `follow` asked for."""


def _gaps(data: str, **more: Any) -> Callable[[str, Frame], list[Frame]]:
    """Make a lie of one gap after the other where each request ends, with a few bytes behind each."""

    def lie(method: str, frame: Frame) -> list[Frame]:
        if method == "follow" and "result" in frame:
            gap_bytes = 0 if more else 4096
            offset = 0 if more else _FOLLOWED["offsets"].get("0.out", 0) + gap_bytes
            chunk = {"stream": "0.out", "offset": offset, "data": data, "gap_bytes": gap_bytes, "inode": 1, **more}
            frame["result"].update(chunks=[chunk], more=True)
        return [frame]

    return lie


def _on(method: str, change: Callable[[Any], Any]) -> Callable[[str, Frame], list[Frame]]:
    """Make a lie of a change to the result of one method."""
    return lambda called, frame: [{**frame, "result": change(frame["result"])} if called == method else frame]


_LEAPS = itertools.count(1 << 40, 1 << 20)
_NEWS = itertools.count()


def _status(**more: Any) -> Callable[[str, Frame], list[Frame]]:
    """Make a lie of other fields of the status in each answer of `follow`."""
    return _on("follow", lambda reply: {**reply, "status": {**reply["status"], **more}})


def _numbering(*ranks: int, world_size: int) -> Callable[[str, Frame], list[Frame]]:
    """Make a lie of how torchrun is said to have numbered the ranks, which it has not."""
    return _status(numbering={"ranks": ranks, "world_size": world_size, "restarts": 0, "port": 4000})


def _never_the_same(reply: Frame) -> Frame:
    """Tell of news without any: whoever asks about the stamp of this answer is answered at once."""
    warnings = [f"{next(_NEWS)} " + "record " * 4000]
    status = {**reply["status"], "state": "running", "warnings": warnings}
    return {**reply, "stamp": str(next(_NEWS)), "status": status, "chunks": [], "more": True}


def _raw(line: bytes) -> Callable[[str, Frame], list[Any]]:
    return lambda method, frame: [line] if method == "follow" else [frame]


LIES: dict[str, Callable[[str, Frame], list[Any]]] = {
    "words": lambda _method, frame: [poison(frame)],
    "long words": lambda _method, frame: [poison(frame, f"\n{POISON}" + "long " * 8_000)],
    "a kernel of 10 MB": _on("facts", lambda facts: {**facts, "kernel": POISON * 100_000}),
    "answers come twice": lambda _method, frame: [frame, frame],
    "answers to calls not made yet": lambda _method, frame: [{**frame, "id": frame["id"] + 1}, frame],
    "ids that are none": lambda _method, frame: [{**frame, "id": [frame["id"]]}, {**frame, "id": None}, frame],
    "a log that goes back": _chunks(lambda chunk: chunk.update(offset=chunk["offset"] - min(5, chunk["offset"]))),
    "a log that leaps": _chunks(lambda chunk: chunk.update(offset=chunk["offset"] + 5)),
    "a gap below zero": _chunks(lambda chunk: chunk.update(gap_bytes=-5, offset=chunk["offset"] - 5)),
    "a gap of 4 EiB": _chunks(lambda chunk: chunk.update(gap_bytes=1 << 62, offset=chunk["offset"] + (1 << 62))),
    "a file outside": _chunks(lambda chunk: chunk.update(stream="../../../../evil.out")),
    "a rank of another node": _chunks(lambda chunk: chunk.update(stream="7.out")),
    "bytes that are none": _chunks(lambda chunk: chunk.update(data="a")),
    "a chunk of another shape": _chunks(lambda chunk: chunk.update(offset="0")),
    "no JSON": _raw(b"{nonsense\n"),
    "no object": _raw(b"[1, 2]\n"),
    "no UTF-8": _raw(b'{"id": "\xff\xfe"}\n'),
    "deeper than deep": _raw(b'{"id": 1, "result": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"),
    "a line without end": _raw(b"x" * (5 << 20)),
    "half a character": _status(
        state="unkillable",
        reason="\ud800",
        warnings=["\udfff"],
        leftovers=[{"pid": 7, "command": "python\ud800", "state": "D"}],
        failures=[{"rank": 0, "time": 1.0, "exit_code": 1, "error": "ValueError: \ud800", "traceback": "\udc00"}],
    ),
    "numbered as another node's rank": _numbering(2, world_size=3),
    "numbered beyond the world": _numbering(7, world_size=9),
    "numbered as one of a larger world": _numbering(0, world_size=9),
    "numbered as more ranks than it has": _numbering(0, 1, world_size=3),
    "no rank is numbered": _numbering(world_size=3),
    "no two ranks differ": _numbering(1, 1, world_size=3),
    "a number beyond all numbers": _raw(b'{"id": 1, "result": 1' + b"0" * 5000 + b"}\n"),
    "gaps without end": _gaps(""),
    "gaps without end and a byte after each": _gaps("YQ=="),
    "a new file each time": _gaps("", is_new_file=True),
    "news without end": _on("follow", _never_the_same),
    "an end of no age": _status(
        exits=[{"name": "0", "ended_at": 1e300, "exit_code": 1}],
        failures=[{"rank": 0, "time": -1e300, "exit_code": 1, "error": "ValueError: x"}],
    ),
    "a clock of no age": _on("hello", lambda hello: {**hello, "time": 1e300}),
    "samples that leap": _on(
        "telemetry", lambda reply: {**reply, "rows": [[next(_LEAPS), *row[1:]] for row in reply["rows"]]}
    ),
    "samples that do not go on": _on(
        "telemetry", lambda reply: {**reply, "rows": [[1, *row[1:]] for row in reply["rows"]]}
    ),
}  # fmt: skip


def main() -> int:
    """Carry stdio to a real bridge, and what that says back with the lie in it."""
    lie, marker, *rest = sys.argv[1:]
    bridge = subprocess.Popen(
        [sys.executable, "-I", "-m", "dtagent", "connect", *rest], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert bridge.stdin is not None
    assert bridge.stdout is not None
    asked: dict[Any, str] = {}

    def carry_up() -> None:
        assert bridge.stdin is not None
        for line in sys.stdin.buffer:
            call = json.loads(line)
            asked[call.get("id")] = call.get("method", "")
            if call.get("method") == "follow":
                _FOLLOWED.update(call["params"])
            bridge.stdin.write(line)
            bridge.stdin.flush()
        bridge.stdin.close()

    threading.Thread(target=carry_up, daemon=True).start()
    os.write(1, bridge.stdout.readline())  # The first line of every bridge.
    for line in bridge.stdout:
        for part in _told(line, asked, LIES[lie], None if marker == "-" else Path(marker)):
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
    return bridge.wait()


def _told(
    line: bytes, asked: dict[Any, str], lie: Callable[[str, Frame], list[Any]], marker: Path | None
) -> Iterator[bytes]:
    frame = json.loads(line)
    parts = [frame]
    if marker is None or not marker.exists():
        parts = lie(asked.get(frame.get("id"), ""), json.loads(line))
        if marker is not None and parts != [frame]:
            marker.touch()
    for part in parts:
        yield part if isinstance(part, bytes) else json.dumps(part).encode() + b"\n"


if __name__ == "__main__":
    sys.exit(main())
