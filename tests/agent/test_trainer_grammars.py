"""What is read of lines as many trainers print them, and what is not read of lines that are no report."""

from __future__ import annotations

import math

import pytest
from dtagent.logs.trainer_lines import TrainerLines
from dtagent.logs.trainer_search import spans


def read(text: str) -> list[dict[str, float]]:
    """Return the reports of a stream, by the lines that are looked at."""
    reader, block = TrainerLines(), f"{text}\n".encode()
    found = [reader.read(block[begin:end]) for begin, end in spans(block, lambda: reader.in_table)]
    return [report for report in found if report is not None]


def has(report: dict[str, float], wanted: dict[str, float]) -> bool:
    return all(name in report and report[name] == pytest.approx(value, rel=1e-3) for name, value in wanted.items())


FAMILIES: dict[str, tuple[str, dict[str, float]]] = {
    "torchvision and DETR": (
        "Epoch: [1]  [  20/7329]  eta: 2:03:04  lr: 0.000100  class_error: 100.00  loss: 43.1 (43.2)  "
        "loss_ce: 4.7 (4.7)  time: 0.5000  data: 0.4123  max mem: 3000",
        {"loss": 43.1, "step": 20, "steps_per_s": 2, "learning_rate": 1e-4, "epoch": 1},
    ),
    "PyTorch's ImageNet": (
        "Epoch: [0][  10/5005]\tTime  0.500 ( 1.201)\tData  0.010 ( 0.500)\tLoss 7.0123e+00 (7.0456e+00)\tAcc@1  "
        "0.00 (0.12)",
        {"loss": 7.0123, "step": 10, "steps_per_s": 2},
    ),
    "PyTorch's MNIST": ("Train Epoch: 2 [640/60000 (1%)]\tLoss: 2.301", {"loss": 2.301, "step": 60_640}),
    "PyTorch's language model": (
        "| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 12.50 | loss  7.63 | ppl  2054.76",
        {"loss": 7.63, "step": 200, "steps_per_s": 80, "learning_rate": 20},
    ),
    "PyTorch's tutorials": ("Epoch 2\n-------\nloss: 2.294637  [ 6464/60000]", {"loss": 2.294637, "step": 66_464}),
    "a tensor": (
        "step 7 loss: tensor(0.3021, device='cuda:0', grad_fn=<NllLossBackward0>)",
        {"step": 7, "loss": 0.3021},
    ),
    "two counts": (
        "Epoch [1/5], Step [600/600], Loss: 1.3\nEpoch [2/5], Step [100/600], Loss: 1.2345",
        {"loss": 1.2345, "step": 700},
    ),
    "an epoch a line": ("Epoch: 3 | Train Loss: 0.4 | Val Loss: 0.45", {"loss": 0.4, "step": 3, "val_loss": 0.45}),
    "only a loss": ("2026-11-21 10:00:00 - INFO - loss: 0.5", {"loss": 0.5}),
    "fairseq": (
        "2023-01-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 1234 loss=12.321, nll_loss=11.9, wps=12345.6, "
        "ups=2.31, num_updates=100, lr=1.25e-05, gnorm=3.2, loss_scale=128",
        {"loss": 12.321, "step": 100, "steps_per_s": 2.31, "tokens_per_s": 12345.6, "gradient_norm": 3.2},
    ),
    "fairseq's JSON": (
        '{"epoch": 1, "update": 0.081, "loss": "12.3", "ups": "2.1", "num_updates": "100", "lr": "1e-05"}',
        {"loss": 12.3, "step": 100, "steps_per_s": 2.1},
    ),
    "litgpt": (
        "Epoch 1 | iter 10 step 5 | loss train: 1.234, val: n/a | iter time: 125.00 ms (step) remaining time: 0:01:00",
        {"loss": 1.234, "step": 10, "steps_per_s": 8},
    ),
    "llm.c": (
        "step    1/18865 | loss 11.012384 (+nanz)| norm 12.3456 (+nanz)| lr 2.57e-06 | 2000.00 ms | 38.5% bf16 MFU | "
        "172960 tok/s",
        {"loss": 11.012384, "step": 1, "steps_per_s": 0.5, "tokens_per_s": 172_960},
    ),
    "time of a step in ms": ("step 5 | loss: 6.1 | lr 1e-04 | dt: 250.00ms | tok/sec: 1550711.12", {"steps_per_s": 4}),
    "mmengine": (
        "2023/01/01 10:00:00 - mmengine - INFO - Epoch(train)   [2][ 50/7330]  lr: 1.9820e-03  eta: 1 day, 2:03:04  "
        "time: 0.5000  data_time: 0.0101  memory: 4000  loss: 2.1234  loss_rpn_cls: 0.5",
        {"loss": 2.1234, "step": 7380, "steps_per_s": 2},
    ),
    "Ignite": ("Epoch[1] Iteration[100/938] Loss: 0.55", {"loss": 0.55, "step": 100}),
    "YOLOX": (
        "2021-01-01 10:00:00 | INFO | yolox.core.trainer:250 - epoch: 1/300, iter: 10/1849, mem: 5000Mb, "
        "iter_time: 0.5s, "
        "data_time: 0.001s, total_loss: 15.1, iou_loss: 4.6, lr: 1e-6",
        {"loss": 15.1, "step": 10, "steps_per_s": 2},
    ),
    "Ultralytics": (
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
        "        2/3      2.18G      1.236      1.825      1.054         12        640:  50%|█████     | 4/8 "
        "[00:01<00:00,  8.30it/s]",
        {"loss": 1.236, "step": 12, "steps_per_s": 8.3},
    ),
    "Ultralytics' newer bar": (
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
        "        1/3      2.18G      1.236      1.825      1.054         12        640: 50% ━━━━━━────── 4/8 "
        "8.3it/s 0.5s<0.5s",
        {"loss": 1.236, "step": 4, "steps_per_s": 8.3},
    ),
    "Lightning with rich": (
        "Epoch 1/1 ━━━━━━━━━━ 12/30 0:00:01 • 0:00:01 19.19it/s v_num: 0.000 train_loss: 1.712",
        {"loss": 1.712, "steps_per_s": 19.19},
    ),
    "fastai": (
        "epoch     train_loss  valid_loss  error_rate  time    \n0         0.345000    0.234500    0.091000    "
        "00:12     ",
        {"loss": 0.345, "step": 0, "valid_loss": 0.2345},
    ),
    "a table of Markdown": (
        "| Step | Training Loss | Validation Loss |\n|---|---|---|\n| 500 | 0.35 | 0.33 |",
        {"step": 500},
    ),
    "Composer": (
        "[batch=10/4800]:\n\t Train loss/train/total: 11.5\n\t Train throughput/device/tokens_per_sec: 12000.0",
        {"step": 10, "tokens_per_s_per_gpu": 12_000},
    ),
    "verl": (
        "(TaskRunner pid=123) step:1 - actor/entropy:0.5 - actor/pg_loss:0.01 - actor/grad_norm:0.5 - actor/lr:1e-06 - "
        "perf/throughput:1234.5 - timing_s/step:20.0",
        {"loss": 0.01, "step": 1, "tokens_per_s_per_gpu": 1234.5, "steps_per_s": 0.05, "learning_rate": 1e-6},
    ),
    "NeMo's bar": (
        "Epoch 0: :   1%|  | 10/1000 [00:10<15:00, v_num=0, reduced_train_loss=9.1, train_step_timing in s=2.0]",
        {"loss": 9.1, "step": 10, "steps_per_s": 0.5},
    ),
    "MaxText": (
        "completed step: 9, seconds: 5.667, TFLOP/s/device: 134.924, Tokens/s/device: 8672.758, loss: 10.374",
        {"loss": 10.374, "step": 9, "tokens_per_s_per_gpu": 8672.758},
    ),
    "nanotron": (
        "iteration: 10 / 1000 | elapsed_time_per_iteration_ms: 500 | tokens_per_sec: 10K | lm_loss: 9.1 | lr: 1e-5",
        {"loss": 9.1, "step": 10, "tokens_per_s": 10_000, "steps_per_s": 2},
    ),
    "PaddleNLP": (
        "[INFO] - loss: 9.1, learning_rate: 1e-5, global_step: 10, interval_steps_per_second: 1.9, epoch: 0.01",
        {"loss": 9.1, "step": 10, "steps_per_s": 1.9},
    ),
    "a bar with a loss in its postfix": (
        "steps:   1%|  | 10/1600 [00:10<20:00,  1.33it/s, avr_loss=0.12]",
        {"loss": 0.12, "step": 10, "steps_per_s": 1.33},
    ),
    "a loss that is no number": ("Step 10 | loss: nan | 4.0 it/s", {"step": 10, "steps_per_s": 4}),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_last_report_of_a_family_has_its_loss_step_and_speed(name: str) -> None:
    text, wanted = FAMILIES[name]
    reports = read(text)
    assert reports
    assert has(reports[-1], wanted), reports[-1]


def test_a_loss_that_is_no_number_stays_so() -> None:
    (report,) = read(FAMILIES["a loss that is no number"][0])
    assert math.isnan(report["loss"])


def test_two_losses_of_which_none_is_the_total_are_kept_by_their_names() -> None:
    numbers = {"loss_d": 1.5612, "loss_g": 4.3, "step": 10, "epoch_steps": 782}
    assert read("[0/25][10/782]\tLoss_D: 1.5612\tLoss_G: 4.3") == [numbers]


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        ("Epoch 1 | Iter {} | Train Loss 2.5", [0, 100, 200, 300, 400, 500]),
        ("Epoch [1/9], Step [{}/300], Loss: 2.5", [0, 100, 200, 300, 400, 500]),
        ("[1,  {}] loss: 2.196", [0, 100, 200, 300, 400, 500]),
    ],
)
def test_positions_that_begin_anew_with_each_epoch_count_on(lines: str, steps: list[int]) -> None:
    text = "\n".join(
        lines.format(position).replace("1", str(epoch), 1) for epoch in (1, 2) for position in (0, 100, 200)
    )
    assert [report["step"] for report in read(text)] == steps


