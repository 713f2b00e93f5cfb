"""What trainers call the numbers that they print. Pure.

The names are from the trainers' sources: those that tell a step, a loss, a speed or another metric, and those that tell
of data held out.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from dtagent.protocol.events import PER_GPU, PRINTED

HELD_OUT = r"(?:test|val|valid|validation|validating|eval|evaluation|evaluating|dev|holdout|sanity)"
"""Words for data that is not trained on, and for what is done with it."""
MOST_NAMES = 4096
"""That are remembered; a trainer has a few dozen."""

_STEPS = {
    **dict.fromkeys(("global_step", "globalstep", "num_updates", "total_timesteps", "current_steps"), 3),
    **dict.fromkeys(("step", "train_step", "iteration", "completed_step", "current_iteration", "update"), 2),
    **dict.fromkeys(("iter", "it", "iters", "batch", "batch_idx", "minibatch", "mini_batch"), 1),
}
"""Of several in a line that with the highest number counts: the others begin anew with each epoch or micro-batch."""
OF_AN_EPOCH = frozenset({"batch", "batch_idx", "minibatch", "mini_batch"})
"""Count within an epoch, and are a size where none is named."""
ALL_OVER = 3
"""The rank of what counts over all epochs."""
WHOLE_STEP = "steps"
"""DeepSpeed's pipeline counts in the plural; in `max steps: 500` it is something else."""

_LOSSES = (
    "loss",
    "train_loss",
    "training_loss",
    "loss_train",
    "train_loss_step",
    "step_loss",
    "batch_loss",
    "lm_loss",
    "total_loss",
    "loss_total",
    "reduced_train_loss",
    "train_total_loss",
    "total_train_loss",
    "train_batch_loss",
    "iter_loss",
    "cur_loss",
    "current_loss",
    "tr_loss",
    "mean_loss",
    "loss_mean",
    "avg_loss",
    "average_loss",
    "avg_train_loss",
    "train_avg_loss",
    "average_training_loss",
    "running_loss",
    "smooth_loss",
    "loss_avg",
    "xent",
    "policy_loss",
    "pg_loss",
)
"""Of several in a line the first of these counts."""
_PART = re.compile(r"(?!best_|min_|max_|aux)[a-z]?\w{0,40}loss(?:_[a-z0-9]\w{0,40})?|l_(?:total|pix)")
_NO_PART = re.compile(
    r"loss_(?:scale|scaler|weight|fn|func|function|type|name|coef|factor|mask|config)|_grad_|_epoch_|_(?:at|after|on|of)_"
)
_HELD_OUT_LOSS = re.compile(rf"{HELD_OUT}_(?:\w+_)?loss|loss_(?:val|valid|validation|eval|test)|lm_loss_value")
_INTERVAL_SPEED = re.compile(r"(?:interval|current|average|avg|train)_(steps|samples|sequences|tokens)_per_sec(?:ond)?")
_TRAINED = ("train", "training", "trainer", "metrics", "losses", "actor", "throughput", "optim")
"""Groups that trainers put metrics in, before a slash."""

