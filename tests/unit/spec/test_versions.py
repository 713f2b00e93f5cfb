"""Which version a job file is written in, and how an older one is taken for the present one."""

from __future__ import annotations

from typing import Any

import pytest

from dttui.spec import DocumentError, Job, dump_job, parse_job
from dttui.spec import versions as spec_versions
from dttui.spec.document import validate
from dttui.spec.models import JobDocument
from dttui.spec.versions import CURRENT, MIGRATIONS, migrated
from dttui.spec.yaml_reader import parse_yaml

BODY = "distributed_training: {name: a}\n"


@pytest.mark.parametrize("text", [BODY, f"schema: dttui/v1\n{BODY}", f"{BODY}schema: dttui/v1\n"])
def test_a_file_is_of_the_first_version_with_or_without_saying_so(text: str) -> None:
    assert parse_job(text, "job.yaml") == Job(name="a")


@pytest.mark.parametrize(
    ("version", "message", "hint"),
    [
        (
            "dttui/v2",
            "this file is written in dttui/v2, which this dttui does not know; it reads dttui/v1",
            "upgrade dttui: pip install --upgrade dttui",
        ),
        (
            "dttui/v0",
            "this file is written in dttui/v0, which dttui reads no more; it reads dttui/v1",
            "dttui schema prints what a file of dttui/v1 holds",
        ),
        (
            "dttui/v12",
            "this file is written in dttui/v12, which this dttui does not know; it reads dttui/v1",
            "upgrade dttui: pip install --upgrade dttui",
        ),
        ("dttui/1", 'expected dttui/v1, found "dttui/1"', 'did you mean "dttui/v1"?'),
        ("2", "expected dttui/v1, found 2", ""),
        ("", "expected dttui/v1, found nothing", ""),
        ("{a: 1}", "expected dttui/v1, found a mapping", ""),
    ],
)
def test_another_version_is_refused_where_it_stands(version: str, message: str, hint: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_job(f"distributed_training: {{nme: a}}\nschema: {version}\n", "job.yaml")
    (problem,) = caught.value.problems
    assert (problem.message, problem.hint, problem.path, problem.line) == (message, hint, ("schema",), 2)


def test_a_misspelt_key_for_the_version_is_told() -> None:
    with pytest.raises(DocumentError, match=r'job.yaml:1:1: shema: unknown key; did you mean "schema"\?'):
        parse_job(f"shema: dttui/v1\n{BODY}", "job.yaml")


def from_v0(document: dict[str, Any]) -> dict[str, Any]:
    """A made-up first version, in which the job was under `training` and its name under `title`."""
    job = dict(document["training"])
    return {"schema": "dttui/v0.5", "distributed_training": {"name": job.pop("title"), **job}}


def from_v05(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "schema": CURRENT}


def test_older_versions_are_brought_up_to_the_present_one_step_by_step() -> None:
    assert not MIGRATIONS
    source = parse_yaml("schema: dttui/v0\ntraining: {title: a, framework: command}\n", "job.yaml")
    with pytest.raises(DocumentError, match="schema: this file is written in dttui/v0, which dttui reads no more"):
        migrated(source)
    present = migrated(source, {"dttui/v0": from_v0, "dttui/v0.5": from_v05})
    assert validate(present, JobDocument).distributed_training == Job(name="a", framework="command")
    assert source.data["schema"] == "dttui/v0"


def test_mistakes_in_an_older_file_are_placed_as_near_as_can_be() -> None:
    source = parse_yaml("schema: dttui/v0\ntraining:\n  title: a\n  framework: no\n", "job.yaml")
    with pytest.raises(DocumentError) as caught:
        validate(migrated(source, {"dttui/v0": from_v0, "dttui/v0.5": from_v05}), JobDocument)
    (problem,) = caught.value.problems
    assert problem.line == 1
    assert "expected one of pytorch-ddp" in problem.message


def test_what_is_written_is_of_the_present_version() -> None:
    assert parse_job(dump_job(Job(name="a")), "x") == Job(name="a")
    assert spec_versions.VERSION_KEY not in dump_job(Job(name="a"))
