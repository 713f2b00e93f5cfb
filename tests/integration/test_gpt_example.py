"""The GPT example as its users start it: plain python, torchrun on one node, torchrun on several unequal nodes."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dttui.spec.models import Job, JobDocument
from examples.gpt import settings
from tests.ports import free_port
from tests.torch_forkserver import SCRIPT, TORCHRUN, Fork, TorchStem
from tests.waiting import wait_until

EXAMPLE = Path(settings.__file__).parent
TINY = [
    "--layers",
    "1",
    "--width",
    "32",
    "--heads",
    "2",
    "--block-size",
    "32",
    "--batch-size",
    "18",
    "--log-every",
    "1",
]
"""Options of a model that trains in well under a second; four ranks get 5, 5, 4 and 4 samples a step."""
DEADLINE_S = 120

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]"
    ),
]


@dataclass
class Outcome:
    """How a run ended."""

    code: int
    out: str
    err: str
    metrics: list[dict[str, Any]]

    def losses(self, rank: int = 0) -> dict[int, float]:
        return {line["step"]: line["loss"] for line in self.metrics if line["rank"] == rank}


def environment(directory: Path, **variables: str) -> dict[str, str]:
    """This process's environment without traces of dttui or of an outer torchrun, and with a metrics file."""
    mine = ("DTTUI_", "TORCHELASTIC_", "MASTER_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(mine)}
    for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        kept.pop(key, None)
    directory.mkdir(parents=True, exist_ok=True)
    return {**kept, "DTTUI_METRICS": str(directory / "metrics.jsonl"), **variables}


def torchrun(nodes: list[int], node: int, port: int, *options: str) -> list[str]:
    """The command of one node; `nodes` lists the ranks of each."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(nodes)}", f"--nproc-per-node={nodes[node]}"),
        *(f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={port}", "--max-restarts=0", *options),
    ]


@contextmanager
def started(commands: list[list[str]], env: dict[str, str], cwd: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the commands together, and leave nothing of them behind."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for command in commands:
            process = subprocess.Popen(
                command,
                env=env,
                cwd=cwd,
                text=True,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            processes.append(process)
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def finish(process: subprocess.Popen[str], env: dict[str, str]) -> Outcome:
    out, err = process.communicate(timeout=DEADLINE_S)
    return Outcome(process.returncode, out, err, reported(env))


def ended(fork: Fork, env: dict[str, str]) -> Outcome:
    done = fork.finish(DEADLINE_S)
    return Outcome(done.returncode, done.stdout, done.stderr, reported(env))


def reported(env: dict[str, str]) -> list[dict[str, Any]]:
    """What ranks have reported so far."""
    metrics = Path(env["DTTUI_METRICS"])
    return [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []


def python(directory: Path, *options: str, **variables: str) -> Outcome:
    """Run the script as one process, as a person at a shell would."""
    env = environment(directory, **variables)
    with started([[sys.executable, "train.py", *options]], env, EXAMPLE) as [process]:
        return finish(process, env)


def forked(stem: TorchStem, directory: Path, *options: str, **variables: str) -> Outcome:
    """Run the script as one process that need not import torch."""
    env = environment(directory, **variables)
    with stem.started(SCRIPT, ["train.py", *options], cwd=EXAMPLE, env=env) as fork:
        return ended(fork, env)


def ranks(
    count: int,
    directory: Path,
    *options: str,
    launcher: tuple[str, ...] = (),
    stem: TorchStem,
    **variables: str,
) -> Outcome:
    """Run the script under torchrun on one node, which itself need not import torch."""
    env = environment(directory, **variables)
    command = [*torchrun([count], 0, free_port(), *launcher), "train.py", *options]
    with stem.started(TORCHRUN, command[2:], cwd=EXAMPLE, env=env) as fork:
        return ended(fork, env)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Twelve steps of the tiny model in one process, which never stopped."""
    outcome = python(tmp_path_factory.mktemp("uninterrupted"), *TINY, "--steps", "12")
    assert outcome.code == 0, outcome.err
    return outcome


def test_one_python_process_reports_every_step(uninterrupted: Outcome) -> None:
    assert uninterrupted.out.splitlines()[0].startswith("world size 1, gloo on cpu, ")
    assert uninterrupted.out.splitlines()[-1].startswith("step 12/12  loss ")
    assert list(uninterrupted.losses()) == list(range(1, 13))
    for line in uninterrupted.metrics:
        assert set(line) == {"step", "loss", "tokens_per_s", "learning_rate", "gradient_norm", "rank"}
        assert line["tokens_per_s"] > 0
        assert line["gradient_norm"] > 0
        assert 0 < line["learning_rate"] <= 5e-3


def test_the_default_run_learns_on_two_ranks_and_writes_text(tmp_path: Path, torch_forkserver: TorchStem) -> None:
    outcome = ranks(2, tmp_path, "--sample", "80", stem=torch_forkserver)
    assert outcome.code == 0, outcome.err
    losses = outcome.losses()
    assert losses[1] > 5.0
    assert losses[100] < 2.7
    assert outcome.losses(rank=1) == losses
    assert "step 100/100  loss 2." in outcome.out
    assert "tok/s" in outcome.out
    assert len(outcome.out.split("tok/s\n")[-1]) >= 80


def test_job_yaml_runs_on_its_unequal_nodes_with_the_losses_of_one_process(
    tmp_path: Path, uninterrupted: Outcome, torch_forkserver: TorchStem
) -> None:
    job = load_job()
    assert job.run is not None
    assert job.run.script is not None
    slots = [node.resources.gpu.count or 0 for node in job.cluster.nodes if node.resources and node.resources.gpu]
    assert slots == [1, 1, 2]
    port, env = free_port(), environment(tmp_path)
    script = [job.run.script, *job.run.args, *TINY, "--steps", "12"]
    workdir = EXAMPLE / (job.run.workdir or ".")
    with ExitStack() as nodes:
        forks = [
            nodes.enter_context(
                torch_forkserver.started(TORCHRUN, [*torchrun(slots, node, port)[2:], *script], cwd=workdir, env=env)
            )
            for node in range(3)
        ]
        outcomes = [ended(fork, env) for fork in forks]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], "\n".join(outcome.err for outcome in outcomes)
    assert {line["rank"] for line in outcomes[0].metrics} == {0, 1, 2, 3}
    assert "world size 4" in outcomes[0].out, "rank 0 is on the first node"
    assert "world size 4" not in outcomes[1].out + outcomes[2].out
    assert outcomes[0].losses(rank=3) == pytest.approx(uninterrupted.losses(), abs=1e-4)


