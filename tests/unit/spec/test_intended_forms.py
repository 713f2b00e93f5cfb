"""The form that a value should have had, told with what is there."""

from __future__ import annotations

import pytest

from dttui.spec import DocumentError, parse_job


@pytest.mark.parametrize(
    ("lines", "form"),
    [
        ("run: {script: a, args: --steps 30}", "args: [--steps, '30']"),
        ("run: {command: python a.py 'x y'}", "command: [python, a.py, x y]"),
        ("run: {script: a, args: 30}", "args: ['30']"),
        ("run: {script: a, env: [A=1, B=c=d]}", "env: {A: '1', B: c=d}"),
        ("run: train.py", "run: {script: train.py}"),
        ("dataset: imagenet", "dataset: {id: imagenet}"),
        ("cluster: {nodes: gpu1}", "nodes: [{id: gpu1}]"),
        ("cluster: {nodes: {id: gpu1}}", "nodes: [{id: gpu1}]"),
        ("cluster: {nodes: [gpu1]}", "{id: gpu1}"),
        ("cluster: [{id: gpu1}]", "cluster: {nodes: [{id: gpu1}]}"),
        ("resources: {gpu: 2}", "gpu: {count: 2}"),
        ("resources: {gpu: A100}", "gpu: {type: A100}"),
        ("strategy: data_parallel", "strategy: {type: data_parallel}"),
        ("recovery: {checkpoint: /ckpt}", "checkpoint: {dir: /ckpt}"),
    ],
)
def test_a_value_of_another_form_is_shown_in_the_right_one(lines: str, form: str) -> None:
    assert problems(lines) == [f"write {form}"]


@pytest.mark.parametrize(
    "lines", ["cluster: gpu1", "run: {script: a, env: A}", "cluster: {nodes: }", "run: {script: a, args: '\"'}"]
)
def test_where_nothing_comes_to_mind_nothing_is_proposed(lines: str) -> None:
    assert problems(lines) == [""]


def test_a_long_value_is_not_written_out_again() -> None:
    assert problems(f"run: {{script: a, args: {'word ' * 40}}}") == [""]


def problems(lines: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        parse_job(f"distributed_training:\n  name: x\n  {lines}\n", "job.yaml")
    return [problem.hint for problem in caught.value.problems]
