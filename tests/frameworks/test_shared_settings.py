"""Settings that seeds and templates call alike: each acts in each template whose script is said to read it.

Of the seeds' documents those with settings, and the one with a sharding of the data, are fed to the templates of their
models; Horovod's also to that of its framework, with a Horovod of one rank in the place of the real one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dttui.frameworks.example_scripts import RECIPE, SCRIPTS
from dttui.inventory.models import GpuResources, Inventory, Resources
from dttui.planning.planner import plan
from dttui.spec import load_job
from dttui.spec.models import Cluster, Model, Node, Run
from tests.unit.seed_cluster import environment

ROOT = Path(__file__).parents[2]
SEEDS = ROOT / "tests/unit/seeds"
READING = ("gpt", "vision", "resnet", "pytorch-fsdp", "bert", "horovod")
"""Templates whose scripts read recipe.py."""
TOY = Model(layers=2, hidden_size=32, heads=2, seq_length=16, vocab_size=256, precision="fp32")
VALUES: dict[str, Any] = {
    "learning_rate": 0.02,
    "warmup_steps": 3,
    "scheduler": "linear",
    "min_lr": 0.001,
    "weight_decay": 5.0,
    "dropout": 0.3,
    "label_smoothing": 0.2,
    "mixup": 0.8,
    "cutmix": 0.8,
    "auto_augment": True,
    "accumulation_steps": 2,
    "gradient_clipping": 0.02,
    "loss_scaling": True,
    "mixed_precision": True,
}
"""For each setting of recipe.py one that no script has by itself."""
AS_BEFORE = ("accumulation_steps", "loss_scaling")
"""Those by which a step is computed otherwise, and comes to the same but for rounding."""
REFUSALS = """
import json, sys
from recipe import Recipe

def refusal(settings):
    try:
        Recipe(settings)
    except SystemExit as error:
        return str(error)
    return ""

print(json.dumps([refusal(settings) for settings in json.loads(sys.argv[1])]))
"""
DRIVER = """
import contextlib, json, os, runpy, sys, tempfile, types
import torch, torch.distributed as dist
folder = os.path.dirname(sys.argv[1])
sys.path.insert(0, folder)
sys.argv, runs = sys.argv[:1] + sys.argv[2:], json.load(sys.stdin)
os._exit = lambda status: None
hvd = types.ModuleType("horovod.torch")  # of one rank
hvd.init = hvd.shutdown = hvd.broadcast_parameters = hvd.broadcast_optimizer_state = lambda *args, **named: None
hvd.rank, hvd.size, hvd.local_rank, hvd.cuda_built = (lambda value=value: value for value in (0, 1, 0, False))
hvd.allreduce = lambda value: value
hvd.broadcast_object = lambda value, root_rank: value
hvd.Compression = types.SimpleNamespace(fp16=None, none=None)
def distributed(optimizer, **named):
    optimizer.synchronize, optimizer.skip_synchronize = (lambda: None), contextlib.nullcontext
    return optimizer
hvd.DistributedOptimizer = distributed
sys.modules |= {"horovod": types.ModuleType("horovod"), "horovod.torch": hvd}
sys.modules["horovod"].torch = hvd
for config in runs:
    folder = tempfile.mkdtemp()
    os.environ.update(DTTUI_CONFIG=folder + "/config", DTTUI_METRICS=folder + "/metrics", DTTUI_CHECKPOINT_DIR=folder)
    open(folder + "/config", "w").write(json.dumps(config))
    sys.modules.pop("recipe", None)
    runpy.run_path(SCRIPT, run_name="__main__")
    print("reported", json.dumps([json.loads(line) for line in open(folder + "/metrics")]), flush=True)
"""
"""Runs a script with one configuration after another, as one rank of one."""


def configuration(document: str, framework: str, **changes: Any) -> dict[str, Any]:
    """Return what dttui hands to the script of a document's job, on one host, with a small model and batch."""
    nodes = (Node(id="a"),)
    host = environment("a", resources=Resources(gpu=GpuResources(count=1, type="A100", simulated=True)))
    job = load_job(SEEDS / document)
    small = {"cluster": Cluster(nodes=nodes), "framework": framework, "run": Run(script="/train.py"), "dataset": "none"}
    made = plan(job.model_copy(update=small), Inventory(environments=(host,)))
    text = next(file.text for file in made.nodes[0].files if file.path == "dttui_config.json")
    found: dict[str, Any] = json.loads(text)
    toy = TOY.model_dump(exclude_none=True)
    found |= {"batch_size": 16, "model": (found["model"] or {}) | toy, "strategy": {}}
    settings = {"steps": 5, "checkpoint_every": 100} | found["settings"] | changes
    return found | {"settings": settings}


