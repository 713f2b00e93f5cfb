"""What processes of tests leave out of torch: training is the same without it, and whoever wants it has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

TRAIN = """
import sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
model = DistributedDataParallel(torch.nn.Linear(3, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 3)).square().sum().backward()
    optimizer.step()
print([parameter.tolist() for parameter in model.parameters()])
print("sympy" in sys.modules)
dist.destroy_process_group()
"""
COMPILE = """
import torch
import torch.distributed.pipelining
print(torch.compile(lambda given: given + 1, backend="eager")(torch.ones(1)).item())
print(torch.export.export(torch.nn.Linear(1, 1), (torch.ones(1, 1),)).graph_signature.user_outputs)
"""


def said_by(code: str, *args: str, is_light: bool) -> list[str]:
    """Run code to its end by the interpreter of the tests, and return the lines that it said."""
    env = {name: value for name, value in os.environ.items() if name != "LIGHT_TORCH"}
    env |= {"LIGHT_TORCH": "1"} if is_light else {}
    argv = [sys.executable, "-c", code, *args]
    return subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout.splitlines()


def test_training_is_the_same_without_the_compiler(tmp_path: Path) -> None:
    """To the bit; and it is true that it is left out, where `make` has installed the tests."""
    whole = said_by(TRAIN, str(tmp_path / "whole"), is_light=False)
    light = said_by(TRAIN, str(tmp_path / "light"), is_light=True)
    assert light[0] == whole[0]
    assert (whole[1], light[1]) == ("True", "False")


def test_whoever_compiles_or_exports_has_all_of_it() -> None:
    """By torch's own modules, as if they had been imported at once."""
    assert said_by(COMPILE, is_light=True)[0] == "2.0"
    assert said_by(COMPILE, is_light=True) == said_by(COMPILE, is_light=False)
