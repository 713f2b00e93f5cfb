"""Telemetry between an agent and a login node: rows are checked, whole samples of an older agent are taken too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol import rpc
from dtagent.protocol.columns import Picker, pack
from dtagent.protocol.notices import Notice
from dtagent.protocol.telemetry import (
    DeviceRate,
    GpuProcess,
    GpuSample,
    HostSample,
    RankSample,
    TelemetryReply,
    TelemetryRequest,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from dttui.engine.copies.sample_copy import SampleCopy
from dttui.rpc import sample_rows
from dttui.rpc.sample_rows import WATCHED, Selection, WholeSample, decode_frame

TEN_FIELDS = (
    "utilization_percent", "memory_used_mib", "memory_total_mib", "temperature_c", "power_w", "power_limit_w",
    "sm_clock_mhz", "memory_clock_mhz", "throttle_reasons", "ecc_uncorrected",
)  # fmt: skip


def gpu(index: int) -> GpuSample:
    return GpuSample(
        index, 97 - index, 71234 + 11 * index, 81920, 64 + index, 402.1 + index, 700.0, 1410 + 15 * index,
        ["power cap"], 0, [GpuProcess(4711, "li", 70000)], memory_clock_mhz=1593,
    )  # fmt: skip


def frame(sample: HostSample, selection: Selection) -> bytes:
    row = Picker(selection.fields)(json.loads(json.dumps(pack(sample))))
    return rpc.encode({"jsonrpc": "2.0", "id": 7, "result": rpc.to_wire(TelemetryReply([], 0, [row]))})


def read(line: bytes, selection: Selection) -> list[HostSample]:
    return selection.samples(TypeAdapter(selection.reply).validate_python(decode_frame(line)["result"]))


def test_ten_fields_of_eight_gpus_are_at_most_600_bytes() -> None:
    sample = HostSample(1_732_184_000, 1732184000.123, gpus=[gpu(index) for index in range(8)])
    selection = Selection((), TEN_FIELDS, ())
    line = frame(sample, selection)
    assert len(line) <= 600
    assert [item.power_w for item in read(line, selection)[0].gpus] == [402.1 + index for index in range(8)]


def test_what_is_watched_comes_over_whole() -> None:
    ranks = {"job": [RankSample(4, 99, 100.0, 512, 9, "running", 0)]}
    sample = HostSample(5, 1.5, 3.5, 0.5, 5, 10, gpus=[gpu(0), GpuSample(1, error="GPU is lost")], ranks=ranks)
    (received,) = read(frame(sample, WATCHED), WATCHED)
    assert received.ranks == ranks
    assert received.gpus[1] == GpuSample(1, error="GPU is lost")
    assert received.gpus[0].processes == [GpuProcess(4711, "li", 70000)]
    assert (received.seq, received.cpu_percent, received.memory_total_mib) == (5, 3.5, 10)


counts = st.none() | st.integers(0, 10**19)
shares = st.none() | st.floats(-1e19, 1e19)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
gpus = st.builds(
    GpuSample,
    st.integers(0, 99),
    counts,
    power_w=shares,
    throttle_reasons=st.none() | st.lists(words, max_size=2),
    processes=st.none() | st.lists(st.builds(GpuProcess, st.integers(0, 9), st.none() | words, counts), max_size=2),
    error=st.none() | words,
    error_notice=st.none() | st.builds(Notice, words, st.dictionaries(words, words, max_size=2)),
)
ranks = st.builds(RankSample, st.integers(0, 99), st.integers(1, 9), shares, counts, state=st.none() | words)
samples = st.builds(
    HostSample,
    st.integers(0, 10**19),
    st.floats(0, 1e12),
    shares,
    network_receive_bytes_per_s=st.dictionaries(words, st.floats(0, 1e12), max_size=2),
    gpus=st.lists(gpus, max_size=3),
    ranks=st.dictionaries(words, st.lists(ranks, min_size=1, max_size=3), max_size=2),
    network_errors=st.none() | st.dictionaries(words, st.integers(0, 9), max_size=2),
    rdma=st.none() | st.lists(st.builds(DeviceRate, words, st.integers(0, 9), st.integers(0, 9), counts), max_size=2),
)


@given(samples, st.booleans())
@settings(max_examples=40)  # Making one takes most of the time.
def test_a_sample_that_is_kept_as_it_came_reads_as_what_it_says(sample: HostSample, is_whole: bool) -> None:
    line = (
        rpc.encode({"id": 7, "result": rpc.to_wire(TelemetryReply([sample]))}) if is_whole else frame(sample, WATCHED)
    )
    reply = TypeAdapter(WATCHED.reply).validate_python(json.loads(line)["result"])
    (received,) = WATCHED.received(reply)
    kept = TypeAdapter(HostSample).validate_json(received.line())
    assert kept == received.sample == TypeAdapter(HostSample).validate_python(rpc.to_wire(received.sample))
    assert (received.seq, received.time) == (kept.seq, kept.time) == (sample.seq, sample.time)
    used = {gpu.index: gpu.memory_used_mib for gpu in sample.gpus if gpu.memory_used_mib is not None}
    assert received.gpu_memory_mib == used


@given(samples)
@settings(max_examples=40)
def test_an_answer_that_is_checked_as_it_is_decoded_is_the_one_that_both_steps_give(sample: HostSample) -> None:
    line = frame(sample, WATCHED).rstrip(b"\n")
    found = WATCHED.read(line)
    if found is None:  # What only both steps can tell: an escape, an exponent, a number of more than 20 digits.
        assert re.search(rb"\\|[0-9][eE]|[0-9]{21}", line)
    else:
        assert found == (7, TypeAdapter(WATCHED.reply).validate_python(decode_frame(line)["result"]))


PLAIN = frame(HostSample(5, 1.5, 3.5, gpus=[gpu(0)]), WATCHED).rstrip(b"\n")


@pytest.mark.parametrize(
    "change",
    [
        (b"71234", b"1" * 21),
        (b"71234", b"1e9"),
        (b"71234", b"1E999"),
        (b"402.1", b"NaN"),
        (b"402.1", b"-Infinity"),
        (b"402.1", b'"a lot"'),
        (b"power cap", b"power\\u0020cap"),
        (b"power cap", b"power \xff"),
        (b"power cap", b"x" * 2100),
        (b'"id":7', b'"id":"7"'),
        (b'"id":7', b'"id":true'),
        (b'"id":7', b'"id":7,"error":{"code":1}'),
        (b'"result":', b'"results":'),
    ],
    ids=str,
)
def test_what_is_to_be_looked_at_twice_is_left_to_both_steps(change: tuple[bytes, bytes]) -> None:
    assert WATCHED.read(PLAIN) is not None
    changed = PLAIN.replace(*change)
    assert changed != PLAIN
    assert WATCHED.read(changed) is None


@pytest.mark.parametrize("after", [None, 0, 17])
def test_a_request_is_the_one_that_its_class_says(after: int | None) -> None:
    assert json.loads(WATCHED.request(after, 10.0, 60)) == rpc.to_wire(
        TelemetryRequest(after, 10.0, 60, select=WATCHED.fields)
    )


def test_single_fields_are_told_without_an_object_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = HostSample(5, 1.5, 3.5, gpus=[gpu(0), gpu(1)], ranks={"job": [RankSample(4, 99), RankSample(5, 100)]})
    found = WATCHED.read(frame(sample, WATCHED).rstrip(b"\n"))
    assert found is not None
    monkeypatch.setattr(sample_rows, "unpack", lambda *_row: pytest.fail("nobody looked at the sample"))
    for received in (WATCHED.received(found[1])[0], WholeSample(sample)):
        assert received.host("cpu_percent") == 3.5
        assert not received.host("holds")
        assert list(received.gpus("utilization_percent")) == [97, 96]
        assert not any(received.gpus("error"))
        assert {job: list(pids) for job, pids in received.pids.items()} == {"job": [99, 100]}


def test_a_sample_is_kept_without_an_object_being_made_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = HostSample(5, 1.5, 3.5, gpus=[gpu(0), gpu(1)], ranks={"job": [RankSample(4, 99)]})
    reply = TypeAdapter(WATCHED.reply).validate_python(decode_frame(frame(sample, WATCHED))["result"])
    made: list[object] = []
    monkeypatch.setattr(sample_rows, "unpack", made.append)
    (received,) = WATCHED.received(reply)
    SampleCopy(tmp_path / "gpu1.jsonl").append(received)
    assert made == []
    (line,) = (tmp_path / "gpu1.jsonl").read_text().splitlines()
    assert [item["temperature_c"] for item in json.loads(line)["gpus"]] == [64, 65]


def test_the_fields_are_encoded_once_for_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    selection = Selection(("cpu_percent",), TEN_FIELDS, ("rank",))
    encoded: list[object] = []
    encode = rpc.encode_value

    def counted(value: object) -> str:
        encoded.append(value)
        return encode(value)

    monkeypatch.setattr(rpc, "encode_value", counted)
    for after in (None, 7):
        told = json.loads(rpc.encode_call(3, "telemetry", selection.request(after, 10.0, 60)))
        wanted = rpc.to_wire(TelemetryRequest(after, 10.0, 60, select=selection.fields))
        assert told == {"jsonrpc": "2.0", "id": 3, "method": "telemetry", "params": wanted}
    assert "select" not in str(encoded)


def test_an_older_agent_that_sends_whole_samples_is_understood() -> None:
    sample = HostSample(5, 1.5, gpus=[GpuSample(0, 97)])
    line = rpc.encode({"id": 7, "result": rpc.to_wire(TelemetryReply([sample]))})
    assert read(line, WATCHED) == [sample]


@pytest.mark.parametrize(
    "row",
    [
        [],
        [1, 1.0, [], [[97], ["x"]], {}],
        [1, 1.0, [], [[97]], {}],
        [1, 1.0, [], [[97], [1], [2]], {}],
        ["x", 1.0, [], [[97], [1]], {}],
        [1, 1.0, [], 5, {}],
        [1, 1.0, [], [[97], [1]], {"job": 5}],
        [1, None, [], [[97], [1]], {}],
    ],
)
def test_a_row_that_is_none_is_refused(row: Any) -> None:
    selection = Selection((), ("utilization_percent", "temperature_c"), ("rank", "pid"))
    with pytest.raises(ValidationError):
        TypeAdapter(selection.reply).validate_python({"rows": [row]})


@given(st.binary(max_size=300) | st.text(alphabet='[]{}",:0123456789\\u trfnlsae.-', max_size=100).map(str.encode))
def test_the_quick_decoder_says_what_the_careful_one_says(line: bytes) -> None:
    def outcome(decode: Any) -> Any:
        try:
            return repr(decode(line))
        except rpc.FrameError as error:
            return str(error)

    assert outcome(decode_frame) == outcome(rpc.decode)


@pytest.mark.parametrize("line", [b'{"a":' * 40 + b"1" + b"}" * 40, b'{"a":NaN}', b"[]", b"1", b""])
def test_what_is_no_frame_is_refused_by_both(line: bytes) -> None:
    for decode in (decode_frame, rpc.decode):
        with pytest.raises(rpc.FrameError):
            decode(line)
