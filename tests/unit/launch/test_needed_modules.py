"""Which modules a script needs of its interpreter: what it cannot begin without, may do without, and what is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from dttui.launch.local_plan import make_local_plan
from dttui.launch.needed_modules import MOST_MODULES, needed_modules
from dttui.planning.needed_module import Demand
from dttui.planning.submission import Submission
from dttui.spec.models import Run
from tests.unit.preflight.test_preflight import INVENTORY, NAMES
from tests.unit.seed_cluster import make_job

SCRIPT = Run(script="train.py", workdir="work")


def write(directory: Path, **files: str) -> None:
    for name, text in files.items():
        path = directory / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def demands(directory: Path, run: Run = SCRIPT, /, **files: str) -> dict[str, str]:
    write(directory, **files)
    return {item.module: item.demand.value for item in needed_modules(run, directory)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import cv2, yaml.nodes\nfrom PIL import Image", {"cv2": "sure", "yaml": "sure", "PIL": "sure"}),
        ("try:\n    import apex\nexcept ImportError:\n    import torch", {}),
        ("try:\n    import apex\nexcept (ModuleNotFoundError, OSError):\n    apex = None\nelse:\n    import b", {}),
        ("try:\n    import apex\nexcept:\n    pass", {}),
        ("try:\n    import apex\nexcept KeyError:\n    import b", {"apex": "sure", "b": "late"}),
        ("import contextlib\nwith contextlib.suppress(ImportError):\n    import apex", {"contextlib": "sure"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import apex", {"typing": "sure"}),
        ("import a\nif a.TYPE_CHECKING:\n    import apex\nelse:\n    import b", {"a": "sure", "b": "sure"}),
        ("def f():\n    import d\n    try:\n        import apex\n    except ImportError:\n        pass", {"d": "late"}),
        ("async def f():\n    import wandb", {"wandb": "late"}),
        ("import sys\nif sys.argv:\n    import tomli", {"sys": "sure", "tomli": "late"}),
        ("class A:\n    import attr", {"attr": "sure"}),
        ("if __name__ == '__main__':\n    import fire", {"fire": "sure"}),
        ("def f():\n    import wandb\nimport wandb", {"wandb": "sure"}),
        ("from torch.utils.tensorboard import SummaryWriter", {"torch": "sure", "tensorboard": "sure"}),
        ("import dttui_collectives", {}),
        ("from . import missing", {}),
        ("import sys\nsys.path.insert(0, '../lib')\nimport ours", {"sys": "likely", "ours": "likely"}),
        ("import sys as s\ns.path.insert(0, '../lib')\nimport ours", {"sys": "likely", "ours": "likely"}),
        ("from sys import path\npath.insert(0, '../lib')\nimport ours", {"sys": "likely", "ours": "likely"}),
        ("import sys\nsys.modules['ours'] = sys\nimport ours", {"sys": "likely", "ours": "likely"}),
        ("import os\nos.system('pip install einops')\nimport einops", {"os": "likely", "einops": "likely"}),
        ("import subprocess as p\np.run(['pip', 'install', 'x'])\nimport x", {"subprocess": "likely", "x": "likely"}),
        ("import broken(", {}),
    ],
)
def test_what_a_file_imports_is_wanted_as_it_is_imported(text: str, expected: dict[str, str], tmp_path: Path) -> None:
    assert demands(tmp_path, train=text) == expected


def test_modules_that_are_sent_are_followed_and_not_demanded(tmp_path: Path) -> None:
    (tmp_path / "native.so").touch()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text("from .inner import x")
    found = demands(
        tmp_path,
        train="import helper, native, data.sets\nfrom lib import tools\ndef f():\n    import late_helper",
        helper="import sklearn\nif __name__ == '__main__':\n    import fire",
        late_helper="import h5py\nimport helper",
        lib__inner="import einops",
        lib__tools="import timm",
        data__sets="from ..beyond import y\nimport numpy",
    )
    assert found == {"sklearn": "sure", "einops": "sure", "timm": "sure", "numpy": "sure", "h5py": "late"}


def test_what_is_first_wanted_late_and_then_at_once_is_wanted_at_once_with_all_below_it(tmp_path: Path) -> None:
    found = demands(tmp_path, train="def f():\n    import a\nimport b", a="import c", b="import a", c="import cv2")
    assert found == {"cv2": "sure"}


def test_the_place_where_it_is_first_wanted_is_told(tmp_path: Path) -> None:
    write(tmp_path, train="import lib.tools", lib__tools="\n\nimport cv2")
    (item,) = needed_modules(SCRIPT, tmp_path)
    assert (item.file, item.line, item.demand) == ("lib/tools.py", 3, Demand.SURE)


def test_the_job_s_own_path_below_what_is_sent_counts(tmp_path: Path) -> None:
    run = SCRIPT.model_copy(update={"env": {"PYTHONPATH": "src:/srv/lib:${DIRECTORY}/x"}})
    assert demands(tmp_path, run, train="import ours", src__ours="import cv2") == {"cv2": "sure"}


def test_a_command_and_a_script_that_lies_elsewhere_say_nothing(tmp_path: Path) -> None:
    write(tmp_path, train="import cv2")
    assert needed_modules(Run(command=("python", "train.py"), workdir="work"), tmp_path) == ()
    assert needed_modules(Run(script="/srv/train.py"), tmp_path) == ()
    assert needed_modules(Run(module="train", workdir="work"), tmp_path)[0].module == "cv2"


def test_no_more_are_asked_for_than_hosts_answer_and_those_that_are_sure_come_first(tmp_path: Path) -> None:
    many = "\n".join(f"    import late{number}" for number in range(2 * MOST_MODULES))
    write(tmp_path, train=f"def f():\n{many}\nimport cv2")
    found = needed_modules(SCRIPT, tmp_path)
    assert (len(found), found[0].module) == (MOST_MODULES, "cv2")


def test_a_plan_has_what_its_script_imports(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    write(tmp_path / "work", train="import cv2")
    made = make_local_plan(Submission(make_job(*NAMES, run=SCRIPT), INVENTORY, base=tmp_path))
    assert [item.module for item in made.imports] == ["cv2"]