_NAMES = {
    **PRINTED,
    **dict.fromkeys(
        (
            "tokens_per_gpu",
            "tokens_per_gpu_per_second",
            "tokens_per_second_per_device",
            "tokens_per_second_per_gpu",
            "tokens/s/device",
            "device/tokens_per_sec",
            "device/tokens_per_second",
            "perf/throughput",
            "tgs",
        ),
        PER_GPU,
    ),
    **dict.fromkeys(("tokens_per_sec_per_gpu", "tokens/s/gpu", "tokens/gpu/s", "tok/s/gpu"), PER_GPU),
    **dict.fromkeys(("wps", "words/s", "words_per_second"), "tokens_per_s"),
    **dict.fromkeys(
        ("samples_per_sec", "images/s", "images/sec", "img/s", "img/sec", "imgs/s", "images_per_sec", "fps"),
        "samples_per_s",
    ),
    **dict.fromkeys(("examples_per_sec", "examples/s", "sequences/s", "frames_per_sec"), "samples_per_s"),
    **dict.fromkeys(
        (
            "it/s",
            "its/s",
            "it/sec",
            "iter/s",
            "iters/s",
            "iter/sec",
            "iters/sec",
            "iterations/s",
            "steps/s",
            "steps/sec",
        ),
        "steps_per_s",
    ),
    **dict.fromkeys(
        (
            "batches/s",
            "batches_per_sec",
            "batches_per_second",
            "steps_per_sec",
            "steps_per_second",
            "it_per_sec",
            "sps",
            "train_speed(iter/s)",
            "device/batches_per_second",
            "ups",
        ),
        "steps_per_s",
    ),
    **dict.fromkeys(
        (
            "step_time",
            "steptime",
            "iter_time",
            "iteration_time",
            "batch_time",
            "time_per_iteration",
            "time_per_iter",
            "time_per_step",
            "time_per_batch",
            "train_step_timing_in_s",
            "train_step_time",
            "s/it",
            "s/iter",
            "s/step",
            "s/batch",
            "sec/step",
            "sec/batch",
            "sec/iter",
            "seconds_per_step",
            "sec_per_step",
            "train_iter_time",
            "step_avg",
            "updt_s",
            "timing_s/step",
            "perf/time_per_step",
        ),
        "_step_s",
    ),
    **dict.fromkeys(("ms/batch", "ms/step", "ms/it", "ms/iter", "ms_per_step", "iter_ms", "step_ms"), "_step_ms"),
    **dict.fromkeys(("time", "dt", "took", "iteration_took", "dur"), "_time"),
    **dict.fromkeys(("data", "data_time", "eta"), "_is_metered"),
    "epoch_time": "_epoch_s",
    "forward_time": "_forward_s",
    "elapsed_time_per_iteration": "_step_ms",
    "elapsed_time_per_iteration_ms": "_step_ms",
    "current_learning_rate": "learning_rate",
    "base_lr": "learning_rate",
    **dict.fromkeys(("norm", "total_norm", "grad_norm_before_clip"), "gradient_norm"),
    "accuracy": "accuracy",
    "loss_scale": "loss_scale",
    "memory": "memory",
    "mfu": "mfu",
    "throughput_per_gpu": "tflops_per_gpu",
    "tflops": "tflops_per_gpu",
    "global_batch_size": "_batch",
    "number_of_nan_iterations": "_nans",
}
"""What trainers call a number → what it is called here; with `_` before it where it is only used to find another."""


class Meaning(NamedTuple):
    """What a number is, by its name: one of these."""

    step: int = 0
    """How far a step counts over what begins anew."""
    loss: int | None = None
    """How early it comes among the losses of a line."""
    is_part: bool = False
    """Whether it is a loss that may be one of several."""
    held_out: str | None = None
    """What a loss of held-out data is called here."""
    metric: str | None = None


_LONGEST_NAME = 200


@lru_cache(maxsize=MOST_NAMES)
def meaning_of(key: str) -> Meaning | None:
    """Return what a number of that name is; `None` where it is not known."""
    if len(key) > _LONGEST_NAME:
        return None
    group, _slash, rest = key.partition("/")
    if rest and group in _TRAINED and key not in _NAMES:
        return meaning_of(rest)
    if key in _STEPS:
        return Meaning(step=_STEPS[key])
    if key in ("loss/train/total", "loss/train", "loss/training", "loss/total"):
        key = "loss"
    if key in _LOSSES:
        return Meaning(loss=_LOSSES.index(key))
    if key == "lm_loss_value" or _HELD_OUT_LOSS.fullmatch(key.replace("/", "_")):
        return Meaning(held_out="val_loss" if key == "lm_loss_value" else key.replace("/", "_"))
    if key in _NAMES:
        return Meaning(metric=_NAMES[key])
    speed = _INTERVAL_SPEED.fullmatch(key)
    if speed:
        return Meaning(metric=f"{speed[1]}_per_s".replace("sequences", "samples"))
    if re.fullmatch(r"lr[_/].{1,40}", key):
        return Meaning(metric="learning_rate")
    if _PART.fullmatch(key) and not _NO_PART.search(key):
        return Meaning(is_part=True)
    return None


def key_of(name: str) -> str:
    """Return a name as the tables have it."""
    return name.strip().rstrip(".").lower().replace(" ", "_").replace("-", "_")
