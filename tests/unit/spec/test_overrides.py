"""Values given beside a job's file: as if the file said them, with its strictness."""

from __future__ import annotations

import pytest

from dttui.errors import UsageError
from dttui.i18n import set_language
from dttui.spec import DocumentError, Job, dump_job, load_job, parse_job, with_values


@pytest.fixture(autouse=True)
def in_english() -> None:
    set_language("en")


@pytest.fixture
def job() -> Job:
    return load_job("examples/gpt/job.yaml")


def test_a_value_is_what_it_would_be_in_the_file(job: Job) -> None:
    found = with_values(
        job,
        [
            "run.env.LR=1e-4",
            "run.env.VERSION=007",
            "distributed_training.name=an other: one".replace(": ", " "),
            "run.args.1=60",
            "run.args.4=--fast",
            "recovery.on_node_failure=restart",
            "run.env.NAME='a: b # c'",
        ],
    )
    assert found.run is not None
    assert found.run.env == {"LR": "1e-4", "VERSION": "007", "NAME": "a: b # c"}
    assert found.run.args == ("--steps", "60", "--sample", "240", "--fast")
    assert (found.name, found.recovery.on_node_failure) == ("an other one", "restart")
    assert parse_job(dump_job(found), "x") == found


def test_lists_and_mappings_are_replaced_whole(job: Job) -> None:
    found = with_values(job, ["run.args=[--steps, 60]", "run.env={A: 1, B: x}", "run.env.A=2"])
    assert found.run is not None
    assert (found.run.args, found.run.env) == (("--steps", "60"), {"A": "2", "B": "x"})


def test_without_values_a_job_stays_what_it_is(job: Job) -> None:
    assert with_values(job, []) == job


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("run.env.LR", "is not of the form KEY=VALUE"),
        ("=1", "is not of the form KEY=VALUE"),
        ("run..env=1", "is not of the form KEY=VALUE"),
        ("name=a\nframework: command", "is not of the form KEY=VALUE"),
        ("name=a\u2028framework: command", "is not of the form KEY=VALUE"),
        ("run.script.x=3", '"run.script" in "run.script.x=3" is a single value'),
        ("run.args.9=3", '"9" in "run.args.9=3" is no item of the list, which has 4'),
        ("run.args.4.x=3", '"4" in "run.args.4.x=3" is no item of the list'),
        ("run.args.-1=3", "is no item of the list"),
        ("run.args.١=3", "is no item of the list"),
    ],
)
def test_what_is_no_place_of_the_file_is_refused_by_name(job: Job, setting: str, told: str) -> None:
    with pytest.raises(UsageError) as refusal:
        with_values(job, [setting])
    assert told in str(refusal.value)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("run.scrpt=x", 'distributed_training.run.scrpt: unknown key; did you mean "script"?'),
        ("nodes=3", "distributed_training.nodes: unknown key"),
        ("cluster.nodes.0.resources.gpu.count=many", "distributed_training.cluster.nodes[0].resources.gpu.count"),
        ("run.env.A=[1", "--set run.env.A:"),
        ("name=a: b", "--set name:1:"),
        ("name=!!python/object/apply:os.system [x]", "--set name:1:"),
    ],
)
def test_what_no_job_takes_is_refused_as_in_a_file(job: Job, setting: str, told: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        with_values(job, [setting])
    assert told in str(refusal.value)