def trained(template: str, runs: Sequence[Mapping[str, Any]]) -> tuple[list[list[float]], str]:
    """Return the losses of each run of a template's script, and what it printed of its settings."""
    script = str(ROOT / "examples" / template / "train.py")
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    command = [sys.executable, "-W", "ignore", "-c", DRIVER.replace("SCRIPT", repr(script)), script]
    environment_of = os.environ | ranks | {"OMP_NUM_THREADS": "1", "DTTUI_BACKEND": "gloo"}
    told = subprocess.run(
        command, input=json.dumps(runs), env=environment_of, capture_output=True, text=True, timeout=240, check=False
    )
    assert told.returncode == 0, told.stderr
    lines = [line for line in told.stdout.splitlines() if line.startswith("reported ")]
    reported = [json.loads(line.removeprefix("reported ")) for line in lines]
    return [[item["loss"] for item in items] for items in reported], told.stderr


def test_all_templates_read_settings_by_one_file() -> None:
    texts = {(ROOT / "examples" / name / "recipe.py").read_text() for name in READING}
    assert len(texts) == 1


@pytest.mark.torch
def test_each_setting_of_the_computer_vision_document_acts_in_its_template() -> None:
    changes = {"warmup_steps": 2, "min_lr": 1e-3, "learning_rate": 5e-3, "weight_decay": 5.0}
    whole = configuration("computer_vision_training.yaml", "pytorch-ddp", **changes)
    own = ["scheduler", "warmup_steps", "min_lr", "weight_decay", "dropout", "label_smoothing"]
    own += ["mixup", "cutmix", "auto_augment"]
    others = ["gradient_synchronization", "model_sharding", "communication_overlap"]
    assert sorted({*whole["settings"]} - {"steps", "checkpoint_every", "learning_rate"}) == sorted([*own, *others])
    in_vain = "communication_overlap, gradient_synchronization, model_sharding"
    _acts("vision", whole, own, f"nothing comes of settings: {in_vain}")


@pytest.mark.torch
def test_each_setting_of_the_horovod_document_acts_in_a_template_of_its_model() -> None:
    changes = {"epochs": 3, "images": 64, "learning_rate": 0.05, "gradient_clipping": 0.1}
    whole = configuration("horovod_config.yaml", "pytorch-ddp", **changes)
    del whole["model"]["precision"]
    own = ["epochs", "learning_rate", "gradient_clipping", "mixed_precision", "gradient_accumulation"]
    assert {*own} <= {*whole["settings"]}
    del whole["settings"]["steps"], whole["settings"]["checkpoint_every"]
    _acts("resnet", whole, own, "")


@pytest.mark.torch
def test_each_setting_of_the_horovod_document_acts_in_the_template_of_its_framework() -> None:
    whole = configuration("horovod_config.yaml", "pytorch-ddp", epochs=1, gradient_clipping=0.02, learning_rate=0.02)
    del whole["model"]["precision"], whole["settings"]["steps"], whole["settings"]["checkpoint_every"]
    short = {**whole, "batch_size": 64}
    others = [without(short, name) for name in ("learning_rate", "gradient_clipping", "mixed_precision")]
    (first, *rest), _said = trained(
        "horovod", [short, *others, {**short, "settings": short["settings"] | {"epochs": 2}}]
    )
    assert first not in rest
    assert len(rest[-1]) > 2 * len(first) - 1


@pytest.mark.torch
def test_how_data_is_shared_out_in_the_data_parallel_document_acts_in_a_template_of_its_model() -> None:
    whole = configuration("data_parallel.yaml", "pytorch-ddp", epochs=1, images=64)
    sharding = whole["data_sharding"]
    assert (sharding["method"], sharding["seed"], whole["num_workers"]) == ("random", 42, 4)
    whole |= {"num_workers": 0}
    others = [{**sharding, "seed": 0}, {**sharding, "seed": 7}, {**sharding, "method": "sequential"}]
    found, _said = trained("resnet", [whole, *({**whole, "data_sharding": other} for other in others)])
    assert len({tuple(losses) for losses in found}) == 4


