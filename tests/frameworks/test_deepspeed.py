"""DeepSpeed for real: jobs on the embedded cluster in each stage of ZeRO, and its own code reading dttui's files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from dttui.inventory.models import Inventory
from dttui.planning.planner import plan
from dttui.spec.deepspeed_keys import BATCH_KEYS, KNOWN_KEYS, OptimizerType, SchedulerType
from dttui.spec.importing import merge, translate_file
from dttui.spec.models import Communication, DataParallel, Model, PipelineParallel, Strategy
from tests.frameworks.launching import apply, example, slots
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.unit.seed_cluster import SEED, environment, make_job
from tests.unit.spec.test_dialect_import import DEEPSPEED as SEED_004

A, B, C = ONE, TWO, THREE = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
HERE = Path(__file__).parent


@pytest.mark.thorough
def test_the_example_trains_by_zero_2_on_unequal_nodes(
    tmp_path: Path, frameworks_python: Path, deepspeed_variables: dict[str, str], demo_root: Path
) -> None:
    job = example("deepspeed")
    job["run"]["args"] = ["--steps", "30", "--checkpoint-every", "15"]
    ended = apply(tmp_path, "deepspeed", job, frameworks_python, env=deepspeed_variables)
    losses = ended.losses()
    assert ended.result["world_size"] == 4
    assert list(losses) == list(range(1, 31))
    assert losses[30] < losses[1] - 2
    for name in (ONE, TWO, THREE):
        kept = ended.on_host(name, demo_root) / "checkpoints"
        assert {path.parent.name for path in kept.glob("*/COMPLETE")} == {"step-00000015", "step-00000030"}
    settings = json.loads((ended.on_host(THREE, demo_root) / "ds_config.json").read_text())
    assert [settings[key] for key in BATCH_KEYS] == [32, 4, 2]
    assert settings["zero_optimization"]["stage"] == 2


@pytest.mark.thorough
def test_zero_3_goes_on_from_its_checkpoint(
    tmp_path: Path, frameworks_python: Path, deepspeed_variables: dict[str, str]
) -> None:
    job = example("deepspeed")
    job["cluster"], job["strategy"]["zero_stage"] = slots({ONE: 1, TWO: 1}), 3
    job["strategy"]["data_parallel"]["batch_size"] = 16
    job["recovery"] = {"checkpoint": {"dir": str(tmp_path / "kept")}}
    losses: dict[int, float] = {}
    for name, steps in (("first", 8), ("second", 16)):
        (tmp_path / name).mkdir()
        job["run"]["args"] = ["--steps", str(steps), "--checkpoint-every", "8"]
        ended = apply(tmp_path / name, "deepspeed", job, frameworks_python, env=deepspeed_variables)
        assert min(ended.losses()) == len(losses) + 1
        losses |= ended.losses()
    assert list(losses) == list(range(1, 17))
    assert losses[16] < losses[1] - 1.5


def test_no_stage_changes_the_loss_which_is_that_of_ddp(
    tmp_path: Path, frameworks_python: Path, deepspeed_variables: dict[str, str]
) -> None:
    job = example("deepspeed")
    adam = {"type": "AdamW", "params": {"lr": 0.003}}
    job["framework_options"] = {"optimizer": adam, "gradient_clipping": 0, "config_for": "none"}
    job["strategy"] = {"data_parallel": {"batch_size": 8}, "zero_stage": 0}
    job["cluster"], job["run"] = slots({ONE: 1, TWO: 1}), {"script": "deepspeed_stages.py"}
    ended = apply(
        tmp_path, "deepspeed", job, frameworks_python, env=deepspeed_variables, more=[HERE / "deepspeed_stages.py"]
    )
    told = json.loads(ended.log(ONE, 0).split("losses ")[1].splitlines()[0])
    assert list(told) == ["ddp", "0", "1", "2", "3"]
    assert told["ddp"][-1] < told["ddp"][0] - 0.4
    for stage in "0123":
        assert told[stage] == pytest.approx(told["ddp"], abs=5e-5), stage


STEPS = 4
SMALL = {"allreduce": {"buffer_size": 80_004}}
SAID: dict[str, tuple[int, dict[str, Any]]] = {
    "bare": (1, {}),
    "buckets": (1, SMALL),
    "at_the_end": (1, {**SMALL, "overlap": False}),
    "overlap": (1, {**SMALL, "overlap": True}),
    "fp16": (1, {"compression": "fp16"}),
    "bf16": (1, {"compression": "bf16"}),
    "copies": (0, {}),
    "copies_bf16": (0, {"compression": "bf16"}),
    "shards": (3, {}),
    "shards_bf16": (3, {"compression": "bf16"}),
    "shards_at_the_end": (3, {"overlap": False}),
}
"""By name ZeRO's stage, and what the job says of `communication`."""


