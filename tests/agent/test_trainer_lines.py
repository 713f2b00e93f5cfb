"""Single lines of trainers: what is read from each, and that none makes the reader raise or takes it long."""

from __future__ import annotations

import math
import time

import pytest
from dtagent.logs.trainer_lines import TrainerLines
from dtagent.logs.trainer_search import MAX_LINE_BYTES, spans
from hypothesis import given
from hypothesis import strategies as st


def read(line: str) -> dict[str, float] | None:
    return TrainerLines().read(line.encode())


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("[default0]:step 5/100  loss 2.100  8.1k tok/s", {"step": 5, "loss": 2.1, "tokens_per_s": 8100}),
        ("[0]<stdout>:Step 10: Loss: 2.5, LR: 1.5e-05", {"step": 10, "loss": 2.5, "learning_rate": 1.5e-5}),
        ("Step: 1,234 | loss=inf", {"step": 1234, "loss": math.inf}),
        ("step 00010/01000 (1.00%) | loss: 3.14 | tok/sec: 65,000", {"step": 10, "loss": 3.14, "tokens_per_s": 65000}),
        ('{"step": 5, "loss": 1.25}', {"step": 5, "loss": 1.25}),
        (
            "Epoch 2/3:  50%|█| 4/8 [00:00<00:00, 4.2it/s, loss=1.5]",
            {"step": 12, "loss": 1.5, "steps_per_s": 4.2, "epoch_steps": 8},
        ),
        ("training: 37it [00:01, 36.1it/s, loss=0.5]", {"step": 37, "loss": 0.5, "steps_per_s": 36.1}),
        ("training: 37it [00:59,  1.60s/it, loss=0.5]", {"step": 37, "loss": 0.5, "steps_per_s": 0.625}),
        (
            "[2026-11-21 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] "
            "steps: 10 loss: 4.5000 iter time (s): 0.300 samples/sec: 53.333",
            {"step": 10, "loss": 4.5, "samples_per_s": 53.333, "steps_per_s": 3.3333},
        ),
        (
            "steps: 20 loss: 4.2511 iter time (s): 0.300 samples/sec: 53.333",
            {"step": 20, "loss": 4.2511, "samples_per_s": 53.333, "steps_per_s": 3.3333},
        ),
        ("max steps: 500 | loss: 2.5", None),
        ("loss after 100 steps: 2.5", None),
        ("{'loss': None, 'epoch': 1.0}", None),
        ("loss: 0.3, step: None", {"loss": 0.3}),
        ("loss 0.3", None),
        ("loading the loss function of step 10", None),
        ("We lost 3 hosts at step 7", None),
        ("Checkpoint global_step10 is saved, loss kept", None),
    ],
)
def test_lines_of_ones_own_are_read_where_they_name_step_and_loss(line: str, numbers: dict[str, float] | None) -> None:
    assert read(line) == numbers


@pytest.mark.parametrize(
    ("lines", "total"),
    [
        (["global_step 10/50 loss=1.0"], 50),
        (["iteration       10/     100 | consumed samples: 1 | lm loss: 2.3E+00 |"], 100),
        (["Epoch [1/5], Step [100/600], Loss: 0.12"], None),
        (["epoch 3 iteration 10/50 loss 1.0"], None),
        (["Epoch 3", "iteration 10/50 loss 1.0"], None),
        (["Starting epoch 1", "iteration 10/50 loss 1.0"], None),
        (["step 5/200: loss 2.1"], None),
        (["iter 7/10 | loss 1.0"], None),
    ],
    ids=[
        "all over",
        "of Megatron-LM",
        "of an epoch",
        "of its epoch",
        "under a heading",
        "behind a word of it",
        "maybe of an epoch",
        "too",
    ],
)
def test_how_many_steps_there_are_is_told_where_they_are_not_those_of_an_epoch(
    lines: list[str], total: int | None
) -> None:
    reader = TrainerLines()
    found = [reader.read(line.encode()) or {} for line in lines][-1]
    assert "step" in found
    assert found.get("total_steps") == total


@pytest.mark.parametrize(
    ("lines", "length"),
    [
        (["Epoch: [0][  11/5005]\tTime  0.228 ( 0.685)\tLoss 6.0698e+00 (6.4470e+00)"], 5005),
        (["Epoch 0:  50%|█| 10/20 [00:00<00:00, 4.2it/s, v_num=0, train_loss=1.5]"], 20),
        (["Epoch 1/3", "10/50 ━━━━ 0s 2ms/step - loss: 1.0"], 50),
        (["[epoch=1][batch=5/50]:", "\t Train loss/train/total: 2.1"], 50),
        (["Epoch [1/5], Step [600/600], Loss: 0.12", "Epoch [2/5], Step [100/600], Loss: 0.12"], 600),
        (["Epoch [1/5], Step [100/600], Loss: 0.12"], None),
        (["training:  50%|█| 10/20 [00:00<00:00, 4.2it/s, loss=1.5]"], None),
        (["epoch 1 step 500/900 loss 0.12", "epoch 2 step 600/900 loss 0.12"], None),
    ],
    ids=[
        "PyTorch's examples",
        "Lightning",
        "Keras",
        "Composer",
        "in brackets",
        "maybe of all",
        "a bar without epochs",
        "of all",
    ],
)
def test_how_many_steps_an_epoch_has_is_told_where_they_are_counted_in_it(lines: list[str], length: int | None) -> None:
    reader = TrainerLines()
    found = [reader.read(line.encode()) or {} for line in lines][-1]
    assert "step" in found
    assert found.get("epoch_steps") == length


@given(st.binary(max_size=300) | st.text("{}'loss: =|%/[]0123456789it,.\x1b\r eE-nastp", max_size=200).map(str.encode))
def test_no_line_makes_the_reader_raise(line: bytes) -> None:
    found = TrainerLines().read(line)
    assert found is None or all(isinstance(value, (int, float)) for value in found.values())
    for begin, end in spans(line):
        assert 0 <= begin <= end <= len(line)


@pytest.mark.parametrize(
    "part", [b"a-", b"a ", b"{'", b"loss:", b"%|", b"1%|", b": ", b"1,", b"1/1 /step ", b"(a ", b"\x1b["]
)
def test_no_line_takes_long(part: bytes) -> None:
    line = (part * MAX_LINE_BYTES)[: MAX_LINE_BYTES - 6] + b"loss: "
    began = time.process_time()
    for _again in range(3):
        TrainerLines().read(line)
    assert time.process_time() - began < 0.5


def test_a_flood_without_metrics_is_passed_over_quickly() -> None:
    flood = b"an ordinary line of some length with nothing in it that a person would want to see in a plot\n" * 40_000
    began = time.process_time()
    assert list(spans(flood)) == []
    assert time.process_time() - began < 0.5
