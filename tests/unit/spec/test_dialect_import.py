"""`dttui import`: accelerate, DeepSpeed, hostfiles and torchrun command lines as job files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dttui.cli import main
from dttui.i18n import set_language
from dttui.spec import DocumentError, dump_job, load_job, parse_job
from dttui.spec.dialects.commands.torchrun_options import FLAGS, SHORT, VALUED
from dttui.spec.dialects.script import translate_words
from dttui.spec.findings import Severity
from dttui.spec.importing import Imported, grouped, merge
from tests.unit.spec.imported import command, data, file, keys

FSDP = """\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_sharding_strategy: SHARD_GRAD_OP
machine_rank: 0
main_process_ip: gpu2
main_process_port: 29500
main_training_function: main
mixed_precision: bf16
num_machines: 2
num_processes: 16
rdzv_backend: static
same_network: true
tpu_env: []
use_cpu: false
"""
DEEPSPEED = """\
{
  "train_batch_size": 64,
  "gradient_accumulation_steps": 1,
  "optimizer": {
    "type": "AdamW",
    "params": {
      "lr": 0.0001
    }
  },
  "fp16": {
    "enabled": true
  },
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {
      "device": "cpu"
    }
  },
  "distributed": {
    "world_size": 14,
    "nodes": 3
  }
}
"""
"""The DeepSpeed configuration of seed 004."""
HOSTFILE = "# two\ngpu1 slots=8\ngpu2 slots=8  # the other\n"


def outcome(make: Callable[[], Imported]) -> object:
    """Return the job, or the problems there are instead."""
    try:
        return make().job
    except DocumentError as error:
        return error.problems


def _of_file(text: str) -> Imported:
    return merge([file(text)], "x")


def _of_command(words: list[str]) -> Imported:
    return merge([translate_words(words, "c")], "job")


def refused(text: str) -> str:
    with pytest.raises(DocumentError) as caught:
        merge([file(text)], "x")
    return str(caught.value)


def test_a_hostfile_beside_it_settles_the_nodes_and_the_master() -> None:
    imported = merge([file(FSDP, "c"), file(HOSTFILE, "hostfile")], "x")
    gpus = {"gpu": {"count": 8}}
    assert data(imported)["cluster"] == {
        "nodes": [{"id": "gpu1", "resources": gpus}, {"id": "gpu2", "role": "master", "resources": gpus}]
    }
    assert "resources" not in data(imported)
    assert keys(imported) == {"main_process_port": 11}


def test_a_hostfile_of_other_hosts_is_told_of() -> None:
    imported = merge([file(FSDP, "c"), file("a slots=4\nb slots=4\nc slots=4\n", "h")], "x")
    messages = {note.subject: note.message for note in imported.notes if note.severity is Severity.WARNING}
    assert messages == {
        "main_process_ip": 'not carried over: "gpu2" is the master, and none of the nodes that are listed',
        "num_machines": "this says 2 nodes, and 3 are listed",
        "num_processes": "not carried over: the nodes themselves say 4",
        "c": "nothing says which script runs: train.py stands in for it",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "compute_environment: AMAZON_SAGEMAKER",
            "f:1:1: compute_environment: this is a configuration of accelerate for",
        ),
        (
            "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL}",
            "f:2:39: fsdp_config.fsdp_sharding_strategy: expected one of FULL_SHARD, 1, SHARD_GRAD_OP",
        ),
        ("distributed_type: FSDP\nnum_processes: four", 'f:2:16: num_processes: expected a whole number, found "four"'),
        ("distributed_type: FSDP\nmixed_precision: bf61", "f:2:18: mixed_precision: expected one of no, fp16, bf16"),
        ("distributed_typ: FSDP", 'f:1:1: distributed_typ: unknown key; did you mean "distributed_type"?'),
        ('{"train_batch_size": "many"}', "f:1:22: train_batch_size: "),
        ('{"zero_optimization": {"stage": 4}}', "f:1:33: zero_optimization.stage: "),
        ("distributed_training: {name: x}", "f:1:1: distributed_training: this is a job file already"),
        ("a: 1", "f:1:1: a: this file is of no form that can be imported"),
        ("[a]", "there is nothing in it that can be imported"),
        ("", "the file is empty"),
        ("gpu1 slots=8\ngpu1 slots=8", "f:2:1: gpu1 is here twice; the first is in line 1"),
        ("gpu1 slot=8", 'f:1:6: expected slots=N, found "slot=8"; did you mean "slots"?'),
        ("gpu1 slots=-1", 'f:1:6: expected a number of slots of at most 1024, found "-1"'),
    ],
)
def test_mistakes_in_a_file_have_their_places(text: str, words: str) -> None:
    assert words in refused(text)


def test_the_deepspeed_configuration_of_seed_004() -> None:
    imported = merge([file(DEEPSPEED)], "ds")
    assert data(imported) == {
        "name": "ds",
        "framework": "deepspeed",
        "framework_options": {
            "gradient_accumulation_steps": 1,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
            "offload_optimizer": "cpu",
        },
        "strategy": {"data_parallel": {"batch_size": 64}, "zero_stage": 2},
        "model": {"precision": "fp16"},
    }
    assert keys(imported) == {"distributed.world_size": 20, "distributed.nodes": 21}


def test_what_deepspeed_leaves_to_the_trainer_stays_with_it() -> None:
    text = (
        '{"train_batch_size": "auto", "gradient_clipping": "auto", "optimizer": {"type": "adamw", "params": '
        '{"lr": "auto"}}, "bf16": {"enabled": "auto"}, "fp16": {"enabled": false, "loss_scale": 0}}'
    )
    imported = merge([file(text)], "ds")
    assert data(imported) == {
        "name": "ds",
        "framework": "deepspeed",
        "framework_options": {
            "config_for": "trainer",
            "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
            "config": {"fp16": {"loss_scale": 0}},
        },
    }
    assert imported.notes == ()


def test_what_has_no_option_of_its_own_goes_under_deepspeeds_own_names() -> None:
    text = """\
{
  "steps_per_print": 10,
  "pipeline": {"stages": "auto"},
  "data_efficiency": {"data_sampling": {"dynamic_batching": {"sizes": [{"a": 1}, {"a": 2}]}}},
  "scheduler": {"type": "WarmupLR"},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme", "buffer_count": 5},
    "offload_param": {"device": "nvme", "nvme_path": "/other"},
    "reduce_bucket_size": 5e8
  },
  "elasticity": {"enabled": false}
}
"""
    imported = merge([file(text)], "ds")
    assert data(imported)["framework_options"] == {
        "offload_optimizer": "nvme",
        "offload_param": "nvme",
        "nvme_path": "/nvme",
        "scheduler": {"type": "WarmupLR"},
        "config": {
            "steps_per_print": 10,
            "pipeline": {"stages": "auto"},
            "data_efficiency": {"data_sampling": {"dynamic_batching": {"sizes": [{"a": 1}, {"a": 2}]}}},
            "zero_optimization": {
                "offload_optimizer": {"buffer_count": 5},
                "offload_param": {"nvme_path": "/other"},
                "reduce_bucket_size": 5e8,
            },
        },
    }
    assert keys(imported) == {"elasticity.enabled": 12}


def test_micro_batches_and_precision_of_deepspeed() -> None:
    text = '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "tensor_parallel": {"autotp_size": 2}}'
    imported = merge([file(text)], "ds")
    assert data(imported) == {
        "name": "ds",
        "framework": "deepspeed",
        "strategy": {"pipeline_parallel": {"micro_batch_size": 4}, "tensor_parallel_size": 2},
        "model": {"precision": "bf16"},
    }
    assert imported.notes == ()


def test_values_that_may_be_secret_are_written_and_shown_nowhere() -> None:
    imported = merge([command("WANDB_API_KEY=hunter2 torchrun --nnodes 2 a.py")], "job")
    assert data(imported)["run"] == {"script": "a.py", "secrets": ["WANDB_API_KEY"]}
    assert "hunter2" not in repr(imported)
    with pytest.raises(DocumentError) as caught:
        command("WANDB_API_KEY=hunter2 torchrun --nope a.py")
    assert "hunter2" not in str(caught.value)


def test_the_first_document_that_says_something_counts_and_the_others_are_told_of() -> None:
    parts = [
        file(DEEPSPEED, "ds"),
        file("distributed_type: MULTI_GPU\nmixed_precision: bf16", "acc"),
        command("torchrun a.py"),
    ]
    imported = merge(parts, "x")
    assert imported.job.framework == "deepspeed"
    messages = {note.subject: note.message for note in imported.notes if note.severity is Severity.WARNING}
    assert messages == {
        "distributed_type": 'not carried over: another document says "deepspeed"',
        "mixed_precision": 'not carried over: another document says "fp16"',
    }


def test_a_command_line_only_starts_what_a_configuration_says() -> None:
    imported = merge([file(DEEPSPEED, "ds"), command("torchrun --nproc-per-node 4 train.py")], "x")
    assert imported.job.framework == "deepspeed"
    assert imported.job.name == "train"
    assert all("framework" not in note.message for note in imported.notes)


@pytest.mark.parametrize("text", [FSDP, DEEPSPEED, HOSTFILE])
def test_what_is_imported_is_written_as_a_job_file_that_reads_the_same(text: str) -> None:
    job = merge([file(text)], "x").job
    assert parse_job(dump_job(job), "job.yaml") == job


def test_the_command_prints_a_job_file_with_what_is_not_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    (tmp_path / "hostfile").write_text(HOSTFILE)
    assert main(["import", "ds.json", "hostfile", "--", "torchrun", "--lang", "a.py"]) == 2
    assert "no option --lang" in capsys.readouterr().err
    assert main(["import", "ds.json", "hostfile", "--", "torchrun", "a.py", "--lang", "zh", "-o", "x"]) == 0
    printed = capsys.readouterr().out
    assert "# ds.json:20:5: distributed.world_size: not carried over" in printed
    job = parse_job(printed, "job.yaml")
    assert job.name == "a"
    assert job.run is not None
    assert job.run.args == ("--lang", "zh", "-o", "x")
    assert [node.id for node in job.cluster.nodes] == ["gpu1", "gpu2"]


def test_the_command_writes_a_new_file_and_never_over_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    target = tmp_path / "sub" / "job.yaml"
    assert main(["import", "-o", "sub/job.yaml", "--", "torchrun", "--nnodes", "2", "a.py"]) == 0
    captured = capsys.readouterr()
    assert "wrote sub/job.yaml" in captured.out
    assert "--nnodes: this says how many nodes" in captured.err
    job = load_job(target)
    assert job.run is not None
    assert (job.run.script, job.run.workdir) == ("a.py", "..")
    before = target.read_text()
    assert main(["import", "-o", "sub/job.yaml", "--", "torchrun", "b.py"]) == 2
    assert "there already" in capsys.readouterr().err
    assert target.read_text() == before
    assert main(["import", "-o", "no/such/job.yaml", "--", "torchrun", "b.py"]) == 2
    assert main(["import"]) == 2
    assert main(["import", "no-such-file"]) == 2
    assert main(["import", "--"]) == 2


def test_the_command_gives_data_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(FSDP)
    assert main(["import", "c.yaml", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["job"]["framework"] == "pytorch-fsdp"
    assert parse_job(document["yaml"], "x").framework == "pytorch-fsdp"
    assert {note["place"]["line"] for note in document["notes"] if note["place"]} == {10, 11, 14}
    assert document["file"] is None


def test_validate_tells_the_notes_of_a_document_of_another_form(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[1] / "seeds" / "horovod_config.yaml"
    assert main(["validate", str(path)]) == 0
    assert ":21:5: horovod_config.training.epochs: for the script: under settings" in capsys.readouterr().out
    assert main(["validate", str(path), "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dialect"] == "horovod-config"
    assert len(document["notes"]) == 3
    set_language("en")


def test_whatever_is_imported_gives_a_job_or_problems() -> None:
    generator = random.Random(11)
    texts = (FSDP, DEEPSPEED, HOSTFILE)
    words = ["{", "}", "[", "]", ":", "- ", "null", "-1", '"', "\t", "\n", "slots=", "#", "\x00", "auto", "é"]
    for _round in range(400):
        text = generator.choice(texts)
        for _change in range(generator.randint(1, 4)):
            start = generator.randrange(len(text) + 1)
            end = min(len(text), start + generator.choice((0, 1, 3, 20)))
            text = text[:start] + generator.choice((*words, "")) + text[end:]
        assert outcome(partial(_of_file, text))


def test_whatever_command_line_gives_a_job_or_problems() -> None:
    generator = random.Random(13)
    words = [*FLAGS, *VALUED, *SHORT, "torchrun", "a.py", "2", "2:4", "=", "--x", "-", "--", "A=b", "\n", "", "python"]
    for _round in range(600):
        line = ["torchrun", *generator.choices(words, k=generator.randint(0, 6))]
        assert outcome(partial(_of_command, line))
    assert translate_words(["torchrun", "-t", "3", "a.py"], "c").leaves[("run", "script")].data == "a.py"


def test_notes_that_say_the_same_of_several_keys_are_one_that_names_them() -> None:
    imported = _of_command(["torchrun", "--tee", "3", "--redirects", "3", "--rdzv-id", "1", "train.py"])
    assert list(keys(imported)) == ["--tee", "--redirects", "--rdzv-id"]
    tee, rendezvous = grouped(imported.notes)
    assert (tee.subject, tee.message.endswith("; the same goes for --redirects")) == ("--tee", True)
    assert rendezvous.subject == "--rdzv-id"


def test_a_program_that_is_no_launcher_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(DocumentError) as caught:
        _of_command(["sbatchd", "launch", "train.py"])
    (problem,) = caught.value.problems
    assert "accelerate launch" in problem.hint


@pytest.mark.parametrize("arguments", ["", " --output_dir " + "x" * 300])
def test_a_command_line_in_the_place_of_a_file_is_told_where_it_belongs(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"torchrun --nproc_per_node 2 train.py{arguments}"
    assert main(["import", command]) == 2
    told = capsys.readouterr().err
    assert "no such file" in told
    assert f"dttui import -- {command}" in told


def test_what_a_command_names_here_is_sent_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sft.yaml").touch()
    (tmp_path / "train.py").touch()
    (tmp_path / "sub").mkdir()

    def workdir(*command: str, into: str) -> str | None:
        assert main(["import", "-o", into, "--", *command]) == 0
        run = load_job(tmp_path / into).run
        assert run is not None
        return run.workdir

    assert workdir("llamafactory-cli", "train", "sft.yaml", into="a.yaml") == "."
    assert workdir("yolo", "train", "data=sft.yaml", into="sub/b.yaml") == ".."
    assert workdir("torchrun", "-m", "train", into="c.yaml") == "."
    assert workdir("torchrun", "-m", "of_the_hosts.train", into="d.yaml") is None
    assert workdir("swift", "sft", "--model", "m", into="e.yaml") is None
    assert workdir("env", "-C", "sub", "torchrun", "train.py", into="sub/f.yaml") == "."
