"""How long a training is to be, as its job says: in steps, or else in epochs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from pydantic import BaseModel, ConfigDict

from dttui.spec.models import Job

_STEPS = frozenset(
    f"{before}{name}"
    for name in ("steps", "iters", "iterations", "train_steps", "training_steps", "train_iters")
    for before in ("", "max_", "num_", "n_", "total_")
)
_EPOCHS = frozenset(f"{before}{name}" for name in ("epochs", "train_epochs") for before in ("", "max_", "num_", "n_"))


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
    # What stands in the arguments is what the script sees, whatever it makes of its settings.
    for name, value in (*_in_settings(job.settings), *_in_arguments(job)):
        number = _positive(value)
        if number is not None and name in _STEPS:
            steps = int(number)
        elif number is not None and name in _EPOCHS:
            epochs = number
    return None if steps is epochs is None else TrainingLength(steps=steps, epochs=epochs)


def _in_settings(settings: object) -> Iterator[tuple[str, object]]:
    """Yield all settings by their own names, those of sections first."""
    items = settings.items() if isinstance(settings, dict) else ()
    for _name, value in items:
        yield from _in_settings(value)
    yield from ((_plain(str(name)), value) for name, value in items)


def _in_arguments(job: Job) -> Iterator[tuple[str, object]]:
    """Yield `--steps 30`, `--steps=30` and, as Hydra has it, `trainer.max_steps=30`."""
    words = (*(job.run.command or ()), *job.run.args) if job.run is not None else ()
    for word, following in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if equals or name.startswith("-"):
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
