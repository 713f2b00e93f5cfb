"""Scripts and configurations written for a job: they differ with the jobs, and what they cannot honour is refused."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from dttui import locations
from dttui.compose.generated import generate
from dttui.compose.templates import read_templates
from dttui.errors import UsageError
from dttui.frameworks.example_scripts import choose_script
from dttui.inventory.models import Inventory
from dttui.spec import Job, load_job, parse_job
from tests.unit.seed_cluster import SEED

SEEDS = Path(__file__).parents[1] / "seeds"
TEMPLATES = read_templates(locations.shipped("examples"))
NODES = "cluster: {nodes: [{id: pytorch-dev-env}, {id: llm-training-env}]}"


def job(*lines: str) -> Job:
    return parse_job("\n  ".join(("distributed_training:", "name: mine", *lines)) + "\n", "job.yaml")


def written(made: Job, inventory: Inventory = SEED) -> dict[str, str]:
    _template, _plan, files = generate(made, TEMPLATES, inventory)
    return {file.path: file.text or "" for file in files if file.text is not None}


@pytest.mark.parametrize(
    ("document", "framework", "template"),
    [
        ("data_parallel", "pytorch-ddp", "resnet"),
        ("model_parallel", "pytorch-ddp", "bert"),
        ("pipeline_parallel", "pytorch-ddp", "bert"),
        ("horovod_config", "horovod", "horovod"),
    ],
)
def test_the_seeds_documents_have_scripts_by_what_they_split(document: str, framework: str, template: str) -> None:
    made = load_job(SEEDS / f"{document}.yaml")
    assert choose_script(made) == (framework, template)
    files = written(made)
    ast.parse(files["train.py"])
    config = json.loads(files["dttui_config.json"])
    assert f"OF_JOB: dict[str, Any] = {{'name': {config['name']!r}" in files["train.py"]
    again = parse_job(files["job.yaml"], "job.yaml")
    assert again.run is not None
    assert (again.framework, again.run.script, again.strategy) == (framework, "train.py", made.strategy)


@pytest.mark.parametrize(
    ("lines", "chosen"),
    [
        (("strategy: {tensor_parallel_size: 2}",), "megatron-lm"),
        (("strategy: {zero_stage: 3}",), "pytorch-fsdp"),
        (("model: {name: vit-b}",), "vision"),
        (("model: {name: gpt-2, layers: 3, hidden_size: 48, heads: 3}",), "gpt"),
        (("strategy: {pipeline_parallel_size: 3}",), "bert"),
    ],
)
def test_what_a_job_splits_decides_on_the_script(lines: tuple[str, ...], chosen: str) -> None:
    made = job(NODES, *lines)
    assert choose_script(made)[1] == chosen
    ast.parse(written(made)["train.py"])


def test_two_jobs_have_two_scripts() -> None:
    for more in ("", "model: {name: resnet}", "strategy: {zero_stage: 3}"):
        one, other = (
            written(job(NODES, f"settings: {{learning_rate: {rate}}}", *([more] if more else [])))
            for rate in (0.1, 0.2)
        )
        assert any(one[name] != other[name] for name in one if name.endswith(".py"))
        assert "0.1" in "".join(one.values())


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("framework: pytorch-ddp", "strategy: {tensor_parallel_size: 2}"), "tensor_parallel_size is 2"),
        (("framework: pytorch-ddp", "strategy: {zero_stage: 2}"), "zero_stage is 2"),
        (("framework: horovod", "strategy: {pipeline_parallel_size: 2}"), "pipeline_parallel_size is 2"),
        (("strategy: {pipeline_parallel: {pipeline_stages: 2, schedule: Interleaved}}",), "schedule Interleaved"),
        (("model: {layers: 2}", "strategy: {pipeline_parallel_size: 3}"), "2 layers make no 3 stages"),
        (("strategy: {pipeline_parallel_size: 5}",), "does not divide the 6"),
        (("model: {name: ViT}", "strategy: {tensor_parallel_size: 2}"), "tensor_parallel_size is 2"),
        (("strategy: {data_parallel: {batch_size: 12, shares: by_speed}}",), "as many samples"),
        (("framework: command", "run: {command: [x]}"), "no script can be written for framework: command"),
    ],
)
def test_what_the_script_could_not_honour_is_refused(lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        generate(job(NODES, *lines), TEMPLATES, SEED)


def test_what_is_left_to_do_by_hand_is_told() -> None:
    made = job(NODES, "strategy: {recomputation: full, data_parallel: {num_workers: 2}}", "model: {name: resnet}")
    _template, planned, _files = generate(made, TEMPLATES, SEED)
    (found,) = (item for item in planned.findings if item.code == "not-in-script")
    assert found.message.endswith(": strategy.recomputation")


def test_a_job_without_nodes_is_written_and_asks_for_them() -> None:
    _template, planned, files = generate(job("model: {name: resnet}"), TEMPLATES, SEED)
    assert [item.code for item in planned.errors] == ["no-nodes"]
    assert {file.path for file in files} == {"job.yaml", "dttui_config.json", "train.py", "recipe.py"}
