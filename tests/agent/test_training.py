"""Metrics from what trainers really print: every one found, each step known, none twice, whatever else is printed."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from dtagent.locations import AttemptFiles
from dtagent.logs import trainer_metrics
from dtagent.logs.trainer_metrics import Training
from dtagent.logs.trainer_search import MAX_LINE_BYTES, some_spans

from tests.agent.conversation import Conversation
from tests.agent.trainer_files import OUTPUT, written
from tests.agent.trainer_files import files as files


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a look take as much CPU as it needs, so that on a slow machine no block is left out for that."""
    monkeypatch.setattr(trainer_metrics, "LOOK_CPU_S", 60.0)


def skipped(files: AttemptFiles) -> int:
    return noted(files, "skipped_bytes")


def noted(files: AttemptFiles, name: str) -> int:
    return sum(json.loads(line).get(name, 0) for line in files.trainer.read_text().splitlines())


def say(files: AttemptFiles, stream: str, data: bytes) -> None:
    with (files.logs / stream).open("ab") as log:
        log.write(data)


def found_in(files: AttemptFiles, name: str, rank: int = 0) -> list[dict[str, Any]]:
    for path in OUTPUT.glob(f"{name}.*"):
        say(files, f"{rank}.{path.suffix[1:]}", path.read_bytes())
    Training().look(files, is_over=True)
    return [{key: value for key, value in body.items() if key not in ("time", "rank")} for body in written(files)]


@pytest.mark.parametrize("name", ["transformers-5.23.0", "transformers-4.57.6"])
def test_each_report_of_hf_trainer_gets_the_step_that_its_progress_bar_shows(files: AttemptFiles, name: str) -> None:
    found = found_in(files, name)
    steps = [body["step"] for body in found if "loss" in body]
    assert steps == [5, 10, 15, 20, 25, 30, 35, 40, 45]
    assert next(body["loss"] for body in found if "loss" in body) == pytest.approx(3.671, abs=0.05)
    assert set(found[0]) == {"step", "steps_per_s", "loss", "gradient_norm", "learning_rate", "epoch", "total_steps"}
    assert {body["total_steps"] for body in found if "loss" in body} == {48}
    assert [body["epoch"] for body in found if "eval_loss" in body] == [1, 2, 3]
    assert "train_loss" in found[-1]
    assert "loss" not in found[-1]


def reports_beside_a_bar(files: AttemptFiles, *, every: int, epochs: int = 1) -> list[dict[str, Any]]:
    """Print a report every so many of 20 steps an epoch, with the bar alone on stderr, and look at every third step."""
    followed = Training()
    bar = "\r{:3.0f}%|██        | {}/20 [00:01<00:18,  3.00it/s]"
    for step in range(1, 20 * epochs + 1):
        position = (step - 1) % 20 + 1
        say(files, "0.err", bar.format(position * 5, position).encode())
        if step % every == 0:
            say(files, "0.out", f"{{'loss': {3 - step / 100:.3f}, 'epoch': {step / 20}}}\n".encode())
        if step % 3 == 0:
            followed.look(files)
    followed.look(files, is_over=True)
    return written(files)


def test_a_report_without_a_step_takes_that_of_a_bar_beside_it_and_its_speed(files: AttemptFiles) -> None:
    found = reports_beside_a_bar(files, every=5)
    steps = [body["step"] for body in found]
    assert steps == pytest.approx([5, 10, 15, 20], abs=3)
    assert steps == sorted(set(steps))
    assert {body["steps_per_s"] for body in found} == {3.0}


def test_a_bar_that_begins_anew_each_epoch_counts_on(files: AttemptFiles) -> None:
    steps = [body["step"] for body in reports_beside_a_bar(files, every=10, epochs=3)]
    assert steps == pytest.approx([10, 20, 30, 40, 50, 60], abs=3)


def test_more_reports_than_a_bar_has_shown_steps_get_no_step_twice(files: AttemptFiles) -> None:
    say(files, "0.err", b"\r 50%|##   | 1/2 [00:01<00:01,  1.00s/it]\r100%|#####| 2/2 [00:02<00:00,  1.00s/it]\n")
    say(files, "0.out", b"".join(b"{'loss': %d}\n" % loss for loss in range(5)))
    Training().look(files, is_over=True)
    steps = [body.get("step") for body in written(files)]
    assert [step for step in steps if step is not None] == [1, 2]
    assert len(steps) == 5


