"""Editing a job file in place: what did not change stays as it was written, to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dttui.spec import Job, dump_job, parse_job
from dttui.spec.edit import edited_in_place
from dttui.spec.loader import ROOT_KEY
from dttui.spec.models import Cluster, DatasetRef, GpuRequest, Monitoring, Node, NodeResources, Recovery, Run, Section
from dttui.spec.yaml_nodes import YamlText
from tests.job_strategies import jobs, styled

EXAMPLE = (Path(__file__).parents[3] / "examples" / "gpt" / "job.yaml").read_text()

BLOCK = """\
# head
distributed_training:
  # about the name
  name: "a"   # its name
  run:  # what runs
    script: x
    args:
      - one  # 1
      - two  # 2
      # more to come
    # python: python3

  dataset:   # head
    id: d
    version: v1
  cluster:
    nodes:
      - id: n1  # first
        resources: {gpu: {count: 1, type: A100}}   # flow
      # second
      - {id: n2, role: worker}
  # tail
"""


def edited(text: str, change: dict[str, Any]) -> str:
    job = changed(parse_job(text, "old"), change)
    result = edited_in_place(text, job)
    assert result is not None
    assert parse_job(result, "new") == job
    return result


def changed(section: Any, change: dict[str, Any]) -> Any:
    """Return a section with some fields set, deleted (`None`), or changed within (a mapping of these)."""
    parts = {name: getattr(section, name) for name in section.model_fields_set}
    for name, value in change.items():
        if value is None:
            parts.pop(name)
        else:
            parts[name] = changed(parts[name], value) if isinstance(value, dict) else value
    return type(section)(**parts)


def lines_changed(text: str, result: str) -> list[str]:
    before, after = text.splitlines(), result.splitlines()
    return [f"-{line}" for line in before if line not in after] + [f"+{line}" for line in after if line not in before]


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({"name": "b"}, ['-  name: "a"   # its name', '+  name: "b"   # its name']),
        ({"run": {"args": ("one", "2", "three")}}, ["-      - two  # 2", "+      - '2'  # 2", "+      - three"]),
        ({"run": {"args": ("two",)}}, ["-      - one  # 1"]),
        ({"run": {"workdir": "."}}, ["+    workdir: ."]),
        ({"dataset": "none"}, ["-  dataset:   # head", "-    id: d", "-    version: v1", "+  dataset: none  # head"]),
        ({"dataset": {"version": None}}, ["-    version: v1"]),
        ({"framework": "command"}, ["+  framework: command"]),
        ({"recovery": Recovery(max_restarts=2)}, ["+  recovery:", "+    max_restarts: 2"]),
        ({"dataset": None}, ["-  dataset:   # head", "-    id: d", "-    version: v1"]),
    ],
)
def test_only_the_lines_of_what_changed_change(change: dict[str, Any], lines: list[str]) -> None:
    assert lines_changed(BLOCK, edited(BLOCK, change)) == lines


def test_nothing_changes_where_nothing_did() -> None:
    for text in (BLOCK, EXAMPLE, "\ufeff" + BLOCK, BLOCK.replace("\n", "\r\n")):
        assert edited(text, {}) == text


def test_new_keys_come_where_the_models_have_them() -> None:
    keys = list(YamlText(edited(BLOCK, {"framework": "command", "version": "2"})).root.entries[0].value.entries)  # type: ignore[union-attr]  # there is a root
    assert [entry.key.text for entry in keys if entry.key] == [
        "name",
        "version",
        "framework",
        "run",
        "dataset",
        "cluster",
    ]


def with_nodes(*nodes: Node) -> dict[str, Any]:
    return {"cluster": Cluster(nodes=nodes)}


def test_nodes_are_told_apart_by_their_id() -> None:
    first, second = parse_job(BLOCK, "x").cluster.nodes
    assert lines_changed(BLOCK, edited(BLOCK, with_nodes(second))) == [
        "-      - id: n1  # first",
        "-        resources: {gpu: {count: 1, type: A100}}   # flow",
    ]
    assert lines_changed(BLOCK, edited(BLOCK, with_nodes(first, Node(id="n3"), second))) == ["+      - id: n3"]
    more = first.model_copy(update={"resources": NodeResources(gpu=GpuRequest(count=2, type="A100"))})
    assert lines_changed(BLOCK, edited(BLOCK, with_nodes(more, second))) == [
        "-        resources: {gpu: {count: 1, type: A100}}   # flow",
        "+        resources: {gpu: {count: 2, type: A100}}   # flow",
    ]
    # A key more in brackets: these are written anew, and nothing around them.
    less = second.model_copy(update={"resources": NodeResources(gpu=GpuRequest(count=0))})
    assert lines_changed(BLOCK, edited(BLOCK, with_nodes(first, less)))[1] == (
        "+      - {id: n2, role: worker, resources: {gpu: {count: 0}}}"
    )


def test_line_ends_and_the_missing_last_one_stay() -> None:
    text = BLOCK.rstrip().removesuffix("# tail").rstrip().replace("\n", "\r\n")
    result = edited(text, {"name": "b", "monitoring": Monitoring(metrics=("loss", "x"))})
    assert result.count("\n") == result.count("\r\n")
    assert result.endswith("\r\n  monitoring:\r\n    metrics:\r\n      - loss\r\n      - x")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  run: {script: a, args: [x]}\n", "  run: {script: a, args: ['1, 2']}\n"),
        ("  run: {script: a, args: [x,\n    y]} # c\n", "  run: {script: a, args: ['1, 2']} # c\n"),
        ("  run:\n    script: a\n    args:\n    - x # c\n", "  run:\n    script: a\n    args:\n    - 1, 2 # c\n"),
        ("  run:\n    script: a\n    args: !!seq\n    - x\n", "  run:\n    script: a\n    args: !!seq\n    - 1, 2\n"),
        ("  run: {script: a}\n", "  run: {script: a, args: ['1, 2']}\n"),
        ("  run:\n    script: a\n    args: []\n", "  run:\n    script: a\n    args: ['1, 2']\n"),
        ("  run:\n    args:\n      - |\n       x\n    script: a\n", "  run:\n    args:\n      - 1, 2\n    script: a\n"),
        ("  ? run\n  : script: a\n", "  ? run\n  : script: a\n    args:\n      - 1, 2\n"),
    ],
)
def test_every_style_is_kept(old: str, new: str) -> None:
    text = f"distributed_training:\n{old}  name: a\n"
    result = edited(text, {"run": Run(script="a", args=("1, 2",))})
    assert result.replace('"1, 2"', "'1, 2'").replace("'1, 2'\n", "1, 2\n").replace("- '1, 2'", "- 1, 2") == (
        f"distributed_training:\n{new}  name: a\n"
    )


ANCHORED = """\
distributed_training:
  name: a  # stays
  cluster:
    nodes:
      - id: x
        resources: &r
          gpu: {count: 1}   # one
      - {id: y, resources: *r}
  # end
