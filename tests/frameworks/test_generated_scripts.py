"""Scripts that `dttui init --from` writes train as their jobs say, without dttui too.

Two are compared with loops that are written by hand around the same model and data; all that run here, with what they
make of the configuration that dttui would hand them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dttui.cli import main
from tests.ports import free_port

DATA_PARALLEL = """\
distributed_training:
  name: images
  dataset: none
  model: {name: resnet}
  strategy: {type: data_parallel, data_parallel: {batch_size: %d, data_sharding: {method: sequential, seed: 7}}}
  cluster: {nodes: [{id: a, resources: {gpu: {count: 2}}}]}
  communication: {protocol: NCCL}
  settings: {epochs: 1, images: 96, learning_rate: %s, gradient_clipping: 0.5}
"""
PIPELINE = """\
distributed_training:
  name: words
  dataset: none
  model: {layers: 4, hidden_size: 32, heads: 2, seq_length: 16}
  strategy:
    type: pipeline_parallel
    data_parallel: {batch_size: 16}
    pipeline_parallel: {micro_batch_size: 4, pipeline_stages: 2, schedule: %s}
  cluster: {nodes: [{id: a, resources: {gpu: {count: 2}}}]}
  settings: {steps: 4, learning_rate: %s}
"""
IMAGES_BY_HAND = """
import sys, torch, torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
sys.path.insert(0, sys.argv[1])
import train  # its images and its layers
batch, rate = int(sys.argv[2]), float(sys.argv[3])
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(7)
model = DistributedDataParallel(train.make_model())
optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=1e-4)
data = train.Stripes()
for first in range(0, len(data), batch):
    images, labels = zip(*(data[index] for index in range(first + rank, first + batch, 2)))
    loss = functional.cross_entropy(model(torch.stack(images)), torch.tensor(labels))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    dist.all_reduce(loss.detach())
    if rank == 0:
        print("loss", loss.item() / 2, flush=True)
dist.barrier()
dist.destroy_process_group()
"""
WORDS_BY_HAND = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import train  # its text and its layers
torch.manual_seed(1)
model = train.make_stage(0, 1)
optimizer = torch.optim.AdamW(model.parameters(), float(sys.argv[2]), weight_decay=0.01)
text = train.read_text()
for step in range(1, 5):
    samples, wanted = train.masked(text, 16, 10**9 + step * 10**4)
    losses = [train.loss_of(model(part), targets) for part, targets in zip(samples.split(4), wanted.split(4))]
    loss = torch.stack(losses).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item(), flush=True)
"""


def write(directory: Path, text: str) -> Path:
    """Have `dttui init --from` write a job's script; return where."""
    directory.mkdir()
    (directory / "asked.yaml").write_text(text)
    (directory / "hosts.yaml").write_text("environments: []\n")
    target = directory / "made"
    status = main(
        ["init", "--from", str(directory / "asked.yaml"), "--inventory", str(directory / "hosts.yaml"), str(target)]
    )
    assert status == 0
    return target