def test_bars_of_loading_and_of_evaluation_count_no_steps(files: AttemptFiles) -> None:
    say(files, "0.err", b"Loading checkpoint shards: 100%|#####| 3/3 [00:01<00:00, 2.00it/s]\n")
    say(files, "0.out", b"{'loss': 2.0, 'epoch': 0.1}\n")
    followed = Training()
    for _look in range(3):
        followed.look(files)
    say(files, "0.err", b"\r 10%|#    | 5/50 [00:01<00:18, 3.00it/s]")
    say(files, "0.out", b"{'loss': 1.5, 'epoch': 0.2}\n")
    for _look in range(3):
        followed.look(files)
    say(files, "0.err", b"\r 12%|#    | 6/50 [00:01<00:18, 3.00it/s]\n100%|#####| 8/8 [00:01<00:00, 9.00it/s]\n")
    say(files, "0.out", b"{'loss': 1.4, 'epoch': 0.3}\n")
    followed.look(files, is_over=True)
    assert [body.get("step") for body in written(files)] == [None, 5, 6]
    assert written(files)[-1]["steps_per_s"] == 3.0


def test_lightning_counts_steps_over_epochs(files: AttemptFiles) -> None:
    found = found_in(files, "lightning-2.6.6")
    assert [body["step"] for body in found] == list(range(found[0]["step"], 25))
    numbers = {"step": 24, "loss": 0.216, "learning_rate": 0.01, "epoch_steps": 8}
    assert found[-1] == numbers | {"steps_per_s": pytest.approx(419, rel=1)}


def test_a_bar_with_a_postfix_reports_once_a_step_and_its_last_word(files: AttemptFiles) -> None:
    found = found_in(files, "tqdm-4.70.1")
    assert [body["step"] for body in found] == list(range(1, 21))
    assert found[1] == {"step": 2, "loss": 0.985, "learning_rate": 1e-5, "steps_per_s": pytest.approx(50, rel=1)}


def test_deepspeeds_two_lines_of_a_step_are_one_report(files: AttemptFiles) -> None:
    found = found_in(files, "deepspeed-0.19.8")
    assert [body["step"] for body in found] == [2, 4, 6]
    assert found[1]["learning_rate"] == 0.01
    assert found[1]["samples_per_s"] == pytest.approx(4446.42, abs=0.01)


def test_megatron_reports_a_loss_that_it_leaves_out_as_no_number(files: AttemptFiles) -> None:
    first, second = found_in(files, "megatron", rank=7)
    assert first == {
        "step": 10,
        "total_steps": 500,
        "loss": 9.876543,
        "learning_rate": 1.5e-4,
        "gradient_norm": 1.234,
        "loss_scale": 1.0,
        "tflops_per_gpu": 412.3,
        "samples_per_s": pytest.approx(128 / 1.2345),
        "steps_per_s": pytest.approx(1 / 1.2345, rel=1e-3),
    }
    assert (second["step"], second["val_loss"]) == (20, 9.101112)
    assert math.isnan(second["loss"])
    assert math.isnan(second["gradient_norm"])


def test_torchtitan_tells_the_speed_of_one_gpu(files: AttemptFiles) -> None:
    assert found_in(files, "torchtitan")[1] == {
        "step": 30,
        "loss": 9.71031,
        "gradient_norm": 11.0211,
        "memory_gib": 48.87,
        "tokens_per_s_per_gpu": 4402,
        "tflops_per_gpu": 254.92,
        "mfu_percent": 25.78,
    }


def test_nanogpts_estimates_are_kept_apart_from_the_loss_of_a_step(files: AttemptFiles) -> None:
    assert found_in(files, "nanogpt") == [
        {"step": 0, "train_loss": 10.9866, "val_loss": 10.9868, "loss": 10.9887, "steps_per_s": 0.010182},
        {"step": 10, "loss": 9.7310, "mfu_percent": 17.35, "steps_per_s": 0.73963},
    ]


def test_keras_counts_batches_over_epochs(files: AttemptFiles) -> None:
    found = found_in(files, "keras")
    assert [(body["step"], body["loss"], body["val_loss"]) for body in found] == [
        (10, 2.3026, 2.2988),
        (20, 2.1004, 2.0791),
    ]


def test_what_comes_in_pieces_is_read_once_it_is_whole(files: AttemptFiles) -> None:
    followed = Training()
    for piece in (b"step 1 lo", b"ss 2.0\nstep 2 loss", b" 1.5", b"\nstep 3 loss 1.2"):
        say(files, "0.out", piece)
        followed.look(files)
        followed.look(files)
    assert [body["step"] for body in written(files)] == [1, 2]
    followed.look(files, is_over=True)
    assert [(body["step"], body["loss"]) for body in written(files)] == [(1, 2.0), (2, 1.5), (3, 1.2)]


