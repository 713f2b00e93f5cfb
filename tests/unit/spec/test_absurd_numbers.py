"""Numbers that are none, infinite or beyond all arithmetic are refused at decoding, and at their place."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from dtagent.protocol import rpc
from pydantic import TypeAdapter

from dttui import locations
from dttui.cli import main
from dttui.cli.arguments import parse_arguments
from dttui.errors import UsageError
from dttui.fleet.known_hardware import known_hardware
from dttui.inventory.reader import parse_inventory
from dttui.jobs.metrics import MetricStream
from dttui.rpc.sample_rows import decode_frame
from dttui.spec import DocumentError, parse_job
from dttui.spec.conditions import parse_metric

NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1E+400", "9" * 400 + ".0", "9" * 30, "-" + "1" * 400]
FRAMES = ['{{"id": 1, "result": {}}}', '{{"a": [[{{"b": {}}}]]}}', '{{"x": {{"y": [1, {}]}}, "z": [[[[[[]]]]]]}}']


@pytest.mark.parametrize("decode", [rpc.decode, decode_frame])
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_with_such_a_number_is_none(decode: object, number: str, frame: str) -> None:
    assert callable(decode)
    with pytest.raises(rpc.FrameError):
        decode(frame.format(number).encode())
    large = frame.format("[" * 0 + "{" + ",".join(f'"k{n}": [{{}}]' for n in range(40)) + f', "n": {number}' + "}")
    with pytest.raises(rpc.FrameError):
        decode(large.encode())


@pytest.mark.parametrize("decode", [rpc.decode, decode_frame])
def test_a_frame_with_large_but_real_numbers_and_digits_in_text_is_one(decode: object) -> None:
    body = {"inode": 2**64 - 1, "low": -(2**63), "f": 1.7e308, "s": 5e-324, "text": "9" * 500 + "1e999 NaN", "ok": True}
    assert callable(decode)
    assert decode(json.dumps(body).encode()) == body


@pytest.mark.parametrize("number", NUMBERS)
def test_what_a_rank_reports_so_is_left_out_and_told(number: str) -> None:
    stream = MetricStream()
    (found,) = stream.feed(f'{{"step": 3, "loss": {number}, "mine": {number}}}\n'.encode(), 0, 100.0, 1)
    values = TypeAdapter(dict[str, object]).dump_python({"loss": found.loss, **found.extra})
    assert all(value is None or (isinstance(value, float) and math.isfinite(value)) for value in values.values())
    (found,) = stream.feed(f'{{"step": {number}, "rank": {number}, "loss": 1}}\n'.encode(), 0, 100.0, 1)
    assert found.step is None or abs(found.step) < 1e20
    assert abs(found.rank) < 1e20


@pytest.mark.parametrize("number", ["1e999", "-1e999", "nan", "inf", "1e400%"])
def test_an_alert_has_no_such_threshold(number: str) -> None:
    with pytest.raises(ValueError, match=r"found|no number"):
        parse_metric(f"loss > {number}")


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf", "1e999", "1.0e+999", "9" * 400])
def test_a_job_and_an_inventory_name_the_place_of_such_a_number(number: str) -> None:
    for key in ("parameters", "layers", "seq_length"):
        text = f"distributed_training:\n  name: x\n  cluster: {{nodes: [{{id: a}}]}}\n  model:\n    {key}: {number}\n"
        with pytest.raises(DocumentError) as caught:
            parse_job(text, "job.yaml")
        assert (caught.value.problems[0].line, caught.value.problems[0].column) == (5, len(key) + 7)
    with pytest.raises(DocumentError) as caught:
        parse_inventory(f"environments:\n  - {{name: a, port: {number}}}\n", "inventory.yaml")
    assert caught.value.problems[0].line == 2


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1", "9" * 400])
def test_a_file_of_links_with_such_a_number_is_refused_by_name(number: str) -> None:
    path = locations.links_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    link = {"between": ["a", "b"], "bandwidth": 0.5, "round_trip_s": 0.5, "measured_at": 7.0}
    path.write_text(json.dumps({"links": [link]}))
    assert len(known_hardware().links) == 1
    path.write_text(json.dumps({"links": [link]}).replace("0.5", number))
    with pytest.raises(UsageError) as refused:
        known_hardware()
    assert str(path) in refused.value.message


@pytest.mark.parametrize("number", [".nan", ".inf", "1e999", "-1", "0", "9" * 400])
def test_a_file_of_gpus_with_such_a_number_is_refused_at_its_place(number: str) -> None:
    path = locations.gpu_types_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = "name: M-1GB, type: M, fp32: 1, bf16: 1, memory_bandwidth: 1, link: pcie, link_bandwidth: 1, source: x"
    path.write_text(f"gpus:\n  - {{{fields}, memory_gib: {number}}}\n")
    with pytest.raises(DocumentError) as caught:
        known_hardware()
    (problem,) = caught.value.problems
    assert (problem.line, problem.path) == (2, ("gpus", 0, "memory_gib"))


@pytest.mark.parametrize(
    "words",
    [
        ["estimate", "--parameters", "{}"],
        ["estimate", "--parameters", "7B", "--gpus", "{}"],
        ["estimate", "--parameters", "7B", "--inter-bandwidth", "{}GB/s"],
        ["estimate", "--parameters", "7B", "--inter-latency", "{}us"],
        ["estimate", "--parameters", "7B", "--zero-stage", "{}"],
        ["estimate", "--parameters", "7B", "--gradient-bytes", "{}"],
        ["logs", "-n", "{}"],
        ["logs", "--rank", "{}"],
        ["logs", "--attempt", "{}"],
        ["remove", "--keep", "{}"],
    ],
)
@pytest.mark.parametrize("number", ["nan", "inf", "1e999", "-1", "9" * 5000, "1e-999"])
def test_options_take_no_such_number(words: list[str], number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        parse_arguments([word.format(number) for word in words])
    assert refused.value.code == 2
    assert "invalid" not in capsys.readouterr().err


@pytest.mark.parametrize("since", ["nan", "inf", "1e999s", "9" * 400 + "m", "99999d", "-5m"])
def test_a_time_that_no_calendar_has_is_refused(since: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["remove", f"--finished-before={since}", "--yes"]) in (0, 2)
    assert "internal" not in capsys.readouterr().err
