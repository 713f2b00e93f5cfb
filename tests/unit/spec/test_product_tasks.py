"""Tasks of SkyPilot and dstack, and torchx's configuration, as jobs."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from dttui.spec import DocumentError
from dttui.spec.importing import Imported, merge, translate_file
from tests.unit.spec.imported import data, keys

SKY = """\
name: train
resources:
  accelerators: A100-80GB:8
  cpus: 32+
num_nodes: 2
workdir: .
envs:
  LR: 3e-4
  WANDB_API_KEY:
setup: |
  pip install torch
run: |
  cd src
  MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
  torchrun --nnodes=$SKYPILOT_NUM_NODES \\
    --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE \\
    --node_rank=$SKYPILOT_NODE_RANK --master_addr=$MASTER_ADDR --master_port=8008 \\
    train.py --lr $LR
"""
DSTACK = """\
type: task
nodes: 2
image: pytorch/pytorch
working_dir: /work
env:
  - NCCL_DEBUG=INFO
  - HF_TOKEN
commands:
  - pip install -r requirements.txt
  - cd examples
  - torchrun --nproc-per-node=$DSTACK_GPUS_PER_NODE --nnodes=$DSTACK_NODES_NUM
      --node-rank=$DSTACK_NODE_RANK --master-addr=$DSTACK_MASTER_NODE_IP
      train.py --world $DSTACK_GPUS_NUM ${{ run.args }}
resources:
  gpu: A100:80GB:8
  cpu: 16..
"""
TORCHX = """\
# of the project
[cli:run]
component=dist.ddp
scheduler=slurm

