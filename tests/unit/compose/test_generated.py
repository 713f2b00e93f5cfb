"""Scripts and configurations written for a job: they differ with the jobs, and what they cannot honour is refused."""

from __future__ import annotations

import ast
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dttui import locations
from dttui.cli import main
from dttui.compose.generated import generate
from dttui.compose.templates import read_templates
from dttui.errors import UsageError
from dttui.frameworks.example_scripts import RECIPE, SCRIPTS, choose_script
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
        (("model: {name: ViT}", "strategy: {data_parallel: {batch_size: 12, shares: by_speed}}"), "as many samples"),
        (("model: {name: resnet50}", "strategy: {pipeline_parallel_size: 2}"), "no script here splits .* is 2"),
        (("framework: megatron-lm", "framework_options: {context_parallel_size: 2}"), "the context degree is 2"),
        (("framework: command", "run: {command: [x]}"), "no script can be written for framework: command"),
    ],
)
def test_what_the_script_could_not_honour_is_refused(lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        generate(job(NODES, *lines), TEMPLATES, SEED)


def told(made: Job, code: str) -> list[str]:
    _template, planned, _files = generate(made, TEMPLATES, SEED)
    return [item.message for item in planned.findings if item.code == code]


@pytest.mark.parametrize(
    ("lines", "unread"),
    [
        (
            ("model: {name: resnet}", "strategy: {recomputation: full, data_parallel: {num_workers: 2}}"),
            "strategy.recomputation",
        ),
        (
            ("settings: {warmup_steps: 5, mixup: 0.5, zork: 1}", "model: {layers: 2, dropout: true}"),
            "model.dropout, settings.mixup, settings.zork",
        ),
        (("model: {name: vit, precision: fp8}", "settings: {epochs: 3}"), "model.precision, settings.epochs"),
        (("model: {name: resnet18, layers: 3}", "settings: {dropout: 0.1}"), "model.layers, settings.dropout"),
        (
            ("framework: deepspeed", "settings: {mixed_precision: true, lr: 0.1, steps: 5, gradient_clipping: 2}"),
            "settings.mixed_precision",
        ),
        (
            (
                *(
                    "framework: megatron-lm",
                    "strategy: {zero_stage: 1, recomputation: full}",
                    "settings: {steps: 5, epochs: 3}",
                ),
                "framework_options: {arguments: {mock_data: true, lr: 0.1}}",
            ),
            "strategy.recomputation, strategy.zero_stage, framework_options.arguments.mock_data, settings.epochs",
        ),
        (("framework: horovod", "model: {layers: 3, precision: bf16}"), "model.layers"),
        (("framework: tensorflow", "settings: {warmup_steps: 5, learning_rate: 0.1}"), "settings.warmup_steps"),
        (("model: {name: vit}", "dataset: {id: x, path: /data}"), "dataset"),
        (
            ("strategy: {data_parallel: {data_sharding: {method: random, drop_last: true}}}",),
            "strategy.data_parallel.data_sharding.drop_last",
        ),
        (("model: {name: resnet50}", "settings: {dropout: 0, mixup: 0.2}"), None),
        (("model: {name: resnet50}", "settings: {dropout: 0.1}"), "settings.dropout"),
        (("version: 2.0.0", "monitoring: {metrics: [loss], logging: {level: DEBUG}}"), "monitoring.logging.level"),
        (
            (
                "settings: {steps: 5, lr: 0.1, warmup_steps: 2, epochs: 3, seed: 4}",
                "model: {layers: 2, seq_length: 64}",
            ),
            None,
        ),
    ],
)
def test_each_key_that_the_script_does_not_read_is_told(lines: tuple[str, ...], unread: str | None) -> None:
    nodes = "cluster: {nodes: [{id: pytorch-dev-env}]}"
    expected = [] if unread is None else [f"the script that was written does not act upon: {unread}"]
    assert told(job(nodes, *lines), "not-in-script") == expected


def test_the_table_of_what_scripts_read_is_that_of_the_scripts() -> None:
    usual, others = (constants("gpt", "recipe.py")[name] for name in ("USUAL", "ALSO_CALLED"))
    assert {name: others.get(name, ()) for name in usual} == RECIPE
    for name, script in SCRIPTS.items():
        said = constants(name, "settings.py" if name == "gpt" else "train.py")
        left_out = constants(name, "train.py").get("LEFT_OUT", ())
        if "OWN" in said:
            shared = {word for key in RECIPE if key not in left_out for word in (key, *RECIPE[key])}
            assert script.settings == {*said["OWN"], *shared}, name
        else:
            assert script.settings == {*said.get("SETTINGS", ())}, name
        assert script.model == {*said.get("MODEL", script.model)} - {"precision"}, name


def constants(template: str, file: str) -> dict[str, Any]:
    """Return the literals that a shipped script names: of `A | B` and the like, the first that is one."""
    tree = ast.parse((locations.shipped("examples") / template / file).read_text())
    found: dict[str, Any] = {}
    for item in tree.body:
        target = (
            item.target
            if isinstance(item, ast.AnnAssign)
            else item.targets[0]
            if isinstance(item, ast.Assign)
            else None
        )
        value = item.value if isinstance(item, (ast.Assign, ast.AnnAssign)) else None
        while isinstance(value, ast.BinOp):
            value = value.left
        if isinstance(target, ast.Name) and isinstance(value, (ast.Dict, ast.Tuple)):
            with suppress(ValueError):
                found[target.id] = ast.literal_eval(value)
    return found


@pytest.mark.parametrize(
    ("lines", "template", "message"),
    [
        (("model: {name: resnet50}",), "resnet", None),
        (("model: {name: ViT-B/16}",), "vision", None),
        (("model: {name: conversational-gpt}",), "gpt", None),
        (("model: {name: llama-3-8b}",), "gpt", "train.py trains a GPT on bytes, and not llama-3-8b"),
        (("model: {name: vgg16}",), "resnet", "train.py trains a ResNet on images, and not vgg16"),
        (
            ("framework: horovod", "model: {name: resnet50}"),
            "horovod",
            "train.py trains a recurrent network on bytes, and not resnet50",
        ),
        (("model: {name: resnet50-v1.5}",), "resnet", None),
        (("model: {name: ResNet-18}", "settings: {layers: [2, 2, 2, 2]}"), "resnet", None),
        (("model: {name: ResNet-18}",), "resnet", "train.py trains a ResNet on images of other sizes than ResNet-18"),
        (
            ("model: {name: wide_resnet50_2}",),
            "resnet",
            "train.py trains a ResNet on images of other sizes than wide_resnet50_2",
        ),
        (("model: {name: gpt2}",), "gpt", None),
        (("model: {name: GPT-3}",), "gpt", "train.py trains a GPT on bytes of other sizes than GPT-3"),
        (("model: {name: GPT-3, layers: 96}",), "gpt", None),
        (
            ("framework: megatron-lm", "model: {name: gpt-neox-20b}"),
            "megatron-lm",
            "train.py trains a GPT on bytes of other sizes than gpt-neox-20b",
        ),
        ((), "gpt", "the job does not name its model: train.py trains a GPT on bytes"),
    ],
)
def test_the_script_follows_from_the_words_of_the_models_name(
    lines: tuple[str, ...], template: str, message: str | None
) -> None:
    made = job(NODES, *lines)
    assert choose_script(made)[1] == template
    assert told(made, "script-model") == ([] if message is None else [message])


@pytest.mark.parametrize("name", ["conversational-gpt", "invite", "image captions", "convolve"])
def test_parts_of_words_in_a_jobs_name_choose_no_script(name: str) -> None:
    assert choose_script(job(NODES).model_copy(update={"name": name}))[1] == "gpt"


def test_a_known_models_name_stands_for_its_sizes() -> None:
    made = parse_job(written(job(NODES, "model: {name: llama-3-8b}"))["job.yaml"], "job.yaml")
    assert made.model is not None
    assert (made.model.layers, made.model.hidden_size, made.model.heads, made.model.kv_heads) == (32, 4096, 32, None)
    resnet = parse_job(written(job(NODES, "model: {name: resnet-50}"))["job.yaml"], "job.yaml")
    assert resnet.settings == {"layers": (3, 4, 6, 3), "width": 64, "image_size": 224, "classes": 1000}


def test_what_the_job_runs_otherwise_is_kept_and_what_is_replaced_is_told() -> None:
    run = "run: {script: mine.py, workdir: src, args: [a], python: /p, env: {A: b}, secrets: [KEY]"
    made = job(NODES, f"{run}, warm_start: true}}")
    again = parse_job(written(made)["job.yaml"], "job.yaml").run
    assert again is not None
    assert made.run is not None
    assert again == made.run.model_copy(update={"script": "train.py", "workdir": ".", "args": ()})
    assert told(made, "run-replaced") == ["train.py is run in the place of: run.script, run.args, run.workdir"]
    assert told(job(NODES, "run: {script: train.py, workdir: ., prefix: [nice]}"), "run-replaced") == []
    assert told(job(NODES), "run-replaced") == []


@pytest.mark.parametrize("name", [*SCRIPTS])
def test_every_script_has_the_job_written_into_it(name: str) -> None:
    words = {
        "resnet": "model: {name: resnet}",
        "vision": "model: {name: vit}",
        "bert": "strategy: {pipeline_parallel_size: 2}",
    }
    lines = [words[name]] if name in words else [] if name == "gpt" else [f"framework: {name}"]
    nodes = "cluster: {nodes: [{id: pytorch-dev-env}]}"
    made = job(nodes, *lines, "settings: {steps: 7, seed: 5}")
    assert choose_script(made)[1] == name
    files = written(made)
    shipped = {path.name: path.read_text() for path in (locations.shipped("examples") / name).glob("*.py")}
    (changed,) = (path for path in files if path.endswith(".py") and files[path] != shipped[path])
    assert "'seed': 5" in files[changed] if name != "megatron-lm" else "--seed=5" in files["megatron_args.txt"]
    assert "import" in files["train.py"]
    ast.parse(files[changed])


def test_a_script_without_a_place_for_the_job_is_a_fault(tmp_path: Path) -> None:
    for name in ("train.py", "recipe.py"):
        (tmp_path / name).write_text("")
    templates = [replace(item, directory=tmp_path) for item in TEMPLATES]
    with pytest.raises(RuntimeError, match="the scripts of gpt have no place"):
        generate(job(NODES), templates, SEED)


def test_deepspeed_and_megatron_are_told_settings_by_their_own_options_and_have_their_files() -> None:
    files = written(
        job(NODES, "framework: deepspeed", "settings: {lr: 0.1, warmup_steps: 3, gradient_accumulation: 1, epochs: 2}")
    )
    config = json.loads(files["ds_config.json"])
    assert config["optimizer"]["params"]["lr"] == 0.1
    assert config["scheduler"]["params"]["warmup_num_steps"] == 3
    assert config["gradient_accumulation_steps"] == 1
    assert parse_job(files["job.yaml"], "job.yaml").settings == {"epochs": 2}
    checkpoint = "recovery: {checkpoint: {dir: kept}}"
    files = written(
        job(NODES, "framework: megatron-lm", "settings: {steps: 7, lr: 0.1}", "model: {layers: 3}", checkpoint)
    )
    arguments = files["megatron_args.txt"].splitlines()
    assert {"--train-iters=7", "--lr=0.1", "--num-layers=3", "--save=kept"} <= {*arguments}
    assert not any("${" in line or "backend" in line for line in arguments)


def test_a_job_without_nodes_is_written_and_asks_for_them() -> None:
    _template, planned, files = generate(job("model: {name: resnet}"), TEMPLATES, SEED)
    assert [item.code for item in planned.errors] == ["no-nodes"]
    assert {file.path for file in files} == {"job.yaml", "dttui_config.json", "train.py", "recipe.py"}


def test_a_person_is_told_what_the_script_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hosts.yaml").write_text("environments: []\n")
    asked = tmp_path / "asked.yaml"
    asked.write_text(
        "distributed_training:\n  name: a\n  dataset: none\n  model: {name: llama-3-8b, tied: true}\n"
        "  run: {script: mine.py}\n  cluster: {nodes: [{id: x}]}\n"
    )
    assert (
        main(["init", "--from", str(asked), "--inventory", str(tmp_path / "hosts.yaml"), str(tmp_path / "made")]) == 0
    )
    told = capsys.readouterr().err
    assert [code in told for code in ("not-in-script", "script-model", "run-replaced")] == [True] * 3