def losses(command: list[str], cwd: Path, ranks: int) -> list[float]:
    """Return the losses that a script prints or reports, started by torchrun alone."""
    reports = cwd / "metrics"
    reports.unlink(missing_ok=True)
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={free_port()}"]
    names = ("DTTUI_CONFIG", "DTTUI_FSDP_CONFIG", "DTTUI_CHECKPOINT_DIR")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    own = {"DTTUI_METRICS": str(reports), "DTTUI_BACKEND": "gloo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *launcher, *command],
        cwd=cwd,
        env=clean | own,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if reports.exists():
        return [json.loads(line)["loss"] for line in reports.read_text().splitlines()]
    return [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("loss ")]


@pytest.mark.torch
def test_two_data_parallel_jobs_train_as_when_they_are_written_by_hand(tmp_path: Path) -> None:
    by_hand = tmp_path / "by_hand.py"
    by_hand.write_text(IMAGES_BY_HAND)
    found = []
    for batch, rate in ((16, 0.05), (32, 0.2)):
        made = write(tmp_path / str(batch), DATA_PARALLEL % (batch, rate))
        trained = losses(["train.py"], made, 2)
        expected = losses([str(by_hand), str(made), str(batch), str(rate)], made, 2)
        assert len(trained) == 96 // batch
        assert trained == pytest.approx(expected, abs=1e-5)
        found.append((trained, (made / "train.py").read_text()))
    assert found[0] != found[1]


@pytest.mark.torch
def test_two_pipelines_train_as_the_whole_model_does_when_it_is_written_by_hand(tmp_path: Path) -> None:
    by_hand = tmp_path / "by_hand.py"
    by_hand.write_text(WORDS_BY_HAND)
    for schedule, rate in (("1F1B", 0.003), ("GPipe", 0.01)):
        made = write(tmp_path / schedule, PIPELINE % (schedule, rate))
        trained = losses(["train.py"], made, 2)
        expected = losses([str(by_hand), str(made), str(rate)], made, 1)
        assert trained == pytest.approx(expected, abs=1e-5)


JOBS = {
    "gpt": "model: {layers: 1, hidden_size: 32, heads: 2, seq_length: 16}",
    "vision": "model: {name: vit, layers: 1, hidden_size: 32, heads: 2}",
    "resnet": "model: {name: resnet}",
    "bert": "model: {layers: 2, hidden_size: 32, heads: 2, seq_length: 16}\n  strategy: {type: pipeline_parallel}",
    "fsdp": "model: {layers: 1, hidden_size: 32, heads: 2, seq_length: 16}\n  strategy: {zero_stage: 3}",
}
OF_ONE = """\
distributed_training:
  name: {name}
  dataset: none
  {lines}
  cluster: {{nodes: [{{id: a, resources: {{gpu: {{count: 1}}}}}}]}}
  settings: {{steps: 3, epochs: 1, images: 24, warmup_steps: 2, learning_rate: {rate}}}
"""
DRIVER = """
import json, os, runpy, sys
os._exit = lambda status: None
for folder, told in json.load(sys.stdin):
    os.chdir(folder)
    os.environ.update(DTTUI_METRICS=folder + "/metrics", DTTUI_CHECKPOINT_DIR=folder + "/kept-" + str(bool(told)))
    for name, file in (("DTTUI_CONFIG", "dttui_config.json"), ("DTTUI_FSDP_CONFIG", "fsdp_config.json")):
        os.environ.pop(name, None)
        if told and os.path.exists(file):
            os.environ[name] = folder + "/" + file
    for name in ("recipe", "settings", "data", "model", "checkpoint"):
        sys.modules.pop(name, None)
    sys.argv, sys.path[0] = ["train.py"], folder
    runpy.run_path("train.py", run_name="__main__")
    print("reported", json.dumps([json.loads(line)["loss"] for line in open("metrics")]), flush=True)
    os.remove("metrics")
"""
"""Runs scripts one after another, as one rank of one, with their configurations or without."""


@pytest.mark.torch
def test_what_is_written_into_a_script_trains_as_the_same_configuration_does(tmp_path: Path) -> None:
    made = {
        (name, rate): write(tmp_path / f"{name}-{rate}", OF_ONE.format(name=name, lines=lines, rate=rate))
        for name, lines in JOBS.items()
        for rate in (0.001, 0.1)
    }
    runs = [(str(path), told) for path in made.values() for told in (False, True)]
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    environment = os.environ | ranks | {"OMP_NUM_THREADS": "1", "DTTUI_BACKEND": "gloo"}
    command = [sys.executable, "-W", "ignore", "-c", DRIVER]
    done = subprocess.run(
        command, input=json.dumps(runs), env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    told = [line.removeprefix("reported ") for line in done.stdout.splitlines() if line.startswith("reported ")]
    by_hand, with_file = (dict(zip(made, told[first::2], strict=True)) for first in (0, 1))
    assert by_hand == with_file
    for name in JOBS:
        assert by_hand[name, 0.001] != by_hand[name, 0.1]
