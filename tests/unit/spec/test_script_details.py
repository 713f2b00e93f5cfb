"""What a script or command line says beside its launch: mounts, arrays of jobs, tokens, secrets, other programs."""

from __future__ import annotations

import re

import pytest

from dttui.planning.completeness import check_completeness
from dttui.spec import DocumentError, parse_job
from dttui.spec.dialects.commands.launch import Launch
from dttui.spec.dialects.script import translate_words
from dttui.spec.dialects.shell.command_words import Word
from dttui.spec.importing import translate_file
from dttui.spec.yaml_source import Mark
from tests.unit.spec.imported import data
from tests.unit.spec.test_launch_commands import job, script, warnings


def test_a_program_by_its_path_starts_another_as_by_its_name() -> None:
    for line in ("/usr/bin/env torchrun --nproc_per_node 4 t.py", "/usr/bin/nohup torchrun --nproc_per_node 4 t.py"):
        assert job(line)["resources"] == {"gpu": {"count": 4}}


@pytest.mark.parametrize("options", ["profile -w true -o out", "profile --trace=cuda,nvtx -otrace", "--stats true"])
def test_each_option_of_nsys_has_a_value(options: str) -> None:
    made = job(f"nsys {options} torchrun --nproc_per_node 4 t.py")
    assert made["run"]["prefix"] == ["nsys", *options.split()]
    assert made["resources"] == {"gpu": {"count": 4}}


def test_mounts_of_a_container_are_carried_over() -> None:
    options = "--container-image=nvcr.io#nvidia/pytorch:24.01 --container-mounts=/data:/d:ro,/scratch,$PWD:/w"
    imported = script(f"srun {options} --ntasks-per-node 4 python t.py")
    container = {"engine": "docker", "image": "nvcr.io/nvidia/pytorch:24.01"}
    by_srun = job(f"srun {options} --ntasks-per-node 4 python t.py")["run"]["container"]
    assert by_srun == {**container, "mounts": ["/data:/d:ro", "/scratch:/scratch"]}
    assert any(".:/w" in message for message in warnings(imported))
    by_hand = job("apptainer exec --nv -B /data:/d /i/t.sif torchrun --nproc_per_node 4 t.py")["run"]["container"]
    assert by_hand == {"engine": "apptainer", "image": "/i/t.sif", "mounts": ["/data:/d"]}


def test_an_array_of_jobs_is_imported_task_by_task() -> None:
    text = "#SBATCH --array=0-3\nR=(0.1 0.2)\ntorchrun --nproc_per_node 4 t.py --lr ${R[$SLURM_ARRAY_TASK_ID]}"
    open_one = script(text)
    assert any("several jobs" in message for message in warnings(open_one))
    assert any("${R[$SLURM_ARRAY_TASK_ID]}" in message for message in warnings(open_one))
    assert job(text, "SLURM_ARRAY_TASK_ID=1")["run"]["args"] == ["--lr", "0.2"]


def test_a_tokenizer_s_own_tokens_are_no_placeholders() -> None:
    line = "torchrun --nproc_per_node 4 t.py --eos '</s>' --bos '<s>' --pad '<pad>' --data '<your data>'"
    said = " ".join(warnings(script(line)))
    assert "<your data>" in said
    assert not any(token in said for token in ("<s>", "</s>", "<pad>"))
    run = "run: {script: t.py, args: ['<s>', '<data>', '${JOB_ID}', '$HOME']}"
    made = parse_job(f"distributed_training: {{name: t, dataset: none, framework: pytorch-ddp, {run}}}", "j")
    (finding,) = [finding for finding in check_completeness(made) if finding.code == "not-filled-in"]
    assert finding.message.endswith(": <data>, $HOME")


def test_options_that_look_like_secrets_are_named() -> None:
    line = "torchrun --nproc_per_node 4 t.py --hub_token hf_abc123def456ghi --api-key=$KEY --max_tokens 4096 --key sort"
    (said,) = [message for message in warnings(script(line)) if "secret" in message]
    assert "--hub_token" in said
    assert not any(option in said for option in ("--max_tokens", "--key ", "--api-key"))


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("--jwt_token eyJhbGciOi.eyJzdWIiOiIx.abc123", "--jwt_token"),
        ("--aws-access-key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "--aws-access-key"),
        ("wandb.api_key=0123456789abcdef0123", "wandb.api_key"),
        ("+hf_token=hf_abc123def456ghi", "+hf_token"),
        ("--db.password=hunter2", "--db.password"),
        ("--openai-key sk-proj-abc.def_123456789", "--openai-key"),
        ("-hf_token hf_abc123def456ghi", "-hf_token"),
    ],
)
def test_secrets_of_any_form_are_named(words: str, option: str) -> None:
    (said,) = [m for m in warnings(script(f"torchrun --nproc_per_node 4 t.py {words}")) if "secret" in m]
    assert f"given to {option} may" in said


