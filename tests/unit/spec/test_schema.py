"""The JSON Schema: what it says, that a public validator accepts what dttui does, and that the committed one is new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from dttui.spec import DocumentError, Job, dump_job, parse_job
from dttui.spec.entry_points import OWN_FRAMEWORKS
from dttui.spec.json_schema import DIALECT, job_schema
from dttui.spec.yaml_reader import parse_yaml
from tests.job_strategies import jobs

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(ROOT.glob("examples/*/*.yaml"))
SEEDS = sorted((Path(__file__).parents[1] / "seeds").glob("*_parallel.yaml"))
SCHEMA = job_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    return [plain(item) for item in data] if isinstance(data, tuple) else data


def faults(text: str) -> list[str]:
    return [error.json_path for error in VALIDATOR.iter_errors(plain(parse_yaml(text, "x").data))]


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for section in (schema, *schema["$defs"].values()):
        yield from section.get("properties", {}).items()


def test_it_is_a_schema_of_the_dialect_it_names() -> None:
    assert SCHEMA["$schema"] == DIALECT == Draft202012Validator.META_SCHEMA["$id"]
    assert SCHEMA["$id"] == "urn:dttui:job:v1"
    Draft202012Validator.check_schema(SCHEMA)


def test_each_key_is_described() -> None:
    for name, schema in properties(SCHEMA):
        referred = SCHEMA["$defs"].get(str(schema.get("$ref", "")).rpartition("/")[2], {})
        assert schema.get("description") or referred.get("description"), name


def test_quantities_enumerations_and_effects_are_told() -> None:
    sections = SCHEMA["$defs"]
    assert sections["NetworkRequest"]["properties"]["bandwidth"]["effect"] == "estimate"
    assert sections["Topology"]["properties"]["type"]["effect"] == "script"
    assert sections["Storage"]["properties"]["size"]["effect"] == "preflight"
    schedule = sections["PipelineParallel"]["properties"]["schedule"]["anyOf"][0]
    assert schedule["enum"] == ["1F1B", "GPipe", "Interleaved", "ZB-H1", "ZB-H2", "ZB-V"]
    assert "16GB" in json.dumps(sections["GpuRequest"]["properties"]["memory"])


@pytest.mark.parametrize("path", [*EXAMPLES, *SEEDS], ids=lambda path: path.name)
def test_examples_are_valid(path: Path) -> None:
    assert faults(path.read_text()) == []
    parse_job(path.read_text(), path.name)


def test_there_are_examples() -> None:
    assert EXAMPLES
    assert len(SEEDS) == 3


@given(jobs())
@settings(max_examples=150)
def test_whatever_is_a_job_is_valid(job: Job) -> None:
    assert faults(dump_job(job)) == []


@pytest.mark.parametrize(
    "body",
    [
        "nme: x",
        "resources: {gpu: {memory: 16 gigs}}",
        "resources: {network: {bandwidth: 100}}",
        "strategy: {type: dataparallel}",
        "run: {script: a, module: b}",
        "run: {}",
        "run: {script: a, env: {1BAD: x}}",
        "dataset: imagenet",
        "cluster: {nodes: [{role: worker}]}",
        "recovery: {max_restarts: -1}",
    ],
)
def test_what_the_loader_refuses_is_refused(body: str) -> None:
    text = f"distributed_training:\n  name: a\n  {body}\n"
    assert faults(text)
    with pytest.raises(DocumentError):
        parse_job(text, "x")


def test_plain_scalars_are_fine_where_text_is_expected() -> None:
    text = "distributed_training:\n  name: a\n  version: 1.10\n  run: {script: a, args: [--steps, 100, true]}\n"
    assert faults(text) == []
    assert parse_job(text, "x").version == "1.10"


def test_the_committed_schema_is_the_one_that_dttui_prints_but_for_frameworks_that_were_added_since() -> None:
    committed = (ROOT / "docs" / "job.schema.json").read_text()
    names, printed = list(OWN_FRAMEWORKS), json.loads(json.dumps(SCHEMA))
    assert printed["$defs"]["Job"]["properties"]["framework"]["anyOf"][0]["enum"] == names
    known = json.loads(committed)["$defs"]["Job"]["properties"]["framework"]["anyOf"][0]["enum"]
    assert len(known) >= 7
    assert known == [name for name in names if name in known]
    printed["$defs"]["Job"]["properties"]["framework"]["anyOf"][0]["enum"] = known
    assert committed == json.dumps(printed, indent=2) + "\n", "make schema"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_examples_name_the_schema_for_editors(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    assert (path.parent / first.removeprefix(prefix)).resolve() == ROOT / "docs" / "job.schema.json"
