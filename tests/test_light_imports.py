"""What processes of tests leave out of imports: all is the same without it, and whoever wants it has it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

TRAIN = """
import sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(1)
print(torch.rand(1, generator=torch.Generator().manual_seed(1)).item())
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


SHARDED = """
import sys, torch
print(type(sys.modules["torch._meta_registrations"]).__name__)
import torch.distributed.fsdp
print(type(sys.modules["torch._meta_registrations"]).__name__)
with torch.device("meta"):
    print(torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3)).sum(0).shape)
print(torch.rand(1, generator=torch.Generator().manual_seed(1)).item())
"""
CLASSES = """
import dataclasses, pydantic, sys
sys.path.insert(0, sys.argv[1])
from values import Value, Slotted
print(Value(1), Value(1) == Value(1, []), Value(1) < Value(2), hash(Slotted(3)) == hash((3,)))
print(dataclasses.replace(Slotted(3), a=4))
try:
    Slotted(3).a = 5
except dataclasses.FrozenInstanceError as error:
    print(error)
print(pydantic.TypeAdapter(Value).validate_python({"a": "7"}))
"""
VALUES = """
from dataclasses import dataclass, field
@dataclass(order=True)
class Value:
    a: int
    b: list[int] = field(default_factory=list)
@dataclass(frozen=True, slots=True)
class Slotted:
    a: int
"""


def said_by(code: str, *args: str, is_light: bool) -> list[str]:
    """Run code to its end by the interpreter of the tests, and return the lines that it said."""
    env = {name: value for name, value in os.environ.items() if name != "LIGHT_IMPORTS"}
    env |= {"LIGHT_IMPORTS": "1"} if is_light else {}
    argv = [sys.executable, "-c", code, *args]
    return subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout.splitlines()


def test_each_python_finds_it_as_it_starts() -> None:
    """A line of a `.pth` is run where it begins with `import`, and read as a directory's name elsewhere."""
    (line,) = Path("tests/light.pth").read_text().splitlines()
    assert line.startswith("import ")


def test_training_is_the_same_without_the_compiler(tmp_path: Path) -> None:
    """To the bit; and it is true that it is left out, where `make` has installed the tests."""
    whole = said_by(TRAIN, str(tmp_path / "whole"), is_light=False)
    light = said_by(TRAIN, str(tmp_path / "light"), is_light=True)
    assert light[:2] == whole[:2]
    assert (whole[2], light[2]) == ("True", "False")


def test_whoever_compiles_or_exports_has_all_of_it() -> None:
    """By torch's own modules, as if they had been imported at once."""
    assert said_by(COMPILE, is_light=True)[0] == "2.0"
    assert said_by(COMPILE, is_light=True) == said_by(COMPILE, is_light=False)


def test_shapes_are_told_where_something_is_imported_that_asks_for_them() -> None:
    whole, light = (said_by(SHARDED, is_light=is_light) for is_light in (False, True))
    assert whole[:3] == ["module", "module", "torch.Size([4])"]
    assert light == ["_Deferred", *whole[1:]]


def test_data_classes_are_the_same_from_what_was_compiled_before(tmp_path: Path) -> None:
    """Of what lies beside their module, of a file that is none, and after the module has changed."""
    module = f"values_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(VALUES)
    code = CLASSES.replace("values", module)
    whole = said_by(code, str(tmp_path), is_light=False)
    assert said_by(code, str(tmp_path), is_light=True) == whole
    (kept,) = Path(sysconfig.get_path("purelib")).glob(f"__pycache__/light_dataclasses.*.{module}")
    written = kept.stat().st_mtime_ns
    assert said_by(code, str(tmp_path), is_light=True) == whole
    assert kept.stat().st_mtime_ns == written
    kept.write_bytes(b"nonsense")
    assert said_by(code, str(tmp_path), is_light=True) == whole
    (tmp_path / f"{module}.py").write_text(VALUES.replace("b:", "longer:"))
    assert said_by(code, str(tmp_path), is_light=True)[0].startswith("Value(a=1, longer=[]) ")
    kept.unlink()