def test_gradients_are_reduced_when_and_as_the_job_says(
    tmp_path: Path, frameworks_python: Path, deepspeed_variables: dict[str, str]
) -> None:
    adam = {"type": "AdamW", "params": {"lr": 0.003}}
    options = {"optimizer": adam, "gradient_clipping": 0, "config_for": "none"}
    files = [HERE / "deepspeed_reductions.py"]
    hosts = Inventory(environments=(environment("a"), environment("b")))
    for name, (stage, talk) in SAID.items():
        strategy = Strategy(data_parallel=DataParallel(batch_size=8), zero_stage=stage)
        fields: dict[str, Any] = {"strategy": strategy, "communication": Communication.model_validate(talk)}
        made = plan(make_job("a", "b", framework="deepspeed", framework_options=options, **fields), hosts)
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(next(file.text for file in made.nodes[0].files if file.path == "ds_config.json"))
    job = example("deepspeed")
    job |= {"framework_options": options, "cluster": slots({ONE: 1, TWO: 1}), "run": {"script": files[0].name}}
    job |= {
        "strategy": {"data_parallel": {"batch_size": 8}, "zero_stage": 1},
        "communication": {**SMALL, "overlap": True, "compression": "bf16"},
    }
    variables = {**deepspeed_variables, "TORCH_FR_BUFFER_SIZE": "10000"}
    (tmp_path / "job").mkdir()
    ended = apply(tmp_path / "job", "deepspeed", job, frameworks_python, env=variables, more=files)
    told: dict[str, dict[str, Any]] = json.loads(ended.log(ONE, 0).split("told ")[1].splitlines()[0])
    sizes = {name: [len(step) for step in found["sent"]] for name, found in told.items()}
    kinds = {name: {kind for step in found["sent"] for _, kind in step} for name, found in told.items()}
    assert sizes["bare"] == [1] * STEPS
    assert told["bare"]["early"] == [0] * STEPS
    for name in ("buckets", "at_the_end", "overlap"):
        assert told[name]["bucket"] == 20_001
        assert min(sizes[name]) > 3
        assert told[name]["losses"] == pytest.approx(told["bare"]["losses"], abs=1e-5)
        assert told[name]["weights"] == pytest.approx(told["bare"]["weights"], rel=1e-4)
        assert told[name]["overlaps"] is (name == "overlap")
        assert all((count > 0) == (name == "overlap") for count in told[name]["early"]), "before the last gradient"
    assert (told["shards"]["overlaps"], told["shards_at_the_end"]["overlaps"]) == (True, False)
    assert told["shards_at_the_end"]["losses"] == pytest.approx(told["shards"]["losses"], abs=1e-5)
    for name, other in (("fp16", "bare"), ("bf16", "bare"), ("copies_bf16", "copies"), ("shards_bf16", "shards")):
        assert kinds[other] == {"Float"}
        assert kinds[name] == {"Half" if name == "fp16" else "BFloat16"}
        assert told[name]["losses"] == pytest.approx(told[other]["losses"], abs=5e-3)
        assert told[name]["losses"] != told[other]["losses"]
    assert kinds["own"] == {"BFloat16"}
    assert min(sizes["own"]) > 3
    assert min(told["own"]["early"]) > 0


def written(name: str, *keys: str, **fields: Any) -> str:
    """Return a file of the plan of a job on the seed's nodes."""
    made = plan(make_job(*keys, framework="deepspeed", **fields), SEED)
    assert made.errors == ()
    return next(file.text for file in made.nodes[-1].files if file.path == name)