def test_a_daemon_that_takes_over_goes_on_where_the_other_was(files: AttemptFiles) -> None:
    for step in range(1, 21):
        say(files, "0.out", f"step {step} loss 2.5\n".encode())
        for _look in range(2):
            Training().look(files)  # Each knows only what is on disk.
    Training().look(files, is_over=True)
    Training().look(files, is_over=True)
    assert [body["step"] for body in written(files)] == list(range(1, 21))


@pytest.mark.parametrize(
    "line",
    ["Epoch: [{epoch}]  [{step}/10]  eta: 0:00:01  loss: 2.5 (2.5)", "Epoch {epoch} | Iter {step} | Train Loss 2.5"],
)
def test_a_daemon_that_takes_over_counts_on_over_epochs(files: AttemptFiles, line: str) -> None:
    for count in range(30):
        say(files, "0.out", (line.format(epoch=count // 10, step=count % 10) + "\n").encode())
        for _look in range(2):
            Training().look(files)  # Each knows only what is on disk.
    Training().look(files, is_over=True)
    assert [body["step"] for body in written(files)] == list(range(30))


@pytest.mark.parametrize("counted", [5, {"0.out": 5}, {"0.out": [1, [], ["a"] * 7]}, {"0.out": [None, [None] * 7, 5]}])
def test_a_strange_note_of_another_daemon_does_no_harm(files: AttemptFiles, counted: object) -> None:
    files.trainer.write_text(json.dumps({"at": {"0.out": 0}, "counted": counted, "file_step": "x"}) + "\n")
    say(files, "0.out", b"Epoch: [1]  [2/10]  eta: 0:00:01  loss: 2.5 (2.5)\n")
    Training().look(files, is_over=True)
    assert [body["step"] for body in written(files)] == [2]


def test_what_a_daemon_did_not_finish_writing_is_written_again(files: AttemptFiles) -> None:
    say(files, "0.out", b"step 1 loss 2.5\n")
    Training().look(files, is_over=True)
    whole = files.trainer.read_bytes()
    say(files, "0.out", b"step 2 loss 2.4\n")
    files.trainer.write_bytes(whole + b'{"step": 2, "loss": 2.4, "rank": 0}\n{"at": {"0.ou')
    Training().look(files, is_over=True)
    assert files.trainer.read_bytes().startswith(whole)
    assert [body["step"] for body in written(files)] == [1, 2]


def test_a_script_that_reports_itself_is_left_to_it(files: AttemptFiles) -> None:
    followed = Training()
    say(files, "0.out", b"step 1 loss 2.5\n")
    followed.look(files)
    files.metrics.write_text('{"step": 1, "loss": 2.5}\n')
    say(files, "0.out", b"step 2 loss 2.4\n")
    followed.look(files)
    followed.look(files, is_over=True)
    assert written(files) == []


def test_ranks_that_say_the_same_are_told_by_the_lowest(files: AttemptFiles) -> None:
    followed = Training()
    for step in range(3):
        for rank in (4, 5, 11):
            say(files, f"{rank}.out", f"step {step} loss 2.5\n".encode())
        followed.look(files)
    followed.look(files, is_over=True)
    assert [(body["rank"], body["step"]) for body in written(files)] == [(4, 0), (4, 1), (4, 2)]


@pytest.mark.usefixtures("unhurried")
def test_a_flood_of_metrics_is_thinned_to_the_newest(files: AttemptFiles) -> None:
    say(files, "0.out", b"".join(b"step %d loss 2.5\n" % step for step in range(20_000)))
    Training().look(files, is_over=True)
    steps = [body["step"] for body in written(files)]
    assert len(steps) == trainer_metrics.BURST
    assert steps == sorted(set(steps))
    assert steps[-1] == 19_999
    assert noted(files, "unread_lines") == 20_000 - trainer_metrics.LINES_BURST


@pytest.mark.usefixtures("unhurried")
def test_of_many_lines_an_even_choice_is_read_and_the_newest_and_the_others_are_counted(files: AttemptFiles) -> None:
    followed, began = Training(), time.monotonic()
    for look in range(4):
        first = look * 50_000
        block = b"".join(b"step %d loss 2.5 ppl 12.1\n" % step for step in range(first, first + 50_000))
        chosen = [int(block[begin:end].split()[1]) for begin, end in some_spans(block, 500)]
        assert chosen[-1] == first + 49_999
        assert 450 < len(chosen) <= 500
        assert max(after - before for before, after in pairwise(chosen)) < 300
        say(files, "0.out", block)
        followed.look(files)
    followed.look(files, is_over=True)
    assert [body["step"] for body in written(files)][-1] == 199_999
    read = 2 * trainer_metrics.LINES_BURST + trainer_metrics.LINES_PER_S * (time.monotonic() - began)
    assert 200_000 - read < noted(files, "unread_lines") < 200_000


@pytest.mark.usefixtures("unhurried")
def test_every_line_of_a_trainer_that_reports_a_hundred_times_a_second_is_read(files: AttemptFiles) -> None:
    followed = Training()
    for look in range(15):
        say(files, "0.out", b"".join(b"step %d loss 2.5\n" % step for step in range(look * 100, look * 100 + 100)))
        followed.look(files)
    followed.look(files, is_over=True)
    assert noted(files, "unread_lines") == 0


def test_lines_that_take_long_to_read_are_left_out_when_their_time_is_up_but_not_the_newest(
    files: AttemptFiles,
) -> None:
    slow = (b"a-" * MAX_LINE_BYTES)[: MAX_LINE_BYTES - 8] + b" loss:\n"
    followed = Training()
    began = time.process_time()
    for look in range(3):
        say(files, "0.out", slow * 1000 + b"step %d loss 2.5\n" % look)
        followed.look(files)
    assert time.process_time() - began < 3.0
    followed.look(files, is_over=True)
    assert [body["step"] for body in written(files)][-1] == 2


@pytest.mark.usefixtures("unhurried")
def test_keras_counts_over_epochs_where_only_some_lines_are_read(files: AttemptFiles) -> None:
    lines = b"".join(
        b"Epoch %d/50\n" % epoch
        + b"".join(b"%d/400 \xe2\x94\x81 1s 2ms/step - loss: 0.5\n" % step for step in range(1, 401))
        for epoch in range(1, 51)
    )
    say(files, "0.out", lines)
    Training().look(files, is_over=True)
    steps = [body["step"] for body in written(files)]
    assert steps == sorted(steps)
    assert steps[-1] == 20_000
    assert noted(files, "unread_lines") > 10_000


def test_a_hundred_thousand_lines_with_a_loss_cost_less_than_a_quarter_of_their_second(files: AttemptFiles) -> None:
    block = b"".join(b"[rank0] step %d: loss 2.5, lr 3e-4, grad norm 1.2, 31 ms\n" % step for step in range(100_000))
    followed = Training()
    say(files, "0.out", block)
    followed.look(files)  # The burst.
    say(files, "0.out", block)
    began = time.process_time()
    followed.look(files)
    assert time.process_time() - began < 0.5  # Takes 0.05 s; reading each line took 3.7 s.


@pytest.mark.parametrize(
    "line",
    [b"\r 10%|###| 7/1000000 [00:01<00:18, 3.00it/s]", b"loss " + b"loss 1e9 tok 3k " * 240 + b"\n"],
    ids=["bars", "long lines"],
)
def test_eight_ranks_that_flood_at_once_cost_no_more_than_one(files: AttemptFiles, line: bytes) -> None:
    followed = Training()
    spent_s: list[float] = []
    while not any(item < 0.8 for item in spent_s):  # About 0.35; bars took 1.4 s.
        assert len(spent_s) < 3, spent_s  # On a busy machine the same work may take twice as long once.
        spent_s.append(0.0)
        for _look in range(2):
            for rank in range(8):
                say(files, f"{rank}.out", line * (trainer_metrics.MAX_LAG_BYTES // len(line)))
            began = time.process_time()
            followed.look(files)
            spent_s[-1] += time.process_time() - began
    say(files, "0.out", b"\nstep 7 loss 2.5\n")
    followed.look(files, is_over=True)
    assert [body["step"] for body in written(files)] == [7]


def test_output_beyond_what_one_look_reads_is_passed_over_and_said(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_metrics, "MAX_LAG_BYTES", 64 * 1024)
    monkeypatch.setattr(trainer_metrics, "MAX_CATCH_UP_BYTES", 64 * 1024)
    say(files, "0.out", b"step 1 loss 3.0\n" + b"x" * 99 + b"\n" + b"nothing here\n" * 20_000 + b"step 2 loss 2.5\n")
    size = (files.logs / "0.out").stat().st_size
    Training().look(files, is_over=True)
    assert [body["step"] for body in written(files)] == [2]
    assert skipped(files) == size - 64 * 1024


def test_a_hole_in_a_log_is_passed_over(files: AttemptFiles) -> None:
    descriptor = os.open(files.logs / "0.out", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"step 1 loss 3.0\n")
    os.pwrite(descriptor, b"\nstep 2 loss 2.5\n", 512 * 1024 * 1024)
    os.close(descriptor)
    began = time.process_time()
    say_size = trainer_metrics.MAX_CATCH_UP_BYTES
    Training().look(files, is_over=True)
    assert time.process_time() - began < 2
    assert [body["step"] for body in written(files)] == [2]
    assert skipped(files) >= 512 * 1024 * 1024 - say_size


def test_a_full_disk_is_an_error_and_the_next_look_has_all(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(files, "0.out", b"step 1 loss 3.0\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda _descriptor, data: len(data) // 2)
        with pytest.raises(OSError, match="no room"):
            Training().look(files, is_over=True)
    assert files.trainer.read_bytes() == b""
    Training().look(files, is_over=True)
    assert [body["step"] for body in written(files)] == [1]


def test_strange_things_in_place_of_logs_do_no_harm(files: AttemptFiles) -> None:
    os.mkfifo(files.logs / "0.out")
    (files.logs / "1.out").symlink_to("/etc/passwd")
    (files.logs / "2.out").mkdir()
    say(files, "3.err", b"\x00\xff" * 5000 + b"\nstep 4 loss 1.0\n")
    Training().look(files, is_over=True)
    assert [(body["rank"], body["step"]) for body in written(files)] == [(3, 4)]


def reports_of_steps(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch, line: str, *, every_s: float = 1.0
) -> list[dict[str, Any]]:
    """Print five steps at a time, and look after each."""
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    followed = Training()
    for look in range(12):
        for step in range(5 * look, 5 * look + 5):
            say(files, "0.out", line.format(step=step).encode())
        clock[0] += every_s
        followed.look(files)
    return written(files)


def test_steps_a_second_are_counted_where_no_line_tells_a_speed(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = reports_of_steps(files, monkeypatch, "step {step} loss 2.5\n")
    assert [body["step"] for body in found] == list(range(60))
    told = [body["steps_per_s"] for body in found if "steps_per_s" in body]
    assert told == [pytest.approx(5.0)] * 8


def test_steps_that_take_long_have_a_speed_too(files: AttemptFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    found = reports_of_steps(files, monkeypatch, "step {step} loss 2.5\n", every_s=200.0)
    assert found[-1]["steps_per_s"] == pytest.approx(0.025)


def test_what_counts_samples_gets_samples_a_second(files: AttemptFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    found = reports_of_steps(files, monkeypatch, "Train Epoch: 1 [{step}/60000 (0%)]\tLoss: 2.301\n")
    assert found[-1]["samples_per_s"] == pytest.approx(5.0)
    assert "steps_per_s" not in found[-1]


def test_a_speed_of_the_trainer_is_left_as_it_is(files: AttemptFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    found = reports_of_steps(files, monkeypatch, "step {step} loss 2.5 tok/s: 100\n")
    assert not any("steps_per_s" in body for body in found)


def test_the_last_lines_of_a_rank_reach_a_client_before_the_end(tmp_path: Path) -> None:
    script = "for step in range(5): print(f'step {step} loss 2.5')\nprint('step 5 loss 1.5', end='')"
    with Conversation(tmp_path / "root") as agent:
        agent.prepare("printing")
        agent.start("printing", [[sys.executable, "-c", script]])
        agent.end_of("printing")
        found = agent.streams("printing", wants_trainer=True)
    bodies = [json.loads(line) for line in found["trainer"].splitlines()]
    assert [body["step"] for body in bodies if "step" in body] == [0, 1, 2, 3, 4, 5]
    assert found["0.out"].endswith(b"step 5 loss 1.5")


def test_a_client_that_does_not_know_the_stream_is_not_sent_it(tmp_path: Path) -> None:
    with Conversation(tmp_path / "root") as agent:
        agent.prepare("printing")
        agent.start("printing", [["echo", "step 1 loss 2.5"]])
        agent.end_of("printing")
        assert set(agent.streams("printing", wants_trainer=True)) == {"0.out", "0.err", "trainer"}
        assert set(agent.streams("printing")) == {"0.out", "0.err"}
