"""Looking for expressions in output, within limits."""

from __future__ import annotations

import re
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dttui.engine.alerts import log_patterns
from dttui.engine.alerts.log_patterns import MAX_LINE_BYTES, MAX_STRIKES, LogPatterns


def patterns(*texts: str) -> LogPatterns:
    return LogPatterns([re.compile(text) for text in texts])


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_lines_are_the_same_however_their_bytes_arrive(parts: list[bytes]) -> None:
    whole, cut = patterns("x|a|0"), patterns("x|a|0")
    data = b"".join(parts) + b"\n"
    at_once = whole.feed("n", "0.out", data)
    in_parts = [found for part in [*parts, b"\n"] for found in cut.feed("n", "0.out", part)]
    assert at_once == in_parts


def test_streams_do_not_mix_and_what_drives_a_bar_ends_a_line() -> None:
    found = patterns("^ab$")
    assert found.feed("n", "0.out", b"a") == []
    assert found.feed("n", "1.out", b"b\n") == []
    assert found.feed("n", "0.out", b"b\r50%\r") == [(0, "ab", 0)]


def test_a_line_without_end_counts_by_its_beginning_and_once() -> None:
    found = patterns("x")
    assert found.feed("n", "0.out", b"x" + b"." * MAX_LINE_BYTES) == [(0, "x" + "." * (MAX_LINE_BYTES - 1), 0)]
    assert found.feed("n", "0.out", b"x" * 100_000) == []
    assert found.feed("n", "0.out", b"x\nx\n") == [(0, "x", 0)]


def test_escape_sequences_are_gone_before_anything_is_matched() -> None:
    assert patterns("^ERROR$").feed("n", "0.out", b"\x1b[31mERROR\x1b[0m\n") == [(0, "ERROR", 0)]


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"(a+)+$", b"a" * 4000 + b"b"),
        (r"(?:a|a)*b$", b"a" * 4000),
        (r".*.*.*.*=", b"x" * 4000),
        (r"(\w+\s?)*!", b"ab " * 1300),
        (r"(x+x+)+y", b"x" * 4000),
    ],
)
def test_matching_ends_whatever_the_expression_is(pattern: str, line: bytes) -> None:
    found = patterns(pattern, "never")
    began = time.process_time()
    for _each in range(MAX_STRIKES + 5):
        assert found.feed("n", "0.out", line + b"\n") == []
    assert time.process_time() - began < 2.0
    assert found.too_slow == {0}


def test_the_timer_is_gone_afterwards_and_the_handler_as_before() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    patterns("a").feed("n", "0.out", b"a\n" * 100)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGVTALRM) is before


def test_a_flood_is_looked_at_in_part_and_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_patterns, "SHARE", 0.0)
    found = patterns("x")
    assert len(found.feed("n", "0.out", b"x\n")) == 1
    assert found.feed("n", "0.out", b"x\nx") == []
    assert found.skipped_bytes == 3
    monkeypatch.setattr(log_patterns, "SHARE", 1.0)
    assert found.feed("n", "0.out", b"x\nx\n") == [(0, "x", 0)]