@pytest.mark.parametrize(
    "words",
    [
        "--key_metric eval/accuracy_top1",
        "--api-key-file keys/Prod2024/token1.json",
        "--image_key data/Images2024/front.png",
        "--secret $SECRET",
        "--use_password --lr 1",
        "monitor_key val/Accuracy1",
    ],
)
def test_paths_and_names_are_no_secrets(words: str) -> None:
    assert not [m for m in warnings(script(f"torchrun --nproc_per_node 4 t.py {words}")) if "secret" in m]


def test_of_a_loop_the_first_round_is_taken_and_the_others_are_counted() -> None:
    text = (
        "for lr in 1 2 3; do\n  for seed in 1 2; do torchrun --nproc_per_node 4 t.py --lr $lr --seed $seed; done\ndone"
    )
    imported = script(text)
    assert job(text)["run"]["args"] == ["--lr", "1", "--seed", "1"]
    (note,) = [note for note in imported.notes if "as a loop does" in note.message]
    assert "line 2 starts this 5 times more" in note.message
    assert "--lr 3 --seed 2" in note.hint


NODES = """#SBATCH --nodes=4
for ((i = 1; i < SLURM_NNODES; i++)); do
  torchrun --nnodes 4 --nproc-per-node 8 --node-rank $i --master-addr h t.py --lr 1 &
done
torchrun --nnodes 4 --nproc-per-node 8 --node-rank 0 --master-addr h t.py --lr 1
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NODES, "what is started on each node by its rank, in lines 3, 5, is one job"),
        (
            "for n in 1 2 3; do\n  torchrun --nproc_per_node 4 t.py && break\ndone",
            "line 2 starts this again and again, with the same words",
        ),
        (
            "while true; do\n  torchrun --nproc_per_node 4 t.py --resume\ndone",
            "line 2 starts this again and again, with the same words",
        ),
        (
            "n=0; while true; do\n  torchrun --nproc_per_node 4 t.py --round $((++n))\ndone",
            "line 2 starts this again and again, with other words",
        ),
        (
            "while IFS=, read -r n lr; do torchrun --nproc_per_node 4 t.py $n --lr $lr; done <<E\na,1\nb,2\nE",
            "line 1 starts this 1 time more, with other words, as a loop does",
        ),
    ],
)
def test_a_launch_that_is_started_again_is_told_as_what_it_is(text: str, words: str) -> None:
    (said,) = [
        note.message for note in script(text).notes if re.search("start.* this|besides|by its rank", note.message)
    ]
    assert said.endswith(words)


def test_of_several_programs_the_one_that_is_called_so_trains() -> None:
    assert job("python prepare.py\npython train.py\npython eval.py")["run"]["script"] == "train.py"
    assert job("python a.py\npython b.py")["run"]["script"] == "a.py"


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ("diffusion.py", "run_inference.py", "diffusion.py"),
        ("nanogpt.py", "eval_main.py", "nanogpt.py"),
        ("prepare_pretraining_data.py", "sft.py", "sft.py"),
        ("eval.py", "model.py", "model.py"),
        ("constraints.py", "pretrain_gpt.py", "pretrain_gpt.py"),
        ("bench.py", "finetune-llama2.py", "finetune-llama2.py"),
        ("prepare_data.py", "train_and_eval.py", "train_and_eval.py"),
        ("train_tokenizer.py", "gpt.py", "gpt.py"),
    ],
)
def test_a_program_is_taken_for_the_training_by_whole_words_of_its_name(first: str, second: str, chosen: str) -> None:
    text = f"torchrun --nproc_per_node 8 {first}\ntorchrun --nproc_per_node 8 {second}"
    assert job(text)["run"]["script"] == chosen


@pytest.mark.parametrize(
    ("given", "gpu"),
    [
        ("lscratch:200,gpu:h100:8", {"count": 8, "type": "H100"}),
        ("lscratch:100,gpu:4", {"count": 4}),
        ("gpu:a100:2,nvme:1", {"count": 2, "type": "A100"}),
    ],
)
def test_of_what_slurm_shares_out_only_gpus_are_taken(given: str, gpu: dict[str, object]) -> None:
    assert job(f"#SBATCH --gres={given}\nsrun --ntasks-per-node={gpu['count']} python t.py")["resources"]["gpu"] == gpu


def test_what_slurm_shares_out_beside_gpus_makes_no_gpus() -> None:
    made = script("#SBATCH --gres=lscratch:200\nsrun --ntasks-per-node=4 python t.py")
    assert any("dttui shares out GPUs alone" in note.message for note in made.notes)


def test_mounts_that_directives_say_are_those_of_what_srun_starts() -> None:
    image = "#SBATCH --container-image=docker://nvcr.io#nvidia/pytorch:24.01"
    text = f"{image}\n#SBATCH --container-mounts=/data:/data:ro,/scratch\nsrun --ntasks-per-node 4 python t.py"
    container = {"engine": "docker", "image": "nvcr.io/nvidia/pytorch:24.01"}
    assert job(text)["run"]["container"] == {**container, "mounts": ["/data:/data:ro", "/scratch:/scratch"]}
    own = job(f"{text} --x".replace("python", "--container-mounts=/own:/own python"))["run"]["container"]
    assert own["mounts"] == ["/own:/own"]


def test_a_mount_stays_read_only_beside_other_flags_and_beside_one_that_is_not_known() -> None:
    mounts = "/data:/data:ro+noexec,$HOME/.cache:/c,/scratch:/s:rw"
    imported = script(f"srun --container-image=i --container-mounts={mounts} --ntasks-per-node 4 python t.py")
    assert data(imported)["run"]["container"]["mounts"] == ["/data:/data:ro", "/scratch:/s:rw"]
    said = warnings(imported)
    assert any(message.endswith("nothing else: noexec") for message in said)
    assert any(message.endswith("are mounted: $HOME/.cache:/c") for message in said)


def test_a_file_of_enroot_s_is_no_image_of_docker_s() -> None:
    options = "--container-image=/images/pt.sqsh --container-mounts=/data:/data"
    imported = script(f"srun {options} --ntasks-per-node 4 python t.py")
    assert "container" not in data(imported)["run"]
    said = " ".join(warnings(imported))
    assert "enroot made" in said
    assert '"/data:/data" of a container whose image is not known' in said


def test_options_that_are_given_many_times_take_no_longer_each() -> None:
    launch = Launch(Mark(1, 1))
    keys = [launch.enter("--x", Word(str(number), Mark(1, 1))).key for number in range(20_000)]
    assert (keys[0], keys[1], keys[-1]) == ("--x", "--x (2)", "--x (20000)")
    with pytest.raises(DocumentError, match="more than is followed"):
        script("#SBATCH --array=1-2\n" * 2_000 + "torchrun t.py")


def test_the_command_within_another_is_not_told_as_one_besides() -> None:
    text = "srun --ntasks=1 bash -c 'wandb login; torchrun --nproc_per_node 8 t.py'"
    (said,) = [note.message for note in script(text).notes if "starts these too" in note.message]
    assert said.endswith('starts these too: "wandb login" in line 1')


INNER = """#!/bin/bash
pip install flash-attn
export WANDB_API_KEY=abcdef
torchrun --nproc_per_node=$1 \\
  {option} t.py --lr $LR  # {secret}
