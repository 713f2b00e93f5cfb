"""How long a training is to be is told by the job's settings or arguments, by the names that trainers have for it."""

from __future__ import annotations

import pytest

from dttui.planning.training_length import TrainingLength, length_of
from dttui.spec.models import Job

CASES = [
    ({"settings": {"epochs": 90}}, (None, 90.0)),
    ({"settings": {"training": {"max_steps": 500}, "num_train_epochs": 3}}, (500, 3.0)),
    ({"settings": {"max_steps": -1, "num_train_epochs": 2.5}}, (None, 2.5)),
    ({"settings": {"max_steps": True, "steps_per_epoch": 10}}, None),
    ({"run": {"script": "train.py", "args": ["--steps", "300"]}}, (300, None)),
    ({"run": {"script": "train.py", "args": ["--train-iters=300", "--epochs"]}}, (300, None)),
    ({"run": {"script": "train.py", "args": ["trainer.max_steps=1e5", "optim.lr=0.1"]}}, (100_000, None)),
    ({"run": {"script": "train.py", "args": ["--steps", "${STEPS}", "steps", "7"]}}, None),
    ({"run": {"command": ["python", "-m", "x", "--epochs", "4"]}, "framework": "command"}, (None, 4.0)),
    ({"settings": {"steps": 100}, "run": {"script": "t.py", "args": ["--steps", "50"]}}, (50, None)),
    ({"settings": {"lr": 0.1}}, None),
    ({"settings": {"warmup": {"steps": 500}, "trainer": {"max_steps": 9}, "n_steps": 2048}}, (9, None)),
    ({"run": {"script": "t.py", "args": ["--training.steps", "100", "--validation.steps", "20"]}}, (100, None)),
    ({"settings": {"max_steps": 100, "gradient_accumulation_steps": 8, "epochs": 3}}, (None, 3.0)),
    ({"settings": {"max_steps": 100, "gradient_accumulation_steps": 1}}, (100, None)),
    ({}, None),
]


@pytest.mark.parametrize(("given", "expected"), CASES)
def test_length(given: dict[str, object], expected: tuple[int | None, float | None] | None) -> None:
    found = length_of(Job.model_validate({"name": "x", **given}))
    assert found == (None if expected is None else TrainingLength(steps=expected[0], epochs=expected[1]))