"""


def test_an_alias_is_written_out_where_it_no_longer_fits() -> None:
    first, second = parse_job(ANCHORED, "x").cluster.nodes
    more = NodeResources(gpu=GpuRequest(count=5))
    result = edited(ANCHORED, with_nodes(first, second.model_copy(update={"resources": more})))
    assert lines_changed(ANCHORED, result) == [
        "-      - {id: y, resources: *r}",
        "+      - {id: y, resources: {gpu: {count: 5}}}",
    ]
    result = edited(ANCHORED, with_nodes(first.model_copy(update={"resources": more}), second))
    assert result.splitlines()[:3] == ANCHORED.splitlines()[:3]
    assert result.splitlines()[-1] == "  # end"


@pytest.mark.parametrize("text", ["", "# nothing\n", "[1", "distributed_training: {}", "taskName: x\n"])
def test_what_is_no_job_file_is_written_anew(text: str) -> None:
    job = Job(name="a", dataset=DatasetRef(id="d"))
    assert edited_in_place(text, job) is None


def test_json_from_a_browser_is_edited_in_place() -> None:
    text = '{"distributed_training": {"name": "\\ud83d\\ude00", "run": {"script": "a"}}}'
    assert edited(text, {"run": {"script": "b"}}) == text.replace('"a"', '"b"')


def test_the_version_of_the_schema_and_what_else_is_beside_the_job_stays() -> None:
    text = "# yaml-language-server: $schema=x\nschema: dttui/v1  # v\ndistributed_training: {name: a}\n"
    assert edited(text, {"name": "b"}) == text.replace("name: a", "name: b")


# --- laws -------------------------------------------------------------------------------------------------------------


def commented(text: str) -> str:
    """Return a written job with a comment behind each line and above each."""
    lines = text.splitlines()
    return "".join(
        f"{' ' * (len(line) - len(line.lstrip()))}# above {index}\n{line}  # behind {index}\n"
        for index, line in enumerate(lines)
    )


@given(jobs(), jobs())
@settings(max_examples=100)
def test_any_job_file_becomes_any_other_job_in_place(one: Job, other: Job) -> None:
    for text in (dump_job(one), commented(dump_job(one))):
        result = edited_in_place(text, other)
        assert result is not None
        assert parse_job(result, "new") == other
        assert edited_in_place(result, other) == result


def leaves(section: Section, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in sorted(section.model_fields_set):
        value = getattr(section, name)
        yield (*path, name)
        if isinstance(value, Section):
            yield from leaves(value, (*path, name))


def replaced(section: Any, other: Any, path: tuple[str, ...]) -> Any:
    """Return a section with the field at `path` as another section has it."""
    name, *rest = path
    theirs = getattr(other, name, None)
    mine = getattr(section, name)
    if rest and isinstance(theirs, type(mine)):
        theirs = replaced(mine, theirs, tuple(rest))
    parts = {field: getattr(section, field) for field in section.model_fields_set}
    return type(section)(**{**parts, name: theirs})


@given(st.data(), jobs(), jobs())
@settings(max_examples=100)
def test_an_edit_of_one_field_leaves_the_lines_of_the_others_alone(data: st.DataObject, one: Job, other: Job) -> None:
    path = data.draw(st.sampled_from(list(leaves(one))))
    try:
        job = replaced(one, other, path)
    except ValueError:  # The field does not go with its new neighbours.
        return
    text = commented(dump_job(one))
    result = edited_in_place(text, job)
    assert result is not None
    assert parse_job(result, "new") == job
    for key, lines in sections(text).items():
        if key != path[0]:
            assert sections(result)[key] == lines


def sections(text: str) -> dict[str, str]:
    """Return the text of each key of the job."""
    page = YamlText(text)
    entry = page.root.find(ROOT_KEY) if page.root is not None else None
    assert entry is not None
    return {item.key.text: text[item.start : item.value.end] for item in entry.value.entries if item.key is not None}


@given(jobs(), st.randoms(use_true_random=False), st.data())
@settings(max_examples=80)
def test_in_a_file_of_any_style_nothing_changes_outside_of_the_value_that_was_edited(
    one: Job, random: Random, data: st.DataObject
) -> None:
    text = styled({ROOT_KEY: one.model_dump(mode="json", exclude_unset=True)}, random)
    other = data.draw(jobs())
    path = shared(one, other, data.draw(st.sampled_from(list(leaves(one)))))
    try:
        job = replaced(one, other, path)
    except ValueError:  # The field does not go with its new neighbours.
        return
    result = edited_in_place(text, job)
    assert result is not None
    assert parse_job(result, "new") == job
    start, end = span(text, path)
    assert result[:start] == text[:start]
    assert result.endswith(text[end:])


def shared(one: Any, other: Any, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return as much of a path as leads through sections that both have."""
    name, *rest = path
    mine, theirs = getattr(one, name), getattr(other, name, None)
    return (name, *shared(mine, theirs, tuple(rest))) if rest and isinstance(theirs, type(mine)) else (name,)


def span(text: str, path: tuple[str, ...]) -> tuple[int, int]:
    """Return from where to where a text may change with a field: its value, or the outermost brackets around it.

    What stands in the value's last line behind it, and comments that are further in than its key, go with it.
    """
    page = YamlText(text)
    assert page.root is not None
    entry, parent = page.root.entries[0], page.root
    for key in path:
        if entry.value.style:
            break
        found, parent = entry.value.find(key), entry.value
        assert found is not None
        entry = found
    assert entry.key is not None
    end = page.next_line(entry.value.end)
    depth = page.column(parent.content)
    while end < len(text):
        line = text[end : page.line_end(end)]
        if line.strip() and not (line.lstrip().startswith("#") and len(line) - len(line.lstrip()) > depth):
            break
        end = page.next_line(end)
    return entry.key.end, end
