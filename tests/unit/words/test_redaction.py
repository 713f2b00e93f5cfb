"""Secrets are left out of what is shown and told, however they were written, and wherever a chunk of a log ends."""

from __future__ import annotations

import base64
import html
import itertools
import json
import logging
import resource
import shlex
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from dtagent.protocol.events import EventKind, JobState
from dtagent.protocol.logs import LogChunk
from hypothesis import given
from hypothesis import strategies as st

from dttui.engine.controller import RedactingFormatter
from dttui.engine.copies.copy_cap import CopyCap
from dttui.engine.copies.log_copy import LogCopy
from dttui.i18n import msg, set_language
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.following import JobFollower, tail
from dttui.jobs.log_following import LogFollower
from dttui.jobs.log_masks import read_masks, write_masks
from dttui.redaction import MARK, Redaction
from tests.tui.catalogue import compile_catalogues

VALUE = "pass word/+\"'<ü\\.*(7"


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    return JobDirectory(tmp_path)


def put(copy: LogCopy, data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, end in itertools.pairwise(edges):
        if start < end:
            part = data[start:end]
            copy.write(LogChunk("0.out", start, base64.b64encode(part).decode(), 0, 7), part)


def shown(directory: JobDirectory) -> str:
    found = LogFollower(directory, 0).poll(["gpu1"], to_the_end=True)
    return "".join(f"{line.decode()}\n" for part in found for line in part.lines)


@pytest.mark.parametrize(
    "written",
    [
        VALUE,
        json.dumps({"a": VALUE}),
        json.dumps([VALUE], ensure_ascii=False),
        json.dumps(VALUE).replace("/", "\\/"),
        repr(VALUE),
        ascii([VALUE]),
        repr(VALUE.encode()),
        html.escape(VALUE),
        shlex.quote(VALUE),
        f"http://me:{quote(VALUE, safe='')}@host",
        quote_plus(VALUE),
        quote(VALUE).lower(),
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
    ],
)
def test_a_value_is_found_however_it_was_written(written: str) -> None:
    redacted = Redaction([VALUE]).text(f"before {written} after")
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert MARK in redacted
    assert not any(part in redacted.lower() for part in ("pass", "word", "(7", "287", VALUE.encode().hex()[8:16]))


@pytest.mark.parametrize("before", ["", "a", "ab", "me:"])
@pytest.mark.parametrize("after", ["", "\n", ":x"])
@pytest.mark.parametrize("altchars", [b"+/", b"-_"])
def test_base64_is_found_with_any_neighbours(before: str, after: str, altchars: bytes) -> None:
    value = "ÿþÿþ~~~???>>>secret"
    encoded = base64.b64encode((before + value + after).encode(), altchars).decode()
    redacted = Redaction([value]).text(f"Basic {encoded} done")
    left = redacted.removeprefix("Basic ").removesuffix(" done")
    assert MARK in left
    # What is left are the neighbours', and of the value itself a part of its first and last character.
    assert len(left) - len(MARK) <= len(base64.b64encode((before + after).encode())) + 4


def test_a_long_value_is_found_in_lines_and_in_base64_that_was_broken_into_lines() -> None:
    key = "-----BEGIN-----\n" + "\n".join(f"{number:02}" + "kY+/" * 15 for number in range(9)) + "\n-----END-----\n"
    redaction = Redaction([key])
    printed = key + "".join(f"\r\n  {line}" for line in key.splitlines()) + base64.encodebytes(key.encode()).decode()
    redacted = redaction.text(printed)
    assert "kY+/kY" not in redacted
    assert not any(line[8:40] in redacted for line in base64.encodebytes(key.encode()).decode().splitlines()[:-1])
    assert redacted.count("\n") == printed.count("\n"), "every line stays one"


def test_short_values_and_blanks_are_not_looked_for_and_overlapping_ones_leave_nothing() -> None:
    assert Redaction(["1", "abc", "", "     ", " \n "]).text("1 abc      def") == "1 abc      def"
    assert Redaction(["abcdef", "defghi"]).text("xabcdefghiy") == f"x{MARK}y"
    assert Redaction(["aaaa"]).text("baaaaaaab") == f"b{MARK}b"
    assert Redaction(["abcd", "abcdefgh"]).text("abcdefgh") == MARK


def test_a_part_of_a_value_at_the_end_of_a_shortened_text_is_left_out() -> None:
    redaction = Redaction(["0123456789abcdef"])
    assert redaction.text("cut at 0123456789a") == f"cut at {MARK}"
    assert redaction.text("89abcdef: refused") == f"{MARK}: refused"
    assert redaction.text("port 0123") == "port 0123"


def test_a_value_that_is_no_text_may_take_a_part_of_a_character_with_it() -> None:
    assert Redaction(["\udca9abcdefgh"]).text("éabcdefgh") == f"\ufffd{MARK}"


def test_of_a_long_value_the_longest_part_at_an_end_is_left_out() -> None:
    value = "ab" * 2000 + "the end of it"
    redaction = Redaction([value])
    assert redaction.text("cut: " + value[:3001]) == f"cut: {MARK}"
    assert redaction.text(value[999:] + " was said") == f"{MARK} was said"


@pytest.mark.parametrize("value", ["RUNNING", "state", "exit_code", "failed", "{who}", "rank", "code", "warning"])
def test_a_value_that_is_a_word_of_ours_breaks_no_event(directory: JobDirectory, value: str) -> None:
    log = EventLog(directory.events)
    log.redaction = Redaction([value])
    log.add(EventKind.JOB_STATE, msg("{who} exited with code {code}", who="rank 0", code=1), data={"state": "RUNNING"})
    log.add(EventKind.RANK_FAILED, "x", node="a", rank=0, data={"error": f"E: {value}!", "tail": [value], "time": 1.0})
    log.add(EventKind.OUTCOME, f"it {value}", data={"state": "FAILED", "exit_code": 100})
    follower = JobFollower(directory)
    follower.poll()
    assert follower.view.state is JobState.RUNNING
    assert follower.view.exit_code == 100
    (failure,) = follower.view.failures
    assert (failure.error, failure.tail) == (f"E: {MARK}!", (MARK,))


def test_a_message_is_told_again_in_another_language_without_the_value(directory: JobDirectory) -> None:
    compile_catalogues()
    log = EventLog(directory.events)
    log.redaction = Redaction(["sesame-opens"])
    inner = msg("{host}: {reason}", host="gpu1", reason="no sesame-opens")
    event = log.add(EventKind.FINDING, inner, data={"hint": msg("{host}: {reason}", host="a", reason="sesame-opens")})
    assert event.message == f"gpu1: no {MARK}"
    set_language("zh")
    try:
        (again,) = directory.read_events()
    finally:
        set_language("en")
    assert "sesame" not in directory.events.read_text()
    assert again.message.endswith(f"no {MARK}")
    assert again.data["hint"].endswith(MARK)


@given(st.lists(st.integers(0, 500), max_size=12), st.integers(0, 12))
def test_wherever_chunks_end_and_controllers_change_a_copy_keeps_every_byte_and_shows_no_value(
    cuts: list[int], handed_over: int
) -> None:
    values = ["ünïcode-value", "value-and-more", "line one is long\nline two is long"]
    text = f"a ünïcode-value-and-more z\n{values[2]}\n{values[0]}{values[0]}\n" + json.dumps(values) + "\nthe end"
    with tempfile.TemporaryDirectory() as name:
        directory = JobDirectory(Path(name))
        folder = directory.logs(0, "gpu1")
        data, edges = text.encode(), sorted({cut % len(text.encode()) for cut in cuts})
        position = 0
        copy = LogCopy(folder, redaction=Redaction(values))
        for index, edge in enumerate([*edges, len(data)]):
            if index == handed_over:  # Another controller, which reads back what there is.
                copy = LogCopy(folder, redaction=Redaction(values))
            part = data[position:edge]
            if part:
                copy.write(LogChunk("0.out", position, "", 0, 7), part)
            position = edge
        assert (folder / "0.out").read_bytes() == data
        assert copy.offsets == {"0.out": len(data)}
        seen = shown(directory)
        spans = read_masks(folder / "0.out", 0, len(data))
    assert spans == sorted(spans)
    assert all(end < start for (_start, end), (start, _end) in itertools.pairwise(spans))
    assert seen.splitlines()[0] == f"a {MARK} z"
    assert seen.splitlines()[-1] == "the end"
    assert seen.count("\n") == text.count("\n") + 1
    assert not any(part in seen for part in ("ünï", "n\\u00efcode", "value", "more", "line one", "two is"))


def test_the_line_before_a_hole_says_what_is_missing_though_a_value_was_there(directory: JobDirectory) -> None:
    folder = directory.logs(0, "gpu1")
    copy = LogCopy(folder, CopyCap(200_000), Redaction(["sesame-opens"]))
    data = b"sesame-opens sesame-opens\n" * 20_000
    put(copy, data, [number * 50_000 for number in range(20)])
    assert (folder / "0.out").stat().st_size == len(data)
    lines = shown(directory).splitlines()
    marks = [line for line in lines if line.startswith("…")]
    assert len(marks) == 1
    assert "bytes of this log were not kept in this copy" in marks[0]
    assert "sesame" not in "".join(lines)
    assert tail(folder / "0.out", 2) == [f"{MARK} {MARK}"] * 2


def test_places_noted_for_what_was_then_not_written_are_noted_again_in_order(tmp_path: Path) -> None:
    log = tmp_path / "gpu1" / "0.out"
    write_masks(log, [(10, 20), (30, 40)])
    write_masks(log, [(35, 50), (60, 70)])
    assert read_masks(log, 0, 100) == [(10, 20), (30, 50), (60, 70)]
    write_masks(log, [(22, 25)])
    assert read_masks(log, 0, 100) == [(10, 20), (22, 25), (30, 50), (60, 70)]
    assert read_masks(log, 45, 65) == [(0, 5), (15, 20)]
    assert read_masks(log, 50, 60) == []
    write_masks(log, [(15, 65)])
    assert read_masks(log, 0, 100) == [(10, 70)]


def test_a_place_that_the_disk_does_not_take_is_told_and_those_before_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "0" / "gpu1" / "0.out"
    write_masks(log, [(10, 20), (30, 40)])
    bounds = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, bounds[1]))  # So that a part of the next one is taken, as by a disk.
    try:
        with pytest.raises(OSError, match="No space left"):
            write_masks(log, [(40, 45), (60, 70)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, bounds)
    assert read_masks(log, 0, 100) == [(10, 20), (30, 45)]
    write_masks(log, [(60, 70)])
    assert read_masks(log, 0, 100) == [(10, 20), (30, 45), (60, 70)]


def test_whoever_reads_while_a_place_is_noted_again_always_finds_it(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "0" / "gpu1" / "0.out"
    write_masks(log, [(10, 20), (30, 40)])
    is_over = threading.Event()

    def note_again() -> None:
        while not is_over.is_set():
            write_masks(log, [(30, 40)])

    writer = threading.Thread(target=note_again)
    writer.start()
    try:
        seen = {tuple(read_masks(log, 0, 100)) for _each in range(3000)}
    finally:
        is_over.set()
        writer.join()
    assert seen == {((10, 20), (30, 40))}


def test_the_controllers_own_log_has_no_value_in_its_tracebacks() -> None:
    try:
        raise ValueError("no such key: sesame-opens")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "with %s", ("sesame-opens",), sys.exc_info())
    text = RedactingFormatter(Redaction(["sesame-opens"])).format(record)
    assert "no such key: •••" in text
    assert "sesame" not in text


def test_an_unfinished_last_record_of_places_is_passed_over(directory: JobDirectory) -> None:
    folder = directory.logs(0, "gpu1")
    copy = LogCopy(folder, redaction=Redaction(["sesame-opens"]))
    put(copy, b"sesame-opens\n", [])
    masks = folder.parent / ".secrets" / "gpu1" / "0.out"
    masks.write_bytes(masks.read_bytes() + b"torn")
    assert shown(directory) == f"{MARK}\n"
    later = LogCopy(folder, redaction=Redaction(["sesame-opens"]))
    later.write(LogChunk("0.out", 13, "", 0, 7), b"and sesame-opens\n")
    assert shown(directory) == f"{MARK}\nand {MARK}\n"
