"""TensorFlow for real: a job of each strategy on the embedded cluster, and its own resolver reading TF_CONFIG."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.frameworks.launching import apply, example
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.unit.frameworks.test_tensorflow import bound, cluster_of

ONE, TWO, THREE = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
HERE = Path(__file__).parent
PROXY = {"http_proxy": "http://127.0.0.1:9", "TF_CPP_MIN_LOG_LEVEL": "1"}
"""A proxy that nobody serves: what is asked of it is lost."""


def test_mirrored_workers_train_together_and_go_on_from_their_checkpoint(
    tmp_path: Path, tensorflow_python: Path, demo_root: Path
) -> None:
    job = example("tensorflow")
    job["cluster"]["nodes"] = job["cluster"]["nodes"][:2]
    job["recovery"] = {"checkpoint": {"dir": str(tmp_path / "kept")}}
    losses: dict[int, float] = {}
    for name, steps in (("first", 16), ("second", 24)):
        (tmp_path / name).mkdir()
        job["run"]["args"] = ["--steps", str(steps), "--checkpoint-every", "16"]
        ended = apply(tmp_path / name, "tensorflow", job, tensorflow_python, env=PROXY)
        assert min(ended.losses()) == len(losses) + 1
        losses |= ended.losses()
        assert ended.result["world_size"] == 2
        assert {line["rank"] for line in ended.metrics} == {0}
    assert list(losses) == list(range(1, 25))
    assert losses[24] < losses[1] - 1.2
    assert losses[17] < losses[1] - 0.5
    config = json.loads((ended.on_host(TWO, demo_root) / "tf_config.json").read_text())
    assert config["task"] == {"type": "worker", "index": 1}


def test_gradients_go_in_packs_of_the_bytes_that_the_job_says(tmp_path: Path, tensorflow_python: Path) -> None:
    losses: dict[str, list[float]] = {}
    packs: dict[str, tuple[int, int]] = {}
    for name, talk in (("bare", {}), ("packs", {"allreduce": {"buffer_size": 100_000}})):
        (tmp_path / name).mkdir()
        job = example("tensorflow") | {"communication": talk}
        job["cluster"]["nodes"] = job["cluster"]["nodes"][:2]
        job["run"] = {"script": "tensorflow_packs.py", "args": ["--steps", "6", "--checkpoint-every", "6"]}
        ended = apply(tmp_path / name, "tensorflow", job, tensorflow_python, more=[HERE / "tensorflow_packs.py"])
        losses[name] = [*ended.losses().values()]
        said = re.findall(r"all_reduce tensors: (\d+) all_reduces, .* num_packs = (\d+)", ended.log(ONE, 0, "err"))
        packs[name] = max((int(tensors), int(count)) for tensors, count in said)
    tensors, _ = packs["bare"]
    assert tensors > 1
    assert packs == {"bare": (tensors, 1), "packs": (tensors, 2)}, "of 256 KiB, and of what is left"
    assert losses["packs"] == pytest.approx(losses["bare"], abs=1e-5)
    assert len(losses["bare"]) == 6


def test_a_chief_trains_by_a_worker_and_a_parameter_server_which_end_with_it(
    tmp_path: Path, tensorflow_python: Path, demo_root: Path
) -> None:
    job = example("tensorflow")
    job["cluster"]["nodes"][2]["role"] = "parameter_server"
    job["run"]["args"] = ["--steps", "24", "--checkpoint-every", "12"]
    ended = apply(tmp_path, "tensorflow", job, tensorflow_python, env=PROXY)
    losses = ended.losses()
    assert list(losses) == list(range(1, 25))
    assert losses[24] < losses[1] - 1.2
    assert {item["name"]: item["state"] for item in ended.result["nodes"]} == dict.fromkeys((ONE, TWO, THREE), "ended")
    kept = [ended.on_host(name, demo_root).glob("checkpoints/*/COMPLETE") for name in (ONE, TWO, THREE)]
    assert [len(list(marks)) for marks in kept] == [2, 0, 0]


def test_tensorflow_reads_its_tasks_as_they_were_meant(tensorflow_python: Path) -> None:
    plans = [
        bound(cluster_of(*roles))
        for roles in (("worker",), ("master", "worker"), ("master", "worker", "parameter_server", "worker"))
    ]
    nodes = [node for made in plans for node in made.nodes]
    configs = [node.processes[0].env["TF_CONFIG"] for node in nodes]
    done = subprocess.run(
        [str(tensorflow_python), str(Path(__file__).with_name("tensorflow_reader.py"))],
        input=json.dumps(configs),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.rpartition("answer ")[2])
    assert [answer["cluster"] for answer in answers] == [json.loads(text)["cluster"] for text in configs]
    addresses = ["127.0.0.1" if len(made.nodes) == 1 else node.address for made in plans for node in made.nodes]
    assert [answer["address"] for answer in answers] == [
        f"{address}:{29500 + node.node_rank}" for address, node in zip(addresses, nodes, strict=True)
    ]
    assert [answer["is_chief"] for answer in answers] == [node.node_rank == 0 for node in nodes]