@pytest.mark.torch
def test_each_setting_of_the_language_model_document_acts_in_its_template() -> None:
    changes = {"gradient_clipping": 0.1, "loss_scaling": True, "label_smoothing": 0.1, "warmup_steps": 2}
    whole = configuration("large_language_model_training.yaml", "pytorch-fsdp", **changes)
    own = ["gradient_clipping", "label_smoothing", "warmup_steps"]
    _acts("pytorch-fsdp", whole, own, "nothing comes of settings: communication_patterns, scope")
    # These change nothing but how a step is computed: neither the loss nor the gradients, but for rounding.
    same = [without(whole, name) for name in ("accumulation_steps", "loss_scaling")]
    (first, *rest), _said = trained("pytorch-fsdp", [whole, *same])
    assert all(losses == pytest.approx(first, abs=2e-5) for losses in rest)


def without(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**config, "settings": {key: value for key, value in config["settings"].items() if key != name}}


def _acts(template: str, whole: Mapping[str, Any], settings: Sequence[str], said: str) -> None:
    """Check that the losses are others without each of the settings, and which are said to be in vain."""
    (first, *rest), told = trained(template, [whole, *(without(whole, name) for name in settings)])
    in_vain = [name for name, losses in zip(settings, rest, strict=True) if losses == first]
    assert in_vain == []
    assert (said in told) if said else "nothing comes of settings" not in told


@pytest.mark.torch
@pytest.mark.parametrize("template", READING)
def test_each_setting_that_a_script_is_said_to_read_acts_and_no_other_does(template: str) -> None:
    reads = SCRIPTS[template].settings
    usual = {"warmup_steps": 1} | ({"epochs": 1, "images": 64} if template == "resnet" else {"steps": 4})
    sizes = TOY.model_dump(exclude_none=True, exclude={"precision"})
    base = {"batch_size": 16, "model": sizes, "settings": usual}
    changed = {name: {name: value} for name, value in VALUES.items()}
    changed["min_lr"]["scheduler"] = VALUES["scheduler"]
    changed["mixed_precision"]["mixed_precision"] = template != "vision"  # There it is so by itself.
    (first, *rest), said = trained(template, [base, *({**base, "settings": usual | more} for more in changed.values())])
    found = dict(zip(VALUES, rest, strict=True))
    acting = {name for name, losses in found.items() if losses != first}
    assert found["min_lr"] != found["scheduler"]
    assert acting - {*AS_BEFORE} == {name for name in VALUES if name in reads} - {*AS_BEFORE}
    if template != "resnet":  # It normalises each part of a batch by itself.
        assert all(found[name] == pytest.approx(first, abs=5e-3) for name in AS_BEFORE)
    told = {line.partition(": ")[2] for line in said.splitlines() if line.startswith("nothing comes of settings: ")}
    assert told == {name for name in VALUES if name not in reads}
    assert all(word in reads for name in reads.intersection(RECIPE) for word in RECIPE[name])


@pytest.mark.torch
def test_the_seed_0_of_a_sharding_is_a_seed() -> None:
    config = {"batch_size": 8, "settings": {"steps": 1}}
    seeds = [{**config, "data_sharding": {"seed": seed}} for seed in (None, 0, 1)]
    for template in ("vision", "horovod"):
        (without_one, zero, one), _said = trained(template, seeds)
        assert zero != one == without_one


WRONG = {
    "learning_rate": ("1e-3", "settings.learning_rate: '1e-3' is no number from 0 on"),
    "dropout": (1.5, "settings: label_smoothing and dropout are below 1, accumulation_steps is a whole number"),
    "warmup_steps": (-1, "settings.warmup_steps: -1 is no number from 0 on"),
    "accumulation_steps": (0, "settings.accumulation_steps: 0 is no number from 1 on"),
    "gradient_clipping": ("max", "settings.gradient_clipping: 'max' is no number from 0 on"),
}


def test_a_setting_that_is_no_number_is_refused_by_its_name_and_one_without_a_value_is_not_said() -> None:
    asked: list[dict[str, Any]] = [{name: wrong} for name, (wrong, _said) in WRONG.items()]
    asked.append(dict.fromkeys((*WRONG, "scheduler"), None))
    told = subprocess.run(
        [sys.executable, "-c", REFUSALS, json.dumps(asked)],
        cwd=ROOT / "examples" / "gpt",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(told.stdout) == [*(said for _wrong, said in WRONG.values()), ""]