def test_a_run_that_lost_a_rank_resumes_to_the_losses_of_one_that_never_stopped(
    tmp_path: Path, uninterrupted: Outcome, torch_forkserver: TorchStem
) -> None:
    kept = tmp_path / "kept"  # not there yet: a run told to resume starts afresh
    options = [*TINY, "--steps", "12", "--resume", "--checkpoint-every", "3", "--keep-checkpoints", "1"]
    fault = ["--fail-at-step", "8", "--fail-rank", "1", "--exit-code", "3"]
    logs = tmp_path / "logs"
    launcher = ("--log-dir", str(logs), "--redirects", "3")
    broken = ranks(
        2, tmp_path / "0", *options, *fault, launcher=launcher, stem=torch_forkserver, DTTUI_CHECKPOINT_DIR=str(kept)
    )
    assert broken.code == 1, "torchrun gives 1 for whatever a rank exits with"
    assert "exitcode  : 3" in broken.err
    [stderr] = logs.glob("*/attempt_0/1/stderr.log")
    assert stderr.read_text().splitlines()[-1] == "train.py: told to exit with 3 by --exit-code"
    assert [mark.parent.name for mark in kept.glob("*/COMPLETE")] == ["step-00000006"]

    unfinished = kept / "step-00000009"  # as a crash between the state and its mark would leave it
    unfinished.mkdir()
    (unfinished / "state.pt").write_bytes(b"half of a checkpoint")
    resumed = ranks(
        2, tmp_path / "1", *options, *fault, stem=torch_forkserver, DTTUI_CHECKPOINT_DIR=str(kept), DTTUI_ATTEMPT="1"
    )
    assert resumed.code == 0, resumed.err
    assert "resumed after step 6\n" in resumed.out
    assert list(resumed.losses()) == list(range(7, 13))
    assert {**broken.losses(), **resumed.losses()} == pytest.approx(uninterrupted.losses(), abs=1e-4)