def test_a_position_that_counts_on_over_epochs_is_taken_as_it_is() -> None:
    text = "\n".join(f"Epoch {step // 100 + 1}, step {step}/1000, loss: 2.5" for step in range(50, 400, 50))
    assert [report["step"] for report in read(text)] == list(range(50, 400, 50))


def test_a_number_in_brackets_that_stays_is_a_rank_and_no_step() -> None:
    assert [report.get("step") for report in read("[3] loss: 2.5\n[3] loss: 2.4\n[3] loss: 2.3")] == [3, None, None]


def test_a_table_that_is_drawn_again_tells_each_row_once() -> None:
    header = "Step (% Done)       Train Iter (time)    Train Loss"
    first, second = "0 (0.00%)           40.000 ms            0.0850", "10 (0.03%)          41.396 ms            0.0928"
    steps = [report["step"] for report in read("\n".join((header, first, "---", header, first, second)))]
    assert sorted(set(steps)) == [0, 10]
    assert steps == sorted(steps)


NOT_OF_TRAINING = {
    "configuration": "Steps: 32\nepochs: 10\nsteps: 1000\nbatch_size: 64\nlr: 0.001\nloss: mse\nloss_weight: "
    "0.5\nstep: 100\nscheduler: step, lr: 0.1, step: 30, gamma: 0.1",
    "arguments": "Namespace(batch_size=64, epochs=14, lr=1.0, steps=32, step=5, loss_scale=128)\n"
    "args: lr=0.1 step=100 loss=0.5\nTrainingArguments(max_steps=-1, learning_rate=5e-05)\nrun.py --step 5 --loss 0.5",
    "a dictionary of settings": "{'lr': 0.01, 'best_train_loss': inf, 'log_interval': 10, 'name': 'a', 'device': "
    "'cuda'}\n"
    "config = {'loss': 0.5, 'optimizer': 'adam', 'name': 'x', 'path': '/tmp'}",
    "a table of hyperparameters": "| Hyperparameter | Value |\n|---|---|\n| lr | 0.001 |\n| steps | 1000 |\n| "
    "loss weight | 0.5 |",
    "a summary of the model": "  | Name      | Type             | Params\n-----\n0 | model | Net | 1.2 M\n1 | "
    "loss | CELoss | 0",
    "pip": "Collecting torch==2.0.1\n  Downloading torch-2.0.1-cp310.whl (619.9 MB)\n"
    "     ━━━━━━━━━━━━ 619.9/619.9 MB 2.1 MB/s eta 0:00:00\n     ━━━━━━━━━━━━ 12/12 MB 3 MB/s eta 0:00:00\n"
    "Successfully installed focal-loss-0.0.7 torch-2.0.1",
    "bars of data and models": "Downloading data: 100%|██████████| 100/100 [00:10<00:00, 10.0it/s]\n"
    "Map: 100%|██████| 25000/25000 [00:12<00:00, 2012.34 examples/s]\n"
    "Loading checkpoint shards: 50%|███ | 1/2 [00:01<00:01, 1.0s/it]\n"
    "Generating train split: 100%|██| 87599/87599 [00:00<00:00, 500000.12 examples/s]\n"
    "Tokenizing train dataset (num_proc=8): 100%|█| 100/100 [00:01<00:00, 99 examples/s]\n"
    "Sanity Checking DataLoader 0: 100%|██| 2/2 [00:00<00:00, 5.0it/s]\n"
    "train: Scanning /data/labels/train... 128 images: 100%|██████| 128/128 [00:00<00:00, 1000.1it/s]",
    "a bar of an evaluation": "Evaluating: 50%|██ | 4/8 [00:01<00:01, 4.0it/s, loss=0.5]",
    "NCCL": "host:123:456 [0] NCCL INFO Channel 00/02 :    0   1\nhost:123:456 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1\n"
    "host:123 [1] NCCL INFO comm 0x55 rank 1 nranks 2 - Init COMPLETE",
    "W&B's summary": "wandb: Run summary:\nwandb: train/loss 0.5\nwandb: train/global_step 100\nwandb: train_loss 0.7",
    "what else is said": "Saving checkpoint at step 100\nLoss is initialized.\nEpoch 3 took 12.3s\ntraining step "
    "5 failed\n"
    "UserWarning: loss of precision at line 32\n    loss = model(x)[0]\n  loss = 0.5 * (a + b)",
    "the end of HF Trainer": "***** train metrics *****\n  epoch                    =        3.0\n"
    "  train_loss               =     1.5432\n  train_steps_per_second   =      2.1",
}