def read_back(
    python: Path, directory: Path, configs: Sequence[tuple[str, int, int]] = (), hostfiles: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what DeepSpeed's own code makes of the texts of files."""

    def put(text: str) -> str:
        path = directory / str(len(list(directory.iterdir())))
        path.write_text(text)
        return str(path)

    wanted = {"configs": [[put(text), *sizes] for text, *sizes in configs], "hostfiles": [*map(put, hostfiles)]}
    done = subprocess.run(
        [str(python), str(HERE / "deepspeed_reader.py")],
        input=json.dumps(wanted),
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.rpartition("answer ")[2])
    return answer


def test_deepspeed_reads_what_is_written_at_the_world_size_of_the_job(tmp_path: Path, frameworks_python: Path) -> None:
    seed = merge([translate_file(SEED_004, "ds_config.json")], "x").job
    carried = {name: getattr(seed, name) for name in ("framework_options", "model")}
    strategy = seed.strategy.model_copy(update={"data_parallel": DataParallel(batch_size=70)})
    from_seed = written("ds_config.json", A, B, C, **carried, strategy=strategy)
    assert json.loads(from_seed)["distributed"] == json.loads(SEED_004)["distributed"] == {"world_size": 14, "nodes": 3}
    pipeline = Strategy(pipeline_parallel=PipelineParallel(micro_batch_size=2, pipeline_stages=2), zero_stage=1)
    offload = {"offload_optimizer": "nvme", "offload_param": "cpu", "nvme_path": "/nvme"}
    sequence = {"config": {"sequence_parallel_size": 2, "train_micro_batch_size_per_gpu": 3}}
    sgd = {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "scheduler": {"type": "OneCycle"}}
    texts = [
        (from_seed, 14, 14),
        (written("ds_config.json", A, strategy=pipeline, model=Model(precision="bf16")), 2, 1),
        (
            written(
                "ds_config.json",
                B,
                strategy=Strategy(zero_stage=3),
                framework_options=offload,
                communication=Communication(allreduce={"buffer_size": 4000}),
            ),
            4,
            4,
        ),
        (written("ds_config.json", B, framework_options=sequence), 4, 2),
        (
            written(
                "ds_config.json", C, strategy=Strategy(tensor_parallel_size=4, zero_stage=1), framework_options=sgd
            ),
            8,
            8,
        ),
    ]
    of_seed, of_pipeline, of_offload, of_sequence, of_sgd = read_back(frameworks_python, tmp_path, texts)["configs"]
    assert of_seed["world_size"] == 14
    assert of_seed["batches"] == [70, 5, 1]
    assert (of_seed["stage"], of_seed["offload"], of_seed["precision"]) == (2, ["cpu", "none"], [True, False])
    assert of_seed["optimizer"] == ["adamw", {"lr": 0.0001}]
    assert of_pipeline["batches"] == [16, 2, 8]
    assert (of_pipeline["precision"], of_pipeline["clipping"]) == ([False, True], 1.0)
    assert of_offload["batches"] == [4, 1, 1]
    assert (of_offload["stage"], of_offload["offload"]) == (3, ["nvme", "cpu"])
    assert of_offload["buckets"] == [1000, 500_000_000]
    assert of_sequence["batches"] == [6, 3, 1]
    assert (of_sgd["optimizer"], of_sgd["scheduler"], of_sgd["untested"]) == (["SGD", {"lr": 0.1}], "OneCycle", True)
    assert (of_sgd["autotp"], of_sgd["batches"]) == (4, [8, 1, 1])


def test_deepspeeds_launcher_reads_the_hostfile(tmp_path: Path, frameworks_python: Path) -> None:
    text = written("hostfile", A, B, C, framework_options={"config": {"train_batch_size": 14}})
    answer = read_back(frameworks_python, tmp_path, hostfiles=[text])
    assert answer["hostfiles"] == [[["192.168.1.10", 2], ["192.168.2.20", 4], ["192.168.3.30", 8]]]


def test_the_keys_and_names_that_are_known_here_are_deepspeeds(tmp_path: Path, frameworks_python: Path) -> None:
    text = written("ds_config.json", A, framework_options={"config": {"train_batch_size": 2}})
    answer = read_back(frameworks_python, tmp_path, [(text, 2, 2)])
    asked = set(answer["asked"]) - {"bfloat16"}  # what bf16 was called
    elsewhere = {"data_parallel_size", "optimizer", "scheduler"}  # in deepspeed.initialize, and through keys()
    assert asked | elsewhere == set(KNOWN_KEYS)
    theirs = {name.casefold() for name in answer["optimizers"]}
    assert {name.casefold() for name in get_args(OptimizerType)} <= theirs
    assert set(get_args(SchedulerType)) == set(answer["schedules"])
