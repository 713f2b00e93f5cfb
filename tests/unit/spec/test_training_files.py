"""FlagScale experiments, DDP configurations and the files that trainers' own commands read, as jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dttui.spec import DocumentError
from dttui.spec.importing import Imported, merge, translate_file
from tests.unit.spec.imported import data

FLAGSCALE = """\
defaults:
  - _self_
  - train: 70b
experiment:
  exp_name: llama
  exp_dir: out/${experiment.exp_name}
  task:
    type: train
    backend: megatron
    entrypoint: ./flagscale/train/train_gpt.py
  runner:
    backend: torchrun
    nnodes: 4
    nproc_per_node: 8
    hostfile: ${hostfile??}
  envs:
    CUDA_DEVICE_MAX_CONNECTIONS: 1
    NAME: ${experiment.exp_name}
action: run
"""
TRAIN_PART = """\
system:
  tensor_model_parallel_size: 8
  sequence_parallel: True
  use_flash_attn: False
  precision: {bf16: True}
model: {num_layers: 80, hidden_size: 8192, micro_batch_size: 1}
data: {data_path: "${data_path:??}", split: [1, 2]}
"""
DDP = """\
distributed:
  backend: nccl
  init_method: tcp://192.168.1.10:23456
  world_size: 2
  rank: 0
nodes:
  - {name: b, rank: 1, ip: 192.168.1.11, gpus: [0, 1, 2, 3]}
  - {name: a, rank: 0, ip: 192.168.1.10, gpus: "0,1"}
"""
"""As in seed 004."""


def imported(text: str, name: str = "conf/train.yaml", beside: Mapping[str, str] | None = None) -> Imported:
    return merge([translate_file(text, name, (), (beside or {}).get)], "x")


def refused(text: str) -> str:
    with pytest.raises(DocumentError) as caught:
        imported(text)
    return str(caught.value)


def told(found: Imported) -> str:
    return "\n".join(f"{note.place}: {note.message}" for note in found.notes)


def test_an_experiment_of_flagscale_with_its_train_part() -> None:
    found = imported(FLAGSCALE, beside={"conf/train/70b.yaml": TRAIN_PART})
    job = data(found)
    assert (job["name"], job["framework"]) == ("llama", "megatron-lm")
    assert job["run"] == {
        "script": "flagscale/train/train_gpt.py",
        "args": ["--data-path", "<data_path>", "--split", "1", "2"],
        "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NAME": "llama"},
    }
    assert job["strategy"]["tensor_parallel_size"] == 8
    assert job["strategy"]["sequence_parallel"] is True
    assert job["model"] == {"layers": 80, "hidden_size": 8192, "precision": "bf16"}
    assert job["resources"]["gpu"]["count"] == 8
    text = told(found)
    assert "13:13: this says how many nodes, and not which: 4" in text
    assert "15:5: still to be given: <hostfile>" in text
    assert "placeholders: <data_path>" in text or "still to be given: <data_path>" in text


def test_without_its_train_part_the_arguments_are_missing() -> None:
    found = imported(FLAGSCALE)
    assert 'conf/train.yaml:3:5: not carried over: what "conf/train/70b.yaml" says, which is not there' in told(found)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "[a]", "{a: b}"])
def test_no_file_elsewhere_is_read_for_an_experiment(name: str) -> None:
    asked: list[str] = []
    text = FLAGSCALE.replace("train: 70b", f"train: {name}")
    merge([translate_file(text, "conf/train.yaml", (), lambda path: asked.append(path))], "x")
    assert not asked


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            FLAGSCALE.replace("type: train", "type: serve"),
            '8:5: experiment.task.type: this is a FlagScale experiment of the type "serve"',
        ),
        (
            FLAGSCALE.replace("entrypoint:", "entry:"),
            "7:3: experiment.task: this FlagScale experiment names no entrypoint",
        ),
        (TRAIN_PART, "1:1: this is the train part of a FlagScale experiment"),
        (FLAGSCALE.replace("nnodes: 4", "nnodes: -4"), "FlagScale: expected a number of nodes"),
    ],
)
def test_what_is_no_experiment_that_trains_is_refused(text: str, words: str) -> None:
    assert words in refused(text)


def test_nodes_of_a_ddp_configuration_come_by_their_ranks() -> None:
    found = imported(DDP)
    assert data(found) == {
        "name": "x",
        "framework": "pytorch-ddp",
        "cluster": {
            "nodes": [
                {"id": "a", "resources": {"gpu": {"count": 2}}},
                {"id": "b", "resources": {"gpu": {"count": 4}}},
            ]
        },
        "communication": {"protocol": "NCCL"},
    }
    assert "4:3: 2 are the nodes: their 6 GPUs make 6 ranks" in told(found)
    assert "the nodes have 6 GPUs, and the document says 5" in told(
        imported(DDP.replace("world_size: 2", "world_size: 5"))
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DDP.replace("backend: nccl", "backend: smoke"), "2:12: distributed.backend: expected one of nccl, gloo"),
        (DDP.replace("name: b, rank: 1, ip: 192.168.1.11", "rank: 1"), "7:5: nodes[0]: expected a node with a name"),
    ],
)
def test_mistakes_in_a_ddp_configuration_have_their_places(text: str, words: str) -> None:
    assert words in refused(text)


LLAMA_FACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
finetuning_type: lora
deepspeed: ds_z3.json
cutoff_len: 2048
bf16: true
"""
AXOLOTL = "base_model: NousResearch/Llama-3.2-1B\ndatasets: [{path: a}]\nsequence_len: 4096\nbf16: auto\n"
TUNE = """\
# tune run --nproc_per_node 2 lora_finetune_distributed --config llama3/8B_lora
model: {_component_: torchtune.models.llama3.lora_llama3_8b}
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer}
dtype: bf16
"""
LITGPT = """\
checkpoint_dir: checkpoints/a
out_dir: out
precision: bf16-true
devices: 2
lora_r: 8
data: {class_path: litgpt.data.Alpaca}
train: {global_batch_size: 8, save_interval: 200}
"""