@pytest.mark.parametrize("name", NOT_OF_TRAINING)
def test_what_is_no_report_of_training_is_not_read(name: str) -> None:
    assert read(NOT_OF_TRAINING[name]) == []


@pytest.mark.parametrize(
    "line",
    [
        "Test: [40/49]\tTime 2.2 (2.3)\tLoss 0.70 (0.8)",
        "val loss 5.25",
        "DEV : loss 2.0 - f1-score (micro avg)  0.41",
        "Test set: Average loss: 0.0567, Accuracy: 9848/10000 (98%)",
        "Validation Epoch 3: loss 0.4",
        "Eval step 10 loss: 2.0",
        "[RANK0] Epoch 2 | Iter 0 | Eval Loss 1.76177",
        "{'eval_loss': 0.99, 'eval_runtime': 201.1, 'epoch': 0.03}",
    ],
)
def test_an_evaluation_gives_neither_loss_nor_step(line: str) -> None:
    (report,) = read(line)
    assert not {"loss", "step"} & report.keys()
    assert any(name.endswith("_loss") for name in report)


@pytest.mark.parametrize(
    "line",
    [
        "{'train_runtime': 10.1, 'train_samples_per_second': 5.1, 'train_loss': 1.5, 'epoch': 3.0}",
        "End epoch 1 | Avg Loss: 2.2679",
        "EPOCH 1 done: loss 2.5892 - lr 0.100000",
        "Averaged stats: lr: 0.000100  loss: 3.1783 (5.2227)",
    ],
)
def test_a_closing_report_changes_neither_loss_nor_step(line: str) -> None:
    reports = read(f"epoch 1 - iter 40/40 - loss 2.6\n{line}")
    assert reports[0] == {"epoch": 1, "loss": 2.6, "step": 40, "epoch_steps": 40}
    assert not any({"loss", "step"} & report.keys() for report in reports[1:])
