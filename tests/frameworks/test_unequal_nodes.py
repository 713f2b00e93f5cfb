"""Nodes with 2, 4 and 8 GPUs for real: fourteen ranks train together, by DDP and by FSDP2."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.frameworks.launching import apply, example, slots
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

COUNTS = {"pytorch-dev-env": 2, "llm-training-env": 4, "nlp-research-lab": 8}
STEPS = 6


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["gpt", "pytorch-fsdp"])
def test_fourteen_ranks_are_contiguous_and_each_has_a_gpu_of_its_own(tmp_path: Path, name: str) -> None:
    job = example(name)
    job["cluster"] = slots(COUNTS)
    job["strategy"]["data_parallel"]["batch_size"] = 28
    job["run"] |= {"script": "told_place.py", "args": ["--steps", str(STEPS)] if name == "gpt" else []}
    job["settings"] = {"steps": STEPS}
    job["communication"]["collective_timeout"] = "9m"
    more = [Path(__file__).with_name("told_place.py")]
    ended = apply(tmp_path, name, job, Path(sys.executable), env={"OMP_NUM_THREADS": "1"}, more=more)
    assert ended.result["world_size"] == 14
    first = 0
    for node_rank, (node, count) in enumerate(COUNTS.items()):
        for local_rank in range(count):
            place = {"RANK": first + local_rank, "LOCAL_RANK": local_rank, "GROUP_RANK": node_rank}
            told = json.loads(ended.log(node, first + local_rank).splitlines()[0])
            assert told == {**place, "WORLD_SIZE": 14, "LOCAL_WORLD_SIZE": count}
        first += count
    losses = ended.losses()
    assert losses[STEPS] < losses[1] - 0.5
