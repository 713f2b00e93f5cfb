"""What `plan`, `validate` and `apply` say of nodes and words: sums, seed 004's answer, nodes that are only counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dttui.cli import main

INVENTORY = """\
environments:
  - {name: a, host: gpu1, resources: {gpu: {count: 2, type: A100, memory: 80GB}, cpu: {cores: 16, memory: 128GB}}}
  - {name: b, host: gpu2, resources: {gpu: {count: 4, type: A100, memory: 80GB}}}
"""
JOB = """\
distributed_training:
  name: mine
  framework: pytorch-ddp
  dataset: none
  run: {script: /srv/train.py}
"""
NODES = "  cluster: {nodes: [{id: a}, {id: b, role: master}]}\n"
COUNTED = "  cluster: {count: 500, gpus_per_node: 4}\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    (tmp_path / "job.yaml").write_text(JOB + NODES)
    (tmp_path / "counted.yaml").write_text(JOB + COUNTED)
    (tmp_path / "odd.yaml").write_text(JOB + NODES + "  monitoring: {metrics: [gpu.zork]}\n")
    return tmp_path


def run(files: Path, verb: str, name: str, *more: str) -> int:
    inventory = [] if verb == "validate" else ["--inventory", str(files / "inventory.yaml")]
    return main([verb, str(files / name), *inventory, *more])


def test_a_plan_sums_up_gpu_memory_and_answers_as_the_seed_does(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(files, "plan", "job.yaml", "--output", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["distributed"] == {
        "is_distributed": True,
        "node_count": 2,
        "total_gpus": 6,
        "master_node": "b",
        "framework": "pytorch-ddp",
    }
    assert document["aggregate"]["is_distributed"] is True
    assert document["aggregate"]["gpu_memory_bytes"] == 6 * 80 * 10**9
    assert run(files, "plan", "job.yaml") == 0
    assert "GPUs 6 (6×A100) · GPU memory 480 GB · CPUs 16 · memory 128 GB" in capsys.readouterr().out


def test_counted_nodes_are_planned_in_a_few_lines_and_a_launch_asks_which(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(files, "plan", "counted.yaml") == 0
    told = capsys.readouterr().out
    assert "world size 2000 on 500 nodes" in told
    assert "… and 499 more" in told
    assert len(told.splitlines()) < 30
    assert run(files, "apply", "counted.yaml") == 2
    told = capsys.readouterr().err
    assert "counted.yaml:6:20" in told
    assert (
        "this says how many nodes, and not which: 500. List them under cluster.nodes; 1 of the inventory fit: b" in told
    )


def test_validate_tells_a_metric_that_nobody_measures_at_its_place(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(files, "validate", "odd.yaml") == 0
    assert "odd.yaml:7:26: distributed_training.monitoring.metrics[0]: nobody measures" in capsys.readouterr().out
    assert run(files, "validate", "odd.yaml", "--output", "json") == 0
    note, handed = json.loads(capsys.readouterr().out)["notes"]
    assert (note["code"], note["place"]["line"]) == ("unknown-metric", 7)
    assert handed["code"] == "for-script"


def test_counted_nodes_have_no_master_in_data(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(files, "plan", "counted.yaml", "--output", "json") == 0
    told = json.loads(capsys.readouterr().out)["distributed"]
    assert (told["node_count"], told["master_node"]) == (500, None)


def test_two_numbers_of_gpus_a_node_are_refused_where_they_differ(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for count, status in ((4, 0), (8, 2)):
        (files / "twice.yaml").write_text(JOB + COUNTED + f"  resources: {{gpu: {{count: {count}}}}}\n")
        assert run(files, "validate", "twice.yaml") == status
    told = "".join(capsys.readouterr())
    assert "twice.yaml:6:40" in told
    assert "this is not what resources.gpu.count says; give it once" in told
