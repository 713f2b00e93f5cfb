"""FSDP2 for real: each way of sharding trains on the embedded cluster, by torchrun and by accelerate's launcher."""

from __future__ import annotations

import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.jobs.view import NODE_OUT
from tests.frameworks.launching import EXAMPLES, apply, example, slots
from tests.integration.elastic_jobs import WAIT_S, Running, follower_of
from tests.integration.gangs import ONE, TWO
from tests.integration.headless import dttui, result_of, write_job
from tests.integration.slow_steps import slow_down
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

STEPS = 80
KEPT_EVERY = 10


@pytest.mark.thorough
def test_accelerates_launcher_starts_the_same_script(tmp_path: Path, frameworks_python: Path, demo_root: Path) -> None:
    job = example("pytorch-fsdp")
    job["framework_options"] = {"launcher": "accelerate"}
    job["cluster"] = slots({ONE: 2, TWO: 2})
    job["settings"] = {"steps": 20, "checkpoint_every": 10}
    ended = apply(tmp_path, "pytorch-fsdp", job, frameworks_python)
    losses = ended.losses()
    assert list(losses) == list(range(1, 21))
    assert losses[20] < losses[1] - 1.5
    for name in (ONE, TWO):
        kept = ended.on_host(name, demo_root) / "checkpoints" / "step-00000020"
        assert len(list(kept.glob("rank-*.pt"))) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["sharded", "full"])
def test_a_copy_a_node_in_bfloat16_goes_on_from_its_checkpoint(tmp_path: Path, form: str) -> None:
    job = example("pytorch-fsdp")
    job["framework_options"] = {"shard_group": "node", "state_dict": form}
    job["cluster"] = slots({ONE: 2, TWO: 2})
    job["strategy"] |= {"zero_stage": 2, "recomputation": "full"}
    job["model"]["precision"] = "bf16"
    job["recovery"] = {"checkpoint": {"dir": str(tmp_path / "kept")}}
    losses: dict[int, float] = {}
    for name, steps in (("first", 8), ("second", 16)):
        (tmp_path / name).mkdir()
        job["settings"] = {"steps": steps, "checkpoint_every": 8}
        ended = apply(tmp_path / name, "pytorch-fsdp", job, Path(sys.executable))
        assert min(ended.losses()) == len(losses) + 1
        losses |= ended.losses()
    assert list(losses) == list(range(1, 17))
    assert losses[16] < losses[1] - 1.5
    assert losses[9] < losses[8] + 0.3


def test_a_sharded_checkpoint_is_shared_out_anew_when_a_node_is_lost(tmp_path: Path) -> None:
    """Within 150 s: torchrun killed on one of two nodes; what three ranks kept is read by the two that are left."""
    for name in ("train.py", "recipe.py"):
        shutil.copy(EXAMPLES / "pytorch-fsdp" / name, tmp_path)
    slow_down(tmp_path / "train.py")
    kept = tmp_path / "kept"
    job = write_job(
        tmp_path,
        {ONE: 2, TWO: 1},
        framework="pytorch-fsdp",
        framework_options={"state_dict": "sharded", "elastic": {"min_nodes": 1, "wait_s": WAIT_S}},
        run={"script": "train.py", "workdir": "."},
        strategy={"type": "data_parallel", "data_parallel": {"batch_size": 32}},
        settings={"steps": STEPS, "checkpoint_every": KEPT_EVERY},
        recovery={"checkpoint": {"dir": str(kept), "shared": True}},
    )
    started = dttui("--demo", "--apply", job, "--detach", "--output", "json")
    assert started.returncode == 0, started.stderr
    running = Running(jobs.find(result_of(started)["job_id"]))
    wait_until((kept / f"step-{KEPT_EVERY:08}" / "COMPLETE").exists, "a checkpoint", 120.0)
    running.kill_launcher(TWO)
    document = running.end(150.0)
    assert document["state"] == "SUCCEEDED", document
    follower, metrics = follower_of(running.directory)
    assert [event.data["subject"] for event in follower.view.findings if event.data["code"] == NODE_OUT] == [TWO]
    assert len(list((kept / f"step-{STEPS:08}").glob("rank-*.pt"))) == 2
    losses = {item.step or 0: item.loss or 0.0 for item in metrics}
    assert max(losses) == STEPS
    assert losses[STEPS] < losses[1] - 1.5
    assert max(losses[step + 1] - losses[step] for step in range(1, STEPS)) < 0.3
    again = {event.data["restarts"] for event in running.events(EventKind.RANKS)}
    assert again == {0, 1}, "the next round is the first that trains on"
    twice: dict[str, list[float]] = defaultdict(list)
    for path in running.directory.logs(0, ONE).parent.glob("*/*.out"):
        for step, loss in re.findall(r"step (\d+)  loss ([0-9.]+)", path.read_text()):
            twice[step].append(float(loss))
    assert all(max(told) - min(told) < 0.01 for told in twice.values()), "the same batch, on any number of ranks"
