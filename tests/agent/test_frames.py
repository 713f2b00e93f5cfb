"""The frame reader and codec: any bytes, cut anywhere, give objects or a FrameError."""

from __future__ import annotations

import contextlib
import json

import pytest
from dtagent.protocol.rpc import MAX_DEPTH, MAX_PUSH_BYTES, FrameError, FrameReader, RequestReader, decode, encode
from hypothesis import given
from hypothesis import strategies as st

LIMIT = 64


def read_all(reader: FrameReader, parts: list[bytes]) -> list[bytes]:
    return [line for part in parts for line in reader.feed(part)]


@given(st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_come_whole_wherever_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    parts = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    reader = FrameReader(LIMIT)
    assert read_all(reader, parts) == lines
    assert reader.pending_bytes == 0


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_give_lines_below_the_limit_or_a_frame_error(parts: list[bytes]) -> None:
    reader = FrameReader(LIMIT)
    lines = b"".join(parts).split(b"\n")
    if max(map(len, lines)) >= LIMIT:
        with pytest.raises(FrameError, match="the limit is 64"):
            read_all(reader, parts)
    else:
        assert read_all(reader, parts) == lines[:-1]
    assert reader.pending_bytes <= LIMIT + 200


@given(st.lists(st.tuples(st.integers(0, 99), st.binary(max_size=40)), max_size=8), st.data())
def test_requests_come_with_the_bytes_they_bring_wherever_the_stream_is_cut(
    requests: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(encode({"id": number}, brought) for number, brought in requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader = RequestReader()
    found = [
        (decode(line)["id"], brought)
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for line, brought in reader.feed(stream[start:end])
    ]
    assert found == requests
    assert reader.pending_bytes == 0


def test_a_request_may_bring_no_more_than_a_part_of_files() -> None:
    most = b"x" * MAX_PUSH_BYTES
    assert [brought for _line, brought in RequestReader().feed(encode({}, most))] == [most]
    for head in (b"+1048577 {}\n", b"+99999999 {}\n"):
        with pytest.raises(FrameError, match="the limit is 1048576"):
            list(RequestReader().feed(head))
    for head in (b"+ {}", b"+-1 {}", b"+123456789 {}", b"+1{}"):  # No count: a line as any other, and no JSON.
        ((line, brought),) = RequestReader().feed(head + b"\n")
        assert (line, brought) == (head, b"")
        with pytest.raises(FrameError):
            decode(line)


def test_a_line_that_comes_a_byte_at_a_time_costs_no_more_than_its_length() -> None:
    reader = FrameReader()
    for _ in range(200_000):
        assert list(reader.feed(b"x")) == []
    assert reader.pending_bytes == 200_000
    assert [len(line) for line in reader.feed(b"\n")] == [200_000]


@given(st.binary(max_size=300))
def test_any_line_is_an_object_or_a_frame_error(line: bytes) -> None:
    with contextlib.suppress(FrameError):
        assert isinstance(decode(line), dict)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20) + 1, 10**20 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_what_is_encoded_is_one_line_and_comes_back(message: dict[str, object]) -> None:
    frame = encode(message)
    assert frame.count(b"\n") == 1
    assert decode(frame) == json.loads(json.dumps(message))


def test_an_escaped_pair_of_surrogates_is_a_character() -> None:
    assert decode(b'{"a": "\\ud83d\\ude00", "b": "\\\\ud800"}') == {"a": "\N{GRINNING FACE}", "b": "\\ud800"}


def test_line_separators_of_unicode_stay_inside_a_frame() -> None:
    message = {"text": "a\u2028b\u2029c\x85d\x0be"}
    assert list(FrameReader().feed(encode(message))) == [encode(message)[:-1]]
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "line",
    [
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',  # A lone surrogate.
        b'{"a": "\\ud800"}',
        b'{"a": ["x", {"\\uDfff": 1}]}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": 1}{"b": 2}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[1]",
        b"",
        b'{"a": ' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH,
        b'{"a": ' * 50_000,
    ],
)
def test_what_is_no_frame_is_refused(line: bytes) -> None:
    if line.count(b"{") == MAX_DEPTH:
        assert decode(line)
        line = b'{"a": ' + line + b"}"
    with pytest.raises(FrameError):
        decode(line)