def test_an_exception_in_one_rank_is_recorded_with_its_traceback(tmp_path: Path, torch_forkserver: TorchStem) -> None:
    logs = tmp_path / "logs"
    launcher = ("--log-dir", str(logs), "--redirects", "3")
    outcome = ranks(
        2, tmp_path, *TINY, "--fail-at-step", "2", "--fail-rank", "1", launcher=launcher, stem=torch_forkserver
    )
    assert outcome.code == 1
    [recorded] = logs.glob("*/attempt_0/1/error.json")
    message = json.loads(recorded.read_text())["message"]
    assert message["message"] == "RuntimeError: told to fail before step 2 by --fail-at-step"
    assert "in fail" in message["extraInfo"]["py_callstack"]
    [stderr] = logs.glob("*/attempt_0/1/stderr.log")
    assert "Traceback" in stderr.read_text()


def test_sigterm_stops_all_ranks_after_a_step_and_leaves_a_checkpoint(
    tmp_path: Path, torch_forkserver: TorchStem
) -> None:
    kept = tmp_path / "kept"
    env = environment(tmp_path / "0", DTTUI_CHECKPOINT_DIR=str(kept))
    command = [*torchrun([2], 0, free_port()), "train.py", *TINY, "--steps", "1000000"]
    with torch_forkserver.started(TORCHRUN, command[2:], cwd=EXAMPLE, env=env) as fork:
        metrics = Path(env["DTTUI_METRICS"])
        wait_until(lambda: metrics.exists() and metrics.stat().st_size > 1000, "some steps were made", DEADLINE_S)
        os.kill(fork.pid, signal.SIGTERM)
        outcome = ended(fork, env)
    assert outcome.code not in (0, None)
    assert outcome.err.count("train.py: asked to stop, stopped after step ") == 2
    newest = max(mark.parent.name for mark in kept.glob("*/COMPLETE"))
    step = int(newest.removeprefix("step-"))
    assert f"stopped after step {step}\n" in outcome.err
    assert outcome.metrics[-1]["step"] == step

    fresh = forked(torch_forkserver, tmp_path / "1", *TINY, "--checkpoint-dir", str(kept))
    assert fresh.code == 2
    assert f"train.py: error: {kept / newest} is of an earlier run: give --resume" in fresh.err
    wider = forked(torch_forkserver, tmp_path / "2", *TINY, "--checkpoint-dir", str(kept), "--resume", "--width", "64")
    assert wider.code == 2
    assert "train.py: error: the checkpoint is of another model" in wider.err
    (kept / newest / "state.pt").write_bytes(b"overwritten by something else")
    damaged = forked(torch_forkserver, tmp_path / "3", *TINY, "--checkpoint-dir", str(kept), "--resume")
    assert damaged.code == 2
    assert f"train.py: error: no checkpoint can be had from {kept}: {kept / newest} is damaged" in damaged.err
    assert "Traceback" not in fresh.err + wider.err + damaged.err


