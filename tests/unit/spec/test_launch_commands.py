"""Command lines of launchers as jobs: one within another, behind what people put before them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from dttui.spec import DocumentError
from dttui.spec.findings import Severity
from dttui.spec.importing import Imported, merge, translate_file, with_files
from tests.unit.spec.imported import data

GPUS = {"resources": {"gpu": {"count": 4}}}


def script(text: str, *arguments: str, files: dict[str, str] | None = None) -> Imported:
    read = (files or {}).get
    part = translate_file(text, "run.sh", arguments, read)
    return merge(with_files(part, read), "run")


def job(line: str, *arguments: str, files: dict[str, str] | None = None) -> dict[str, Any]:
    return data(script(line, *arguments, files=files))


def warnings(imported: Imported) -> list[str]:
    return [note.message for note in imported.notes if note.severity is Severity.WARNING]


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc_per_node 4 t.py --a 1",
        "nohup torchrun --nproc-per-node=4 t.py --a 1 > log 2>&1 &",
        "uv run --with x torchrun --nproc-per-node=4 t.py --a 1",
        "conda run -n e --no-capture-output python -m torch.distributed.run --nproc_per_node 4 t.py --a 1",
        "timeout 3h nice -n 5 stdbuf -oL time torchrun --nproc-per-node 4 t.py --a 1 | tee log",
        "sudo -E env -u B torchrun --nproc-per-node 4 t.py --a 1",
        "exec torchrun --nproc-per-node 4 t.py -- --a 1",
        "$ torchrun \\\n    --nproc-per-node 4 \\\n    t.py \\\n    --a 1",
        "python3 -u -m torch.distributed.launch --use-env --nproc_per_node=4 t.py --a 1",
        "accelerate launch --num_processes 4 t.py --a 1",
        "accelerate launch --multi_gpu --num_machines 1 --num_processes=4 --machine_rank 0 t.py --a 1",
        "composer -n 4 t.py --a 1",
        "colossalai run --nproc_per_node 4 --master_port 1 t.py --a 1",
        "torchx run -s local_cwd dist.ddp -j 1x4 --script t.py -- --a 1",
        "fabric run --devices=4 t.py --a 1",
        "mpirun -np 4 --allow-run-as-root -x PATH python t.py --a 1",
        "mpiexec -n 4 -ppn 4 python -u t.py --a 1",
        "srun -n 4 --gres=gpu:4 python t.py --a 1",
        "srun --ntasks=1 bash -c 'cd . && torchrun --nproc_per_node=4 t.py --a 1'",
        'N=4\nCMD="torchrun --nproc_per_node $N t.py"\neval $CMD --a 1',
        'go() { torchrun --nproc_per_node "$1" t.py "${@:2}"; }\ngo 4 --a 1',
    ],
)
def test_launchers_of_one_node_say_the_same(line: str) -> None:
    made = job(line)
    assert made == {"name": "t", "framework": "pytorch-ddp", "run": {"script": "t.py", "args": ["--a", "1"]}, **GPUS}


def test_a_command_needs_no_dataset_of_the_catalogue() -> None:
    assert script("torchrun t.py --data /d").job.dataset == "none"


def test_what_stays_before_the_program_is_its_prefix() -> None:
    made = job("numactl -N 0 --membind=0 torchrun --nproc-per-node 4 t.py")
    assert made["run"] == {"script": "t.py", "prefix": ["numactl", "-N", "0", "--membind=0"]}
    made = job("bash ./bind.sh --cpu=exclusive -- python t.py")
    assert made["run"] == {"script": "t.py", "prefix": ["bash", "./bind.sh", "--cpu=exclusive", "--"]}


def test_deepspeed_keeps_the_script_s_own_configuration() -> None:
    made = job("deepspeed --include localhost:0,2 --master_port 5 t.py --deepspeed ds.json")
    assert made == {
        "name": "t",
        "framework": "deepspeed",
        "framework_options": {"config_for": "none"},
        "run": {"script": "t.py", "args": ["--deepspeed", "ds.json"]},
        "resources": {"gpu": {"ids": [0, 2]}},
    }
    files = {"hosts": "a slots=8\nb slots=8\n"}
    made = job("deepspeed --hostfile hosts t.py", files=files)
    assert [node["id"] for node in made["cluster"]["nodes"]] == ["a", "b"]
    assert "which is not there" in warnings(script("deepspeed --hostfile hosts t.py"))[0]


@pytest.mark.parametrize(
    ("line", "gpu", "env"),
    [
        ("CUDA_VISIBLE_DEVICES=3,1 torchrun --nproc-per-node 2 t.py", {"ids": [3, 1]}, {}),
        ("CUDA_VISIBLE_DEVICES=2 python t.py", {"ids": [2]}, {}),
        ("CUDA_VISIBLE_DEVICES=3,1 torchrun --nproc-per-node 1 t.py", {"count": 1}, {"CUDA_VISIBLE_DEVICES": "3,1"}),
        ("CUDA_VISIBLE_DEVICES=1,1 torchrun --nproc-per-node 2 t.py", {"count": 2}, {"CUDA_VISIBLE_DEVICES": "1,1"}),
        (
            "CUDA_VISIBLE_DEVICES=3,1 torchrun --nnodes 2 --nproc-per-node 2 t.py",
            {"count": 2},
            {"CUDA_VISIBLE_DEVICES": "3,1"},
        ),
        (
            "CUDA_VISIBLE_DEVICES=GPU-8932f937,GPU-1 torchrun --nproc-per-node 2 t.py",
            {"count": 2},
            {"CUDA_VISIBLE_DEVICES": "GPU-8932f937,GPU-1"},
        ),
    ],
)
def test_gpus_that_are_shown_to_one_node_are_those_that_it_names_where_each_has_a_process(
    line: str, gpu: dict[str, Any], env: dict[str, str]
) -> None:
    made = job(line)
    assert (made["resources"]["gpu"], made["run"].get("env", {})) == (gpu, env)


ZERO3 = """\
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3, gradient_accumulation_steps: 4}
mixed_precision: fp16
num_machines: 2
num_processes: 16
"""


def test_accelerate_s_options_come_before_its_configuration_and_ranks_are_told_both() -> None:
    line = "PYTHONPATH=src accelerate launch --config_file z.yaml --mixed_precision bf16 t.py --a 1"
    imported = script(line, files={"z.yaml": ZERO3})
    made = data(imported)
    assert made["run"]["env"] == {
        "PYTHONPATH": "src:.",
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4",
    }
    assert (made["framework"], made["framework_options"]["config_for"]) == ("deepspeed", "accelerate")
    assert (made["model"], made["strategy"], made["resources"]) == (
        {"precision": "bf16"},
        {"zero_stage": 3},
        {"gpu": {"count": 8}},
    )
    assert warnings(imported) == ["this says how many nodes, and not which: 2"]
    alone = script(line)
    assert any('what "z.yaml" says, which is not there' in message for message in warnings(alone))
    with pytest.raises(DocumentError, match="no configuration of accelerate"):
        script(line, files={"z.yaml": "- 1"})


def test_horovod_and_mpi_name_their_hosts() -> None:
    nodes = [{"id": name, "resources": {"gpu": {"count": 4}}} for name in ("a", "b")]
    made = job("horovodrun -np 8 -H a:4,b:4 --network-interface eth0 python t.py")
    assert made == {"name": "t", "framework": "horovod", "run": {"script": "t.py"}, "cluster": {"nodes": nodes}}
    made = job("mpirun -np 8 -H a:4,b:4 -bind-to none -mca btl ^openib -x NCCL_DEBUG=INFO python t.py")
    assert (made["cluster"]["nodes"], made["run"]["env"]) == (nodes, {"NCCL_DEBUG": "INFO"})


@pytest.mark.parametrize(
    ("line", "command", "count"),
    [
        ("FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 MASTER_ADDR=a llamafactory-cli train x.yaml", 3, None),
        ("CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift sft --model m", 4, 2),
        ("axolotl train x.yaml --launcher torchrun -- --nproc_per_node=8 --rdzv_id 1", 5, 8),
        ("tune run --nnodes 1 --nproc_per_node 4 lora --config c", 7, 4),
        ("conda run -n neox python deepy.py train.py c.yml", 4, None),
    ],
)
def test_what_starts_its_own_ranks_is_started_once_a_node(line: str, command: int, count: int | None) -> None:
    imported = script(line)
    run = data(imported)["run"]
    assert (data(imported)["framework"], run["per"], len(run["command"])) == ("command", "node", command)
    assert not {"NNODES", "NODE_RANK", "MASTER_ADDR", "NPROC_PER_NODE"} & set(run.get("env", {}))
    gpu = imported.job.resources.gpu
    assert (gpu.number if gpu is not None else None) == count
    if "NNODES=2" in line:
        assert "this says how many nodes, and not which: 2" in warnings(imported)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ("--accelerator gpu --devices 4", 4),
        ("--gpus=0,1", 2),
        ("trainer.devices=[0,1,2]", 3),
        ("--devices -1", None),
        ("--multiprocessing-distributed --world-size 1 --rank 0", None),
    ],
)
def test_a_script_that_is_told_of_several_gpus_is_started_once_a_node(arguments: str, count: int | None) -> None:
    imported = script(f"python t.py {arguments}")
    made = data(imported)
    assert made["run"] == {"command": ["${PYTHON}", "t.py", *arguments.split()], "per": "node"}
    assert (made["framework"], made["name"]) == ("command", "t")
    assert made.get("resources") == (None if count is None else {"gpu": {"count": count}})


@pytest.mark.parametrize(
    "line", ["python t.py --devices 1", "python t.py --gpus x", "torchrun --nproc_per_node 4 t.py --devices 4"]
)
def test_a_script_of_one_gpu_or_with_a_launcher_is_started_once_a_gpu(line: str) -> None:
    assert data(script(line))["run"]["script"] == "t.py"


def test_a_job_is_called_after_the_file_that_a_setting_names() -> None:
    assert data(script("yolo detect train data=coco8.yaml epochs=2"))["name"] == "coco8"


SBATCH = """\
#!/bin/bash
#SBATCH --job-name=big
#SBATCH -N 2 --ntasks-per-node=1
#SBATCH --gres=gpu:a100:8   # each
# SBATCH --nodes=9
export NCCL_DEBUG=WARN HF_TOKEN=abc MASTER_PORT=1
head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
ARGS=(--lr 1e-4 --acc $((64 / SLURM_NNODES / SLURM_GPUS_ON_NODE)))
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE --rdzv_endpoint $head:1 t.py "${ARGS[@]}" "$@"
#SBATCH --nodes=7
"""


def test_a_script_for_slurm_with_its_directives_and_variables() -> None:
    imported = script(SBATCH)
    assert data(imported) == {
        "name": "big",
        "framework": "pytorch-ddp",
        "run": {
            "script": "t.py",
            "args": ["--lr", "1e-4", "--acc", "4"],
            "env": {"NCCL_DEBUG": "WARN"},
            "secrets": ["HF_TOKEN"],
        },
        "resources": {"gpu": {"count": 8, "type": "A100"}},
    }
    assert "this says how many nodes, and not which: 2" in warnings(imported)
    assert {note.place.line for note in imported.notes if note.place} <= {3, 6, 9}
    assert "abc" not in str(imported)


def test_arguments_and_variables_of_a_script_come_after_dashes() -> None:
    text = 'G=$1; shift\ntorchrun --nproc_per_node=${GPUS:-$G} t.py --data $DATA "$@"\n'
    made = job(text, "GPUS=2", "DATA=/d", "4", "--x", "a b")
    assert made["run"]["args"] == ["--data", "/d", "--x", "a b"]
    assert made["resources"]["gpu"]["count"] == 2
    imported = script(text)
    assert any("still to be given: $DATA" in message for message in warnings(imported))


def test_megatron_s_degrees_become_the_job_s() -> None:
    made = job(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "
        "--sequence-parallel --bf16 --num-layers 32 --hidden-size 4096 --global-batch-size=64 --lr 1e-4 --mock-data"
    )
    assert made["framework"] == "megatron-lm"
    assert made["run"]["args"] == ["--lr", "1e-4", "--mock-data"]
    assert made["strategy"] == {
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 2,
        "sequence_parallel": True,
        "data_parallel": {"batch_size": 64},
    }
    assert made["model"] == {"layers": 32, "hidden_size": 4096, "precision": "bf16"}


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        (
            "set -e\nif [ -z $1 ]; then echo usage; exit 2; fi\ntorchrun t.py",
            'exit code 2, before it starts anything: "usage"',
            2,
        ),
        ("sbatch -N 2 other.sh", 'only submits another script: "other.sh"', 1),
        ("cd x\nbash tools/run.sh a 8", 'another script, which is not here: "tools/run.sh"', 2),
        ("pip install x\nmkdir y", "nothing in it starts training", 1),
        ('echo a\ntorchrun "t.py\n', "cannot be read", 2),
        ("#!/usr/bin/env zsh\ntorchrun t.py", "a script for zsh", 1),
        ("\ntorchrun --nodes 2 t.py", "torchrun has no option --nodes", 2),
        ("torchrun --nproc_per_node 8", "there is no script", 1),
        ("mpirun -np 4 a : -np 2 b", "several programs in one job", 1),
        ("srun -N 2", "no program that srun starts", 1),
        ("mpirun -np <N> python t.py", "this is a template", 1),
        ("torchrun a.py\ntorchrun b.py\ndeepspeed c.py", "it starts 3 programs one after another", 1),
        ("for i in {1..999}; do for j in {1..99}; do :; done; done\ntorchrun a.py", "more than is followed", None),
        ("torchrun $SCRIPT", "what is to be started is not known", 1),
    ],
)
def test_what_is_no_job_is_told_with_its_place(text: str, words: str, line: int | None) -> None:
    with pytest.raises(DocumentError) as caught:
        script(text)
    (problem,) = caught.value.problems
    assert words in problem.message
    assert problem.line == line


def test_what_else_a_script_does_is_told_with_its_line() -> None:
    text = (
        "source venv/bin/activate\nmodule load cuda\npython prepare.py\npython -m vllm.server &\n"
        "cat > ds.json <<EOF\n{}\nEOF\ncd sub\ntorchrun t.py --deepspeed ds.json ~/x\ntorchrun test.py\n"
    )
    imported = script(text)
    told = " | ".join(note.message for note in imported.notes)
    for words in (
        'line 1 reads commands from "venv/bin/activate"',
        'line 2: "module load cuda"',
        'line 3 starts "prepare.py" besides',
        "line 4 starts",
        'line 5 writes "ds.json"',
        'line 10 starts "test.py" besides',
        "each host has its own ~",
    ):
        assert words in told, words
    assert data(imported)["run"]["workdir"] == "./sub"
    assert data(imported)["framework"] == "deepspeed"


@pytest.mark.parametrize(
    ("text", "arguments", "wanted"),
    [
        ('E=(--r x)\ntorchrun t.py "${E[@]+"${E[@]}"}" ${E[@]+"${E[@]}"}', (), ["--r", "x", "--r", "x"]),
        ('E=()\ntorchrun t.py "${E[@]+"${E[@]}"}" --z', (), ["--z"]),
        (
            "read -r -d '' c <<EOT\npython t.py --n=\\$SLURM_NNODES\nEOT\nsrun -N 2 bash -c \"$c\"",
            (),
            ["--n=$SLURM_NNODES"],
        ),
        (
            'while getopts "n:r" o; do :; done\nshift $((OPTIND-1))\ntorchrun t.py --x "$@"',
            ("-n", "2", "--", "--f"),
            ["--x", "--f"],
        ),
        ('D="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"\ntorchrun t.py $D/a', (), ["./../a"]),
        ('go() { torchrun t.py "$@"; }\ntime go --a', (), ["--a"]),
        ("torchrun t.py --lr 1 `# the rate` \\\n --bs 8", (), ["--lr", "1", "--bs", "8"]),
    ],
)  # fmt: skip
def test_idioms_of_scripts_keep_their_arguments(text: str, arguments: tuple[str, ...], wanted: list[str]) -> None:
    assert job(text, *arguments)["run"].get("args", []) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "set -a; source .env; set +a\ntorchrun t.py",
        "set -o allexport\n. .env\ntorchrun t.py",
        "export $(grep -v '^#' .env | xargs)\ntorchrun t.py",
        "export $(cat .env | xargs)\ntorchrun t.py",
    ],
)
def test_variables_of_a_file_are_those_of_the_ranks(text: str) -> None:
    run = job(text, files={".env": "# mine\nWANDB_PROJECT=p\nHF_TOKEN=abc\n"})["run"]
    if "cat" in text:  # Its comment goes in as words, which name nothing.
        assert run["env"] == {"WANDB_PROJECT": "p"}
    assert (run["env"], run["secrets"]) == ({"WANDB_PROJECT": "p"}, ["HF_TOKEN"])


def test_what_happens_inside_and_what_only_a_host_decides_is_told() -> None:
    imported = script(
        "pip install x\nif nvidia-smi | grep -q H100; then torchrun t.py --bs 32; else torchrun t.py --bs 8; fi"
    )
    told = " | ".join(note.message for note in imported.notes)
    assert '"pip install" in line 1' in told
    assert "only a host decides, in lines 2" in told
    imported = script("srun bash -c 'module load cuda; source env.sh; torchrun t.py'")
    told = " | ".join(note.message for note in imported.notes)
    assert '"module load cuda"' in told
    assert '"env.sh"' in told


def test_a_script_of_horovod_s_under_mpi_and_the_environment_that_each_mpi_hands_on() -> None:
    files = {"t.py": "import torch\nimport horovod.torch as hvd\n"}
    assert job("mpirun -np 2 python t.py", files=files)["framework"] == "horovod"
    made = job("mpiexec -n 16 -ppn 4 -env OMP_NUM_THREADS 8 -genv NCCL_DEBUG INFO python3 t.py")
    assert made["run"] == {"script": "t.py", "env": {"OMP_NUM_THREADS": "8", "NCCL_DEBUG": "INFO"}}
    files = {"./a.sh": 'exec "$@"'}
    made = job("mpiexec -n 16 --ppn 4 --env OMP_NUM_THREADS=8 ./a.sh python3 t.py", files=files)
    assert made["run"] == {"script": "t.py", "env": {"OMP_NUM_THREADS": "8"}}


def test_gpus_that_are_counted_by_a_variable_that_nobody_sets_are_all_of_a_host() -> None:
    made = job("IFS=',' read -ra G <<< \"$CUDA_VISIBLE_DEVICES\"\ntorchrun --nproc_per_node ${#G[@]} t.py")
    assert "resources" not in made


@pytest.mark.parametrize(
    ("line", "count", "nodes"),
    [
        ("srun -n 16 --gpus-per-node=8 python t.py", 8, 2),
        ("#SBATCH --ntasks=16 --gpus-per-task=1 --nodes=2\nsrun python t.py", 8, 2),
        ("#SBATCH --gpus=16\n#SBATCH --nodes=2\nsrun torchrun --nproc_per_node $SLURM_GPUS_ON_NODE t.py", 8, 2),
        ("#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-task=1\nsrun python t.py", 4, 2),
        ("srun -K -n 2 torchrun --nproc_per_node 8 --nnodes 2 t.py", 8, 2),
        ("accelerate launch --same_network -t 3 --num_processes 8 t.py", 8, 1),
        ("deepspeed --elastic_training --num_gpus 8 t.py", 8, 1),
        ("horovodrun -np 4 -H localhost:4 python t.py", 4, 1),
        ("N=8; f() { local N=2; }; f; torchrun --nproc_per_node $N t.py", 8, 1),
        ("(cd data; exit 0)\ntorchrun --nproc_per_node 8 t.py", 8, 1),
    ],
)
def test_ranks_are_as_many_as_the_scheduler_would_start(line: str, count: int, nodes: int) -> None:
    imported = script(line)
    assert (imported.job.run and imported.job.run.script) == "t.py"
    gpu = imported.job.resources.gpu
    assert (gpu.number if gpu is not None else None) == count
    told = [message for message in warnings(imported) if "how many nodes" in message]
    assert told == ([f"this says how many nodes, and not which: {nodes}"] if nodes > 1 else [])


@pytest.mark.parametrize(
    "text",
    [
        "OPTIND=x\ngetopts a: o -a 1\ntorchrun t.py",
        "set -- a; shift " + "9" * 5000 + "\ntorchrun t.py",
        "torchrun t.py $(echo a | tr -d '')$(printf '%099999999999d' 1)",
        "bash -c 'for i in {1..200}; do for j in {1..200}; do :; done; done; torchrun t.py'",
        "srun bash -c '" + "(" * 400 + "torchrun t.py" + ")" * 400 + "'",
        "# " + "KEY" * 5000 + "\ntorchrun t.py",
    ],
)
def test_hostile_lines_are_imported_or_refused(text: str) -> None:
    with suppress(DocumentError):
        assert script(text).job.run is not None


def test_scripts_that_start_each_other_are_left_in_time() -> None:
    files = {"a.sh": "bash a.sh\n" * 10, "run.sh": "bash a.sh\n" * 10}
    with pytest.raises(DocumentError):
        script("bash a.sh\n" * 10, files=files)


def test_a_name_with_the_number_of_gpus_asked_for_is_no_number() -> None:
    made = job("#SBATCH --gres=gpu:8\nA=$(nvidia-smi --query-gpu=name --format=csv | head -1)\ntorchrun t.py --arch $A")
    assert made["run"]["args"][1].startswith("$(nvidia-smi")


def test_counts_of_tokens_are_no_secrets() -> None:
    run = job("export MAX_TOKENS=4096 GITHUB_PAT=x TOKENIZERS_PARALLELISM=false\ntorchrun t.py")["run"]
    assert run["env"] == {"MAX_TOKENS": "4096", "TOKENIZERS_PARALLELISM": "false"}
    assert run["secrets"] == ["GITHUB_PAT"]


def test_the_value_of_a_secret_gets_into_no_argument() -> None:
    imported = script("export API_KEY=abc123\nHF_TOKEN=def456\ntorchrun t.py --key $API_KEY --t=${HF_TOKEN}")
    assert data(imported)["run"]["args"] == ["--key", "$API_KEY", "--t=$HF_TOKEN"]
    assert "abc123" not in str(imported)
    assert "def456" not in str(imported)