[component:dist.ddp]
j=2x8
script=train.py
env=A=1
max_retries=3
"""


def imported(text: str, name: str = "f", *arguments: str) -> Imported:
    return merge([translate_file(text, name, arguments)], "x")


def refused(text: str, name: str = "f") -> str:
    with pytest.raises(DocumentError) as caught:
        imported(text, name)
    return str(caught.value)


def told(found: Imported) -> str:
    return "\n".join(f"{note.place}: {note.message}" for note in found.notes)


def gpu(text: str) -> Any:
    return data(imported(text)).get("resources", {}).get("gpu")


def test_a_skypilot_task_is_followed_as_on_its_first_node() -> None:
    found = imported(SKY)
    assert data(found) == {
        "name": "train",
        "framework": "pytorch-ddp",
        "run": {
            "script": "train.py",
            "workdir": "src",
            "args": ["--lr", "3e-4"],
            "env": {"LR": "3e-4"},
            "secrets": ["WANDB_API_KEY"],
        },
        "resources": {"gpu": {"count": 8, "type": "A100", "memory": "80GB"}, "cpu": {"cores": 32}},
    }
    assert keys(found) == {"num_nodes": 5, "setup": 10, "run.--master-port": 17}


def test_notes_on_a_script_show_its_line_of_the_whole_file() -> None:
    note = next(note for note in imported(SKY).notes if note.subject == "run.--master-port")
    assert note.place is not None
    assert note.place.source_line.strip().startswith("--node_rank=$SKYPILOT_NODE_RANK")
    assert note.place.source_line[note.place.column - 1 :].startswith("--master_port")


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("{accelerators: L4}", {"count": 1, "type": "L4"}),
        ("{accelerators: 'L4:2'}", {"count": 2, "type": "L4"}),
        ("{accelerators: {H100: 8}}", {"count": 8, "type": "H100"}),
        ("{accelerators: [H100:8, A100:8]}", {"count": 8, "type": "H100"}),
        ("{accelerators: 'V100:0.5'}", {"count": 1, "type": "V100"}),
        ("{any_of: [{accelerators: 'T4:4'}, {cloud: aws}]}", {"count": 4, "type": "T4"}),
        ("{cpus: 4}", {"count": 0}),
    ],
)
def test_accelerators_of_a_skypilot_task(resources: str, expected: dict[str, Any]) -> None:
    assert gpu(f"resources: {resources}\nrun: accelerate launch train.py") == expected


def test_what_differs_by_the_rank_of_a_node_is_told() -> None:
    text = "num_nodes: 2\nrun: torchrun --nproc_per_node 1 train.py --node $SKYPILOT_NODE_RANK"
    assert "this differs from node to node by SKYPILOT_NODE_RANK" in told(imported(text))
    assert "this differs" not in told(imported(text.replace("num_nodes: 2", "num_nodes: 1")))


def test_addresses_that_only_skypilot_knows_are_no_arguments() -> None:
    found = imported('num_nodes: 2\nrun: torchrun train.py --head "$(echo "$SKYPILOT_NODE_IPS" | head -n1)"')
    assert data(found)["run"]["args"] == ["--head", "MASTER_ADDR"]
    assert "addresses of nodes, which are known only when the job runs" in told(found)


def test_one_process_that_sees_several_gpus_is_started_once_a_node() -> None:
    found = data(imported("resources: {accelerators: 'A100:4'}\nrun: python train.py --devices 4"))
    assert found["framework"] == "command"
    assert found["run"] == {"command": ["${PYTHON}", "train.py", "--devices", "4"], "per": "node"}
    assert found["resources"]["gpu"]["count"] == 4


def test_a_launcher_on_the_first_node_alone_reaches_all() -> None:
    text = """\
    num_nodes: 2
    resources: {accelerators: "A100:8"}
    run: |
      if [ "${SKYPILOT_NODE_RANK}" == "0" ]; then
        deepspeed --hostfile /tmp/hosts train.py
      fi
    """
    found = imported(dedent(text))
    assert data(found)["framework"] == "deepspeed"
    assert data(found)["resources"]["gpu"]["count"] == 8
    assert "this says how many nodes, and not which: 2" in told(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("setup: pip install x\nresources: {cpus: 1}", "1:1: run: this task runs nothing"),
        ("setup: x\nrun: [a]\n", "2:1: run: this task runs nothing"),
        ("num_nodes: many\nrun: torchrun a.py", '1:12: num_nodes: expected a number of nodes, found "many"'),
        ("num_nodes: 0\nrun: torchrun a.py", "1:12: num_nodes: expected a number of nodes, found 0"),
        ("resources: {accelerators: 8}\nrun: torchrun a.py", "expected accelerators such as A100:8, found 8"),
        ("envs: [A]\nrun: torchrun a.py", "1:7: envs: expected a mapping of keys to values, found a list"),
        ("num_nodes: 1\nrun: |\n  ls\n  exit 3", "4:3: run: SkyPilot: the script ends here, with exit code 3"),
        ("num_nodes: 1\nrun: mpirun -np 2 ./train", '"./train" is no program in Python'),
        ("service: {replicas: 1}\nrun: python serve.py", "this is a SkyPilot service"),
    ],
)
def test_mistakes_in_a_skypilot_task_have_their_places(text: str, words: str) -> None:
    assert words in refused(text)


def test_of_several_documents_the_task_is_taken() -> None:
    found = imported(
        "name: pipeline\n---\nnum_nodes: 1\nrun: torchrun a.py\n---\nname: b\nnum_nodes: 1\nrun: python b.py\n"
    )
    assert data(found)["run"]["script"] == "a.py"
    assert "6:1: not carried over: the document that begins in line 6, a SkyPilot task" in told(found)


def test_values_of_secrets_are_shown_nowhere() -> None:
    text = (
        'secrets: {KEY: aaa}\nenvs:\n  HF_TOKEN: hf_secret\nrun: |\n  export WANDB_API_KEY="bbb"\n  torchrun train.py\n'
    )
    found = imported(text)
    assert set(data(found)["run"]["secrets"]) == {"KEY", "HF_TOKEN", "WANDB_API_KEY"}
    shown = "\n".join(note.model_dump_json() for note in found.notes)
    assert not any(value in shown for value in ("aaa", "hf_secret", "bbb"))


def test_a_dstack_task_is_followed_as_on_its_first_node() -> None:
    found = imported(DSTACK, "f", "RUN_ARGS=--epochs 2")
    assert data(found) == {
        "name": "train",
        "framework": "pytorch-ddp",
        "run": {
            "script": "train.py",
            "workdir": "/work/examples",
            "args": ["--world", "16", "--epochs", "2"],
            "env": {"NCCL_DEBUG": "INFO"},
            "secrets": ["HF_TOKEN"],
        },
        "resources": {"gpu": {"count": 8, "type": "A100", "memory": "80GB"}, "cpu": {"cores": 16}},
    }
    assert keys(found) == {"nodes": 2, "image": 3, "commands.program": 11}


def test_what_dstack_is_given_at_the_call_is_still_to_be_given() -> None:
    assert "still to be given: $RUN_ARGS" in told(imported(DSTACK))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("24GB", {"count": 1, "memory": "24GB"}),
        ("16GB..24GB", {"count": 1, "memory": "16GB"}),
        ("A100", {"count": 1, "type": "A100"}),
        ("A100:4", {"count": 4, "type": "A100"}),
        ("'nvidia:A100,H100:80GB:8'", {"count": 8, "type": "A100", "memory": "80GB"}),
        ("4", {"count": 4}),
        ("2..4", {"count": 2}),
        ("1..", {"count": 1}),
        ("40GB..:2", {"count": 2, "memory": "40GB"}),
        ("{name: [A100, H100], count: 2}", {"count": 2, "type": "A100"}),
        ("{memory: 24GB.., count: {min: 2, max: 4}}", {"count": 2, "memory": "24GB"}),
        ("null", {"count": 0}),
    ],
)
def test_gpus_of_a_dstack_task_in_all_spellings(asked: str, expected: dict[str, Any]) -> None:
    text = f"type: task\ncommands: [accelerate launch train.py]\nresources: {{gpu: {asked}}}"
    assert gpu(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "type: service\ncommands: [vllm serve]",
            "1:1: type: this is a dstack configuration of another type than task",
        ),
        ("type: dev-environment\nide: vscode", "this is a dstack configuration of another type"),
        ("type: task\nimage: x", "what this task starts is not said here, but by its image"),
        ("type: task\nnodes: -1\ncommands: [a]", "2:8: nodes: expected a number of nodes"),
        ("type: task\ncommands: [torchrun a.py]\nresources: {gpu: [1]}", "3:18: resources.gpu: expected GPUs such as"),
        ("type: task\ncommands:\n  - ls\n  - nvidia-smi", "dstack: nothing in it starts training"),
    ],
)
def test_what_is_no_dstack_task_that_trains_is_refused(text: str, words: str) -> None:
    assert words in refused(text)


def test_torchx_finds_its_component_in_its_configuration() -> None:
    found = imported(TORCHX, ".torchxconfig")
    assert data(found) == {
        "name": "train",
        "framework": "pytorch-ddp",
        "run": {"script": "train.py", "env": {"A": "1"}},
        "resources": {"gpu": {"count": 8}},
    }
    assert keys(found) == {"cli:run": 2, "component.-j": 7, "component.--max_retries": 10}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[slurm]\npartition=a\n", "1:1: this configuration of torchx has options of schedulers alone"),
        ("[cli:run]\ncomponent=my/file.py:fn\n", '2:1: cli:run.component: the component "my/file.py:fn" is a function'),
        ("[cli:run]\ncomponent=utils.echo\n", 'the component "utils.echo" is no component of torchx\'s dist'),
        ("[component:dist.ddp]\nj=1x2\n", "1:1: component:dist.ddp: the component dist.ddp names no script here"),
        ("[component:dist.ddp]\nscript\n", '2:1: expected [SECTION] or KEY = VALUE, found "script"'),
    ],
)
def test_a_configuration_of_torchx_without_a_script_is_refused(text: str, words: str) -> None:
    assert words in refused(text, ".torchxconfig")
