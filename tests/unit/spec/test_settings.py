"""The free section: the script's own settings, carried to it as they are, and what does not fit into it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from dttui.planning.planner import plan
from dttui.spec import DocumentError, Job, dump_job, parse_job
from dttui.spec.free_values import MAX_BYTES, MAX_DEPTH
from dttui.spec.models import Run
from dttui.spec.problems import format_path
from tests.unit.seed_cluster import SEED

JOB = """\
distributed_training:
  name: a
  framework: command
  dataset: none
  run: {command: [x]}
  cluster: {nodes: [{id: pytorch-dev-env}]}
  settings:
    epochs: 100
    learning_rate: 1e-3
    optimizer: {name: adamw, betas: [0.9, 0.95], amsgrad: false, schedule: ~}
    训练: "数据"
    "1": [[], {}]
"""


def refused(settings: str) -> list[tuple[str, str]]:
    with pytest.raises(DocumentError) as caught:
        parse_job(f"distributed_training:\n  name: a\n  settings: {settings}\n", "job.yaml")
    return [(format_path(problem.path[1:]), problem.message) for problem in caught.value.problems]


def nested(depth: int) -> dict[str, Any]:
    return {"a": nested(depth - 1)} if depth else {}


def test_the_scripts_own_settings_reach_it_as_they_are() -> None:
    node = plan(parse_job(JOB, "job.yaml"), SEED).nodes[0]
    config = next(file.text for file in node.files if file.path == "dttui_config.json")
    assert json.loads(config)["settings"] == {
        "epochs": 100,
        "learning_rate": 0.001,
        "optimizer": {"name": "adamw", "betas": [0.9, 0.95], "amsgrad": False, "schedule": None},
        "训练": "数据",
        "1": [[], {}],
    }


def test_a_job_without_settings_has_none_of_them() -> None:
    assert Job(name="a").settings == {}
    assert "settings" not in dump_job(Job(name="a"))


def test_settings_survive_being_written_and_read() -> None:
    job = parse_job(JOB, "job.yaml")
    assert parse_job(dump_job(job), "again") == job
    made = Job(name="a", run=Run(script="x"), settings={"a": [1, [2.5, None], {"b": "é"}]})
    assert parse_job(dump_job(made), "again") == made


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("{lr: .nan, b: [1, {c: -.inf}]}", [("settings.lr", "JSON can hold"), ("settings.b[1].c", "JSON can hold")]),
        ("{a: " + "[" * 20 + "]" * 20 + "}", [("settings.a" + "[0]" * 15, f"nested deeper than {MAX_DEPTH}")]),
        ("{a: " + "x" * MAX_BYTES + "}", [("settings", f"takes more than {MAX_BYTES // 1024} KiB as JSON")]),
        ("[a]", [("settings", "expected a mapping of keys to values, found a list")]),
    ],
)
def test_what_cannot_be_carried_is_told_where_it_stands(settings: str, told: list[tuple[str, str]]) -> None:
    found = refused(settings)
    assert [path for path, _message in found] == [path for path, _message in told]
    assert all(words in message for (_path, message), (_, words) in zip(found, told, strict=True))


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), {1: 2}, float("nan"), "\ud83d", {"\udc00": 1}, nested(17)])
def test_a_library_can_hand_over_only_what_json_can_hold(value: object) -> None:
    with pytest.raises(ValidationError):
        Job(name="a", settings={"a": value})
    assert Job(name="a", settings=nested(MAX_DEPTH - 1)).settings
