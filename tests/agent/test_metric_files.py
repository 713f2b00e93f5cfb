"""Losses from files that scripts write, where their ranks print none: each kind, its growth, and what is hostile.

The encoders here make what tensorboardX 2.6.5 and wandb 0.31.0 have written in a trial.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dtagent.locations import AttemptFiles
from dtagent.logs import metric_files
from dtagent.logs.event_records import MalformedError, event_records, wandb_records
from dtagent.logs.metric_files import MetricFiles, roots_of
from dtagent.logs.metric_sources import MetricSource, report_of
from dtagent.logs.trainer_metrics import Training
from hypothesis import given
from hypothesis import strategies as st


def varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def part(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(step: int, **values: float) -> bytes:
    summary = b"".join(
        part(1, part(1, tag.replace("__", "/").encode()) + b"\x15" + struct.pack("<f", value))
        for tag, value in values.items()
    )
    message = b"\x09" + struct.pack("<d", 1.0) + (b"\x10" + varint(step) if step else b"") + part(5, summary)
    return struct.pack("<QI", len(message), 0) + message + b"\0\0\0\0"


def history(step: int, **values: Any) -> bytes:
    items = b"".join(
        part(1, part(1, key.encode()) + varint(16 << 3 | 2) + varint(len(text)) + text)
        for key, text in ((key, json.dumps(value).encode()) for key, value in values.items())
    )
    return part(2, items + part(2, b"\x08" + varint(step)))


def offline_run(records: list[bytes]) -> bytes:
    data = b":W&B\xe1\xbe\x00"
    for record in records:
        first = True
        while first or record:
            left = 32768 - len(data) % 32768
            if left < 7:
                data += b"\0" * left
                left = 32768
            piece, record = record[: left - 7], record[left - 7 :]
            kind = (1 if not record else 2) if first else (3 if record else 4)
            data += struct.pack("<IHB", 0, len(piece), kind) + piece
            first = False
    return data


STEPS = range(1, 6)
CONTENTS: dict[str, bytes] = {
    "events.out.tfevents.1.host": b"".join(event(step, Loss__train=step / 2, lr=0.1) for step in STEPS),
    "run-1.wandb": offline_run([history(step, loss=step / 2) for step in STEPS]),
    "log.jsonl": b"".join(json.dumps({"step": step, "loss": step / 2}).encode() + b"\n" for step in STEPS),
    "metrics.csv": b"epoch,step,train_loss,val_loss\n"
    + b"".join(f"0,{step},{step / 2},\n0,{step},,9.0\n".encode() for step in STEPS),
    "trainer_state.json": json.dumps(
        {"log_history": [{"step": step, "loss": step / 2, "epoch": 0.1} for step in STEPS] + [{"eval_loss": 9.0}]}
    ).encode(),
}


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    """An attempt of one rank that runs in `work`, prints no loss and logs to `--output_dir out`."""
    found = AttemptFiles(tmp_path / "job" / "0")
    found.logs.mkdir(parents=True)
    (tmp_path / "work" / "out").mkdir(parents=True, exist_ok=True)
    argv = ["python", "train.py", "--output_dir", "out"]
    found.start.write_text(json.dumps({"processes": [{"argv": argv, "cwd": str(tmp_path / "work")}]}))
    (found.logs / "0.out").write_text("hello\n")
    return found


@pytest.fixture
def out(tmp_path: Path) -> Path:
    directory = tmp_path / "work" / "out" / "run"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def told(files: AttemptFiles) -> list[dict[str, Any]]:
    bodies = map(json.loads, files.trainer.read_text().splitlines() if files.trainer.exists() else [])
    return [body for body in bodies if "at" not in body]


@pytest.mark.parametrize("name", CONTENTS)
def test_the_loss_of_a_file_is_told_at_the_end_where_no_line_has_one(files: AttemptFiles, out: Path, name: str) -> None:
    (out / name).write_bytes(CONTENTS[name])
    Training().look(files, is_over=True)
    assert [(body["step"], body["loss"], body["rank"]) for body in told(files)] == [(s, s / 2, 0) for s in STEPS]


@pytest.mark.parametrize("name", [name for name in CONTENTS if name != "trainer_state.json"])
def test_a_file_that_grows_is_read_on_where_it_ended(out: Path, name: str) -> None:
    source, data, steps = MetricSource(out / name), CONTENTS[name], []
    for end in range(0, len(data) + 13, 13):
        (out / name).write_bytes(data[:end])
        steps += [report["step"] for report in source.new()]
        assert not source.is_given_up
    assert sorted(set(steps)) == list(STEPS)
    assert steps == sorted(steps)


def test_nothing_is_looked_for_while_lines_tell_a_loss(files: AttemptFiles, out: Path) -> None:
    (out / "log.jsonl").write_bytes(CONTENTS["log.jsonl"])
    (files.logs / "0.out").write_text("step 7 loss 2.5\n")
    Training().look(files, is_over=True)
    assert [body["step"] for body in told(files)] == [7]


def test_nothing_is_looked_for_in_the_first_half_minute(files: AttemptFiles, out: Path) -> None:
    (out / "log.jsonl").write_bytes(CONTENTS["log.jsonl"])
    found = MetricFiles(files)
    assert found.look(100.0, is_over=False) == []
    assert found.look(100.0 + metric_files.GRACE_S - 1, is_over=False) == []
    assert until_told(found, 100.0 + metric_files.GRACE_S)


def until_told(found: MetricFiles, now: float) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 20
    while not (reports := found.look(now, is_over=False)):
        assert time.monotonic() < deadline
    return reports


def test_a_file_of_an_earlier_run_is_not_taken(files: AttemptFiles, out: Path) -> None:
    (out / "log.jsonl").write_bytes(CONTENTS["log.jsonl"])
    before = files.start.stat().st_mtime - 60
    os.utime(out / "log.jsonl", (before, before))
    Training().look(files, is_over=True)
    assert told(files) == []


def test_what_another_daemon_has_told_is_not_told_again(files: AttemptFiles, out: Path) -> None:
    (out / "log.jsonl").write_bytes(CONTENTS["log.jsonl"] + b'{"step": 6, "loss": 3.0}\n')
    found = MetricFiles(files, last_step=5).look(0.0, is_over=True)
    assert [report["step"] for report in found] == [5, 6]


@pytest.mark.parametrize("name", CONTENTS)
def test_who_asks_again_after_the_end_is_told_nothing_twice(files: AttemptFiles, out: Path, name: str) -> None:
    (out / name).write_bytes(CONTENTS[name])
    Training().look(files, is_over=True)
    before = files.trainer.read_bytes()
    for _again in range(2):
        Training().look(files, is_over=True)
    assert files.trainer.read_bytes() == before


def test_files_are_not_looked_for_where_lines_have_told_another_daemon_a_loss(files: AttemptFiles, out: Path) -> None:
    (out / "log.jsonl").write_bytes(CONTENTS["log.jsonl"])
    (files.logs / "0.out").write_text("step 7 loss 2.5\n")
    followed = Training()
    for _look in range(2):  # The first one only notes that there is something.
        followed.look(files)
    Training().look(files, is_over=True)
    assert [body["step"] for body in told(files)] == [7]


def test_a_directory_that_hangs_holds_nothing_up(files: AttemptFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_files, "LAST_S", 0.1)
    answered = threading.Event()
    monkeypatch.setattr(metric_files.MetricFiles, "_candidates", lambda _self: [answered.wait(60)][:0])
    began = time.monotonic()
    Training().look(files, is_over=True)
    assert time.monotonic() - began < 30
    answered.set()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.symlink_to("/etc/passwd"),
        os.mkfifo,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b"\xff" * 100_000),
        lambda path: path.write_bytes(b"{" * 100_000 + b"\n"),
        lambda path: path.write_bytes(b"[" * 50_000 + b"\n"),
        lambda path: path.write_bytes(b'{"log_history": 5}\n'),
        lambda path: path.write_bytes(b""),
    ],
)
@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_no_such_file_is_passed_over(out: Path, name: str, spoil: Callable[[Path], object]) -> None:
    spoil(out / name)
    source = MetricSource(out / name)
    assert source.new() == []
    assert source.new() == []


def test_a_search_ends_after_so_many_entries(files: AttemptFiles, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_files, "MAX_ENTRIES", 50)
    for number in range(200):
        (out / f"{number}.txt").touch()
    deep = out / "deep"
    deep.mkdir()
    (deep / "log.jsonl").write_bytes(CONTENTS["log.jsonl"])
    Training().look(files, is_over=True)
    assert told(files) == []


@given(st.binary(max_size=400))
def test_no_bytes_make_the_readers_of_records_raise_anything_else(data: bytes) -> None:
    for read in (
        event_records,
        lambda piece: wandb_records(piece, 7),
        lambda piece: wandb_records(b":W&B\0\0\0" + piece, 0),
    ):
        try:
            records, taken = read(data)
        except MalformedError:
            continue
        assert taken <= len(data) + 7
        assert all(isinstance(value, float) for item in records for value in item.values.values())


def test_a_record_without_bounds_is_refused() -> None:
    with pytest.raises(MalformedError):
        event_records(struct.pack("<QI", 1 << 60, 0) + b"\0" * 100)


def test_an_image_among_scalars_is_passed_over_once_it_is_whole(out: Path) -> None:
    image = struct.pack("<QI", (1 << 20) + 5, 0) + b"\0" * ((1 << 20) + 9)
    path = out / "events.out.tfevents.1"
    path.write_bytes(event(1, train__loss=2.0) + image[:500_000])
    source = MetricSource(path)
    assert [report["loss"] for report in source.new()] == [2.0]
    with path.open("ab") as file:
        file.write(image[500_000:] + event(2, train__loss=1.5))
    found = [*source.new(), *source.new()]
    assert (found[-1]["step"], found[-1]["loss"]) == (2, 1.5)
    assert not source.is_given_up


def test_strange_numbers_and_names_end_no_search() -> None:
    assert report_of({"loss": 1, "epoch": float("nan"), "train/" * 700 + "loss": 2}) is not None


def test_directories_come_from_arguments_and_from_where_ranks_run(tmp_path: Path) -> None:
    for name in ("work", "work/a", "b"):
        (tmp_path / name).mkdir()
    argv = ["python", "--logging_dir=a", "--save-dir", str(tmp_path / "b"), "--output_dir", "/", "--lr", "1"]
    request = {"processes": [{"argv": argv, "cwd": str(tmp_path / "work")}, {"cwd": "/"}, {"cwd": "x"}, 5]}
    assert roots_of(request) == [tmp_path / "work" / "a", tmp_path / "b", tmp_path / "work"]


def test_of_several_losses_the_plainest_counts_and_one_of_held_out_data_never() -> None:
    assert report_of({"loss/val": 1, "train/aux_loss": 2, "train/loss": 3, "trainer/global_step": 7}, 90) == {
        "loss_val": 1.0,
        "loss": 3.0,
        "step": 7,
    }
    assert report_of({"eval/loss": 1.0, "step": 5}) is None
