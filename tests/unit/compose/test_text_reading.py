"""A job as text: what is wrong in it and where, and that its comments outlive the form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dttui.compose.documents import save_job, text_of_draft
from dttui.compose.text_reading import read_job_text
from dttui.errors import UsageError
from dttui.inventory.models import Inventory
from dttui.planning.compose_state import ComposeState
from dttui.planning.submission import Submission
from dttui.spec import load_job

TEXT = """# mine
distributed_training:
  name: mini   # short
  framework: deepspeed
  framework_options: {gradient_accumulation_steps: 2}
  run: {script: /opt/train.py}
  dataset: none
  cluster: {nodes: [{id: a}]}
"""
EMPTY = Inventory()


def state_of(text: str) -> ComposeState:
    job = read_job_text(text, "job.yaml", Path()).job
    assert job is not None
    return ComposeState.from_job(job, EMPTY)


def test_a_valid_text_is_a_job() -> None:
    found = read_job_text(TEXT, "job.yaml", Path())
    assert found.job is not None
    assert (found.job.name, found.problems) == ("mini", ())


def test_each_mistake_has_its_place_key_and_the_nearest_valid_key() -> None:
    found = read_job_text(TEXT.replace("framework:", "framwork:").replace("{id: a}", "{di: a}"), "job.yaml", Path())
    assert found.job is None
    places = {(item.line, item.column, item.path[-1]) for item in found.problems}
    assert {(4, 3, "framwork"), (8, 22, "di")} <= places
    assert found.problems[0].hint == 'did you mean "framework"?'


def test_text_that_is_no_yaml_is_told_at_its_place() -> None:
    (problem,) = read_job_text("distributed_training:\n  name: [\n", "job.yaml", Path()).problems
    assert problem.line is not None
    assert "YAML" in problem.message


def test_what_a_framework_does_not_take_is_a_mistake_of_a_job_all_the_same() -> None:
    found = read_job_text(TEXT.replace("gradient_accumulation_steps: 2", "gradient_steps: 2"), "job.yaml", Path())
    assert found.job is not None
    assert [(item.line, item.path[:2]) for item in found.problems] == [
        (5, ("distributed_training", "framework_options"))
    ]


def test_the_text_of_a_draft_has_the_comments_of_what_was_edited_last_or_else_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(TEXT)
    renamed = replace(state_of(TEXT), task_name="renamed")
    wanted = TEXT.replace("name: mini ", "name: renamed ")
    assert text_of_draft(renamed, path, None) == wanted
    assert text_of_draft(renamed, path, TEXT.replace("# mine", "# newer")) == wanted.replace("# mine", "# newer")
    assert "#" not in text_of_draft(renamed, None, None)


def test_a_draft_without_a_name_has_an_empty_one_that_is_told() -> None:
    text = text_of_draft(replace(state_of(TEXT), task_name=" "), None, TEXT)
    assert 'name: ""   # short' in text
    (problem,) = read_job_text(text, "job.yaml", Path()).problems
    assert (problem.line, problem.path) == (3, ("distributed_training", "name"))


def test_a_draft_with_a_field_that_no_job_can_have_has_no_text() -> None:
    with pytest.raises(UsageError):
        text_of_draft(replace(state_of(TEXT), arguments='"open'), None, TEXT)


def test_comments_that_were_typed_are_saved_wherever_the_job_goes(tmp_path: Path) -> None:
    job = read_job_text(TEXT, "job.yaml", Path()).job
    assert job is not None
    target = tmp_path / "new" / "job.yaml"
    save_job(target, Submission(job, EMPTY, tmp_path), edited=TEXT)
    assert target.read_text() == TEXT
    assert load_job(target) == job