"""


@pytest.mark.parametrize("begin", ["bash scripts/inner.sh 4", "set -- 4\nsource scripts/inner.sh"])
def test_what_is_said_of_a_script_that_another_starts_names_its_own_lines(begin: str) -> None:
    """An option that is wrong there was told of the line that starts it."""
    files = {"scripts/inner.sh": INNER.format(option="--fo=3", secret="HF_TOKEN=hf_abcdef")}
    with pytest.raises(DocumentError) as caught:
        script(f"# a comment\n{begin}\n", files=files)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.column) == ("scripts/inner.sh", 5, 3)
    assert problem.source_line == "  --fo=3 t.py --lr $LR  # HF_TOKEN=***"
    files["scripts/inner.sh"] = INNER.format(option="--max-restarts=1", secret="x")
    notes = script(f"# a comment\n{begin}\n", files=files).notes
    places = {(note.place.file, note.place.line) for note in notes if note.place is not None and "$LR" in note.message}
    assert places == {("scripts/inner.sh", 5)}
    told = [note.message for note in notes if "pip install" in note.message]
    assert [text.rpartition(" in line ")[2] for text in told] == ["scripts/inner.sh:2"]


def test_the_same_of_a_script_in_a_task_of_another_product_and_of_a_command_line() -> None:
    files = {"scripts/inner.sh": INNER.format(option="--fo=3", secret="x")}
    task = "resources: {accelerators: 'H100:4'}\nrun: |\n  bash scripts/inner.sh 4\n"
    for text, name in ((task, "task.yaml"), ("bash scripts/inner.sh 4", "run.sh")):
        with pytest.raises(DocumentError) as caught:
            translate_file(text, name, (), files.get)
        assert [(problem.file, problem.line) for problem in caught.value.problems] == [("scripts/inner.sh", 5)]
    with pytest.raises(DocumentError) as caught:
        translate_words(["bash", "scripts/inner.sh", "4"], "command line", files.get)
    assert [(problem.file, problem.line) for problem in caught.value.problems] == [("scripts/inner.sh", 5)]
    files["scripts/inner.sh"] = INNER.format(option="--max-restarts=1", secret="x")
    made = translate_file(task, "task.yaml", (), files.get)
    marks = {(note.place.file, note.place.line) for note in made.notes if note.place is not None}
    assert ("scripts/inner.sh", 5) in marks
