"""FSDP2 for real: each way of sharding trains on the embedded cluster, by torchrun and by accelerate's launcher."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.frameworks.launching import apply, example, slots
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

ONE, TWO = "pytorch-dev-env", "llm-training-env"


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
