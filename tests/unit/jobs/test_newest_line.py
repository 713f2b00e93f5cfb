"""The newest line of a file that grows: the last that is complete, however long it is and whatever lies before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dttui.jobs.following import NEWEST_BYTES, newest_line

LONG = b"x" * (2 * NEWEST_BYTES)


@pytest.mark.parametrize(
    ("text", "newest"),
    [
        (b"", None),
        (b"unfinished", None),
        (b"one\n", b"one"),
        (b"one\ntwo\n", b"two"),
        (b"one\ntwo\nunfinished", b"two"),
        (LONG + b"\n", LONG),
        (LONG + b"\nshort\n", b"short"),
        (b"short\n" + LONG + b"\n", LONG),
        (b"y" * (NEWEST_BYTES - 4) + b"\none\n", b"one"),
        (b"y" * NEWEST_BYTES + b"\none\nunfinished", b"one"),
        (b"a" * 5 + b"\n" + b"b" * (NEWEST_BYTES - 1) + b"\n", b"b" * (NEWEST_BYTES - 1)),
        (b"a" * 5 + b"\n" + b"b" * (NEWEST_BYTES - 2) + b"\n", b"b" * (NEWEST_BYTES - 2)),
    ],
    ids=range(12),
)
def test_the_newest_line_is_the_last_that_is_complete(tmp_path: Path, text: bytes, newest: bytes | None) -> None:
    file = tmp_path / "samples.jsonl"
    assert newest_line(file) is None
    file.write_bytes(text)
    assert newest_line(file) == newest