@pytest.mark.parametrize(
    ("text", "command", "rest"),
    [
        (
            LLAMA_FACTORY,
            ["llamafactory-cli", "train", "a.yaml"],
            {"model": {"name": "meta-llama/Meta-Llama-3-8B-Instruct", "seq_length": 2048, "precision": "bf16"}},
        ),
        (AXOLOTL, ["axolotl", "train", "a.yaml"], {"model": {"name": "NousResearch/Llama-3.2-1B", "seq_length": 4096}}),
        (
            TUNE,
            ["tune", "run", "lora_finetune_distributed", "--config", "a.yaml"],
            {"resources": {"gpu": {"count": 2}}, "model": {"precision": "bf16"}},
        ),
        (
            LITGPT,
            ["litgpt", "finetune_lora", "--config", "a.yaml"],
            {"resources": {"gpu": {"count": 2}}, "model": {"precision": "bf16"}},
        ),
    ],
)
def test_a_file_of_a_trainer_is_given_to_its_command_once_a_node(
    text: str, command: list[str], rest: dict[str, Any]
) -> None:
    found = data(imported(text, "a.yaml"))
    run = found.pop("run")
    assert (run["command"], run["per"]) == (command, "node")
    assert {key: value for key, value in found.items() if key not in ("name", "framework")} == rest


def test_what_a_trainers_file_says_of_deepspeed_is_told() -> None:
    found = imported(LLAMA_FACTORY)
    assert "4:1: the program reads DeepSpeed's configuration itself" in told(found)
    assert data(found)["run"]["env"] == {"FORCE_TORCHRUN": "1"}


def test_a_file_of_torchtune_that_names_no_recipe_is_refused() -> None:
    assert "which does not say what recipe it is for" in refused(TUNE.partition("\n")[2])
