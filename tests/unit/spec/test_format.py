"""The canonical form of a job file."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dttui.errors import UsageError
from dttui.spec import DocumentError, Job, dump_job, parse_job
from dttui.spec.format import format_job
from dttui.spec.yaml_nodes import YamlText
from tests.job_strategies import jobs, styled
from tests.unit.spec.test_edit import commented

WILD = """
# licence

# about the file
distributed_training:

    # about the nodes
    cluster:   # the nodes
        nodes:
        -   id: a   # a!
            resources: {gpu: {memory:  16GB,   count: 2}}
        # before b
        - {role: worker, id: b} # b!
        -
            # odd
            id: c


    # after the nodes

    # what runs
    run:
        script: x
        env: {B: "1",
              A: '2'   # two
              # in
              }
        args: [
          # first
          --a, 1, # one
          --b ]
        # end of run
            # deeper end
    "name":
       "foo bar
         baz"
    version: |  # why
          1.0
            2
    framework: # fw
        # fw2
        command  # fw3
    monitoring: {visualization: {dashboard: {z: , b: [ ], text: "x" }}, metrics: [ # none
       ]}
    # tail 1
# tail 2
schema: dttui/v1
# tail 3
"""

TAMED = """\
# licence

# about the file
# tail 2
schema: dttui/v1
distributed_training:
  name: "foo bar
    baz"
  version: |  # why
    1.0
      2
  # fw
  # fw2
  framework: command  # fw3

  # after the nodes

  # what runs
  run:
    script: x
    args:
      # first
      - --a
      - 1         # one
      - --b
    env:
      B: "1"
      A: '2'           # two
      # in
    # end of run
    # deeper end

  # about the nodes
  cluster:     # the nodes
    nodes:
      - id: a       # a!
        resources: {gpu: {count: 2, memory: 16GB}}
      # before b
      - {id: b, role: worker}   # b!
      -
        # odd
        id: c
  monitoring:
    # none
    metrics: []
    visualization: {dashboard: {z: null, b: [], text: "x"}}
  # tail 1
# tail 3
"""


def test_keys_are_put_in_order_and_indented_and_comments_go_with_them() -> None:
    assert format_job(WILD, "job.yaml") == TAMED
    assert format_job(TAMED, "job.yaml") == TAMED
    assert parse_job(TAMED, "x") == parse_job(WILD, "x")


def test_the_examples_are_in_their_canonical_form() -> None:
    paths = sorted((Path(__file__).parents[3] / "examples").glob("*/*.yaml"))
    assert paths
    for path in paths:
        assert format_job(path.read_bytes(), str(path)) == path.read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"distributed_training": {"name": "a"}}', 'distributed_training: {name: "a"}\n'),
        (
            '{"distributed_training": {"name": "\\ud83d\\ude00 a", "settings": {"\\u4e2d": ["\\ud83d\\ude00"]}}}',
            'distributed_training: {name: "😀 a", settings: {"\\u4e2d": ["😀"]}}\n',
        ),
        ("distributed_training:\r\n   name: a\r\n", "distributed_training:\n  name: a\n"),
        ("--- # x\ndistributed_training: {name: a}\n...\n# y\n", "# x\ndistributed_training: {name: a}\n# y\n"),
        (
            'distributed_training:\n name: a\n version: "x\u2028y\n   z"\n',
            'distributed_training:\n  name: a\n  version: "x\\Ly z"\n',
        ),
        ("distributed_training: &x\n name: a\n", "distributed_training: &x\n  name: a\n"),
        (
            "distributed_training:\n run: {script: &s x, python: *s}\n name: a",
            "distributed_training:\n  run: {script: &s x, python: *s}\n  name: a\n",
        ),
        (
            "distributed_training: {name: a, run: {script: a, args: [\n- 1, '#', a#b]}}",
            None,
        ),
        (
            "distributed_training: {name: a, run: {script: a, args: [\n-1, '#', a#b]}}",
            "distributed_training:\n  name: a\n  run:\n    script: a\n    args:\n"
            "      - -1\n      - '#'\n      - a#b\n",
        ),
    ],
)
def test_odd_documents_too(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(DocumentError):
            format_job(text, "x")
    else:
        assert format_job(text, "x") == expected


def test_what_has_mistakes_or_is_no_job_file_is_refused() -> None:
    with pytest.raises(DocumentError, match="unknown key"):
        format_job("distributed_training: {name: a, x: 1}", "job.yaml")
    with pytest.raises(UsageError, match="cannot be formatted without changing"):
        format_job('{ // why\n"distributed_training": {"name": "a"}}', "job.yaml")


@given(jobs())
@settings(max_examples=100)
def test_any_job_says_the_same_with_the_same_comments_and_once_is_enough(job: Job) -> None:
    text = commented(dump_job(job))
    formatted = format_job(text, "x")
    assert parse_job(formatted, "x") == job
    assert format_job(formatted, "x") == formatted
    remarks = [comment.text for comment in YamlText(formatted).comments]
    assert remarks == [comment.text for comment in YamlText(text).comments]


@given(jobs())
@settings(max_examples=60)
def test_what_dttui_writes_itself_is_canonical(job: Job) -> None:
    assert format_job(dump_job(job), "x") == dump_job(job)


@given(jobs(), st.randoms(use_true_random=False))
@settings(max_examples=80)
def test_a_file_of_any_style_says_the_same_with_the_same_comments_and_once_is_enough(job: Job, random: Random) -> None:
    text = styled({"distributed_training": job.model_dump(mode="json", exclude_unset=True)}, random)
    assert parse_job(text, "x") == job
    formatted = format_job(text, "x")
    assert parse_job(formatted, "x") == job
    assert format_job(formatted, "x") == formatted
    remarks = sorted(comment.text for comment in YamlText(formatted).comments)
    assert remarks == sorted(comment.text for comment in YamlText(text).comments)