def test_a_loss_that_is_no_number_ends_the_run_with_exit_code_1(tmp_path: Path, torch_forkserver: TorchStem) -> None:
    outcome = forked(torch_forkserver, tmp_path, *TINY, "--lr", "1e30")
    assert outcome.code == 1
    assert "train.py: error: the loss is nan at step " in outcome.err
    assert "Traceback" not in outcome.err
    assert all(isinstance(line["loss"], float) for line in outcome.metrics)


def test_a_batch_a_text_and_a_backend_that_cannot_be_used_are_refused(
    tmp_path: Path, torch_forkserver: TorchStem
) -> None:
    few = ranks(2, tmp_path / "few", *TINY, "--batch-size", "1", stem=torch_forkserver)
    assert "--batch-size 1 leaves some of the 2 ranks without a sample" in few.err
    missing = forked(torch_forkserver, tmp_path / "missing", "--text", str(tmp_path / "no such text"))
    assert missing.code == 2
    assert "train.py: error: the text cannot be read: " in missing.err
    unknown = forked(torch_forkserver, tmp_path / "unknown", DTTUI_BACKEND="carrier-pigeon")
    assert unknown.code == 2
    assert "train.py: error: DTTUI_BACKEND is carrier-pigeon, which this torch does not have" in unknown.err
    assert "Traceback" not in missing.err + unknown.err


def test_the_command_line_beats_dttui_config_which_beats_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.json"
    sharding = {"strategy": "random_shuffle", "seed": 42, "drop_last": True}
    dataset = {"id": "sonnets", "version": "v1", "path": "/data/sonnets"}
    content = {"batch_size": 32, "num_workers": 4, "data_sharding": sharding, "dataset": dataset, "new": "key"}
    sizes = {"name": "x", "layers": 3, "hidden_size": 48, "heads": 3, "seq_length": 16, "precision": "bf16"}
    content |= {"model": sizes, "settings": {"seed": 9, "checkpoint_every": 5, "warmup_steps": 2}}
    config.write_text(json.dumps(content))
    monkeypatch.setenv("DTTUI_CONFIG", str(config))
    monkeypatch.setattr(sys, "argv", ["train.py", "--data-seed", "7", "--layers", "4"])
    options = settings.read_options()
    assert (options.layers, options.width, options.heads, options.block_size) == (4, 48, 3, 16)
    assert (options.precision, options.seed, options.checkpoint_every) == ("bf16", 9, 5)
    assert options.settings["warmup_steps"] == 2
    assert options.data_seed == 7
    assert options.batch_size == 32
    assert options.sharding == "random"
    assert options.text == Path("/data/sonnets")
    assert options.steps == 100


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[1]", "is not a JSON object of settings"),
        ("{", "is not a JSON object of settings"),
        ('{"batch_size": 0}', "argument --batch-size: '0' is not a positive whole number"),
        ('{"settings": {"steps": 0}}', "argument --steps: '0' is not a positive whole number"),
        ('{"model": [1]}', "is not a JSON object of settings"),
        ('{"batch_size": [1]}', "argument --batch-size: '[1]' is not a positive whole number"),
        ('{"data_sharding": {"method": "alphabetical"}}', "'alphabetical' is neither random nor sequential"),
    ],
)
def test_a_dttui_config_that_makes_no_sense_is_refused_in_words(
    content: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(content)
    monkeypatch.setenv("DTTUI_CONFIG", str(config))
    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as ended:
        settings.read_options()
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def load_job() -> Job:
    text = (EXAMPLE / "job.yaml").read_text(encoding="utf-8")
    return JobDocument.model_validate(yaml.safe_load(text)).distributed_training


def test_job_yaml_names_the_environments_of_the_demo() -> None:
    job = load_job()
    assert job.name == "gpt-small"
    assert job.framework == "pytorch-ddp"
    assert job.dataset == "none"
    assert [node.id for node in job.cluster.nodes] == ["pytorch-dev-env", "llm-training-env", "nlp-research-lab"]
    assert job.cluster.master is not None
    assert job.cluster.master.id == "pytorch-dev-env"
