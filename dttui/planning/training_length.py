"""How long a training is to be, as its job says: in steps, or else in epochs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from pydantic import BaseModel, ConfigDict

from dttui.spec.models import Job

_OF_TRAINING = ("train_steps", "training_steps", "train_iters")
_STEPS = frozenset(
    (
        *(f"{before}{name}" for name in ("steps", "iters", "iterations") for before in ("", "max_", "total_")),
        *(f"{before}{name}" for name in _OF_TRAINING for before in ("", "max_", "num_", "n_", "total_")),
    )
)
"""Not `n_steps` and `num_steps`, which may be those of a rollout or of an epoch."""
_EPOCHS = frozenset(f"{before}{name}" for name in ("epochs", "train_epochs") for before in ("", "max_", "num_", "n_"))
_SECTIONS = ("train", "trainer", "training")
"""In others, such as `validation` or `warmup`, the same names mean something else."""
_ACCUMULATED = frozenset(
    ("accumulation_steps", "gradient_accumulation_steps", "grad_accum_steps", "accumulate_grad_batches")
)
"""Where they are above one, trainers differ in what a step is."""


class TrainingLength(BaseModel):
    """What the job gives its script as the end of the training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int | None = None
    """Steps in all; they count where there are epochs, too, as trainers have it."""
    epochs: float | None = None
    """Times that the samples are gone through."""


def length_of(job: Job) -> TrainingLength | None:
    """Return how long a job's training is to be; `None` where neither its arguments nor its settings say."""
    steps: int | None = None
    epochs: float | None = None
    accumulated = 1.0
    # What stands in the arguments is what the script sees, whatever it makes of its settings.
    for name, value in (*_in_settings(job.settings), *_in_arguments(job)):
        number = _positive(value)
        if number is None:
            continue
        if name in _ACCUMULATED:
            accumulated = number
        elif name in _STEPS:
            steps = int(number)
        elif name in _EPOCHS:
            epochs = number
    steps = steps if accumulated == 1 else None
    return None if steps is epochs is None else TrainingLength(steps=steps, epochs=epochs)


def _in_settings(settings: object) -> Iterator[tuple[str, object]]:
    """Yield settings by their own names, those of sections of the training first."""
    items = settings.items() if isinstance(settings, dict) else ()
    for name, value in items:
        if str(name).lower() in _SECTIONS:
            yield from _in_settings(value)
    yield from ((_plain(str(name)), value) for name, value in items)


def _in_arguments(job: Job) -> Iterator[tuple[str, object]]:
    """Yield `--steps 30`, `--steps=30` and, as Hydra has it, `trainer.max_steps=30`."""
    words = (*(job.run.command or ()), *job.run.args) if job.run is not None else ()
    for word, following in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        sections = name.lstrip("-+").lower().split(".")[:-1]
        if (equals or name.startswith("-")) and all(section in _SECTIONS for section in sections):
            yield _plain(name), value if equals else following


def _plain(name: str) -> str:
    return name.lstrip("-+").rpartition(".")[2].replace("-", "_").lower()


def _positive(value: object) -> float | None:
    """Return a number above nought; `max_steps: -1` says that there is no such end."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value) if isinstance(value, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if 0 < number < math.inf else None
