"""Whether a script is of the framework that was chosen: told by its imports, and not where they cannot be read."""

from __future__ import annotations

import ast
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dttui.frameworks.registry import frameworks
from dttui.inventory.models import GpuResources, Inventory, Resources
from dttui.launch.local_plan import make_local_plan
from dttui.launch.script_imports import MOST_FILES, check_imports, check_sharing, imports_of
from dttui.planning.submission import Submission
from dttui.spec.models import DataParallel, Model, Recovery, Run, Strategy
from tests.unit.preflight.test_preflight import INVENTORY, NAMES
from tests.unit.seed_cluster import environment, make_job

EXAMPLES = Path(__file__).parents[3] / "examples"
PLAIN = "import torch\nfrom torch.nn.parallel import DistributedDataParallel\n"
SCRIPT = Run(script="train.py", workdir="work")


def messages(framework: str, directory: Path, run: Run = SCRIPT, /, **files: str) -> list[str]:
    for name, text in files.items():
        path = directory / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [item.message for item in check_imports(framework, run, directory)]


@pytest.mark.parametrize(
    ("framework", "message"),
    [
        ("pytorch-ddp", None),
        ("command", None),
        ("deepspeed", "train.py does not import deepspeed: ds_config.json is written, and nothing reads it"),
        (
            "pytorch-fsdp",
            "train.py does not import torch.distributed.fsdp: nothing shards the model, and every rank holds all of it",
        ),
        ("horovod", "train.py does not import horovod: every process trains by itself"),
        ("tensorflow", "train.py does not import tensorflow: TF_CONFIG is set, and nothing reads it"),
        (
            "megatron-lm",
            "train.py does not import megatron: Megatron-LM's arguments are put after its own, and nothing reads them",
        ),
    ],
)
def test_a_plain_script_is_told_what_follows_of_another_framework(
    framework: str, message: str | None, tmp_path: Path
) -> None:
    assert messages(framework, tmp_path, train=PLAIN) == ([message] if message else [])


@pytest.mark.parametrize(
    ("framework", "text"),
    [
        ("deepspeed", "from deepspeed import comm as dist"),
        ("deepspeed", "def main():\n    import deepspeed.comm"),
        ("deepspeed", "from transformers import Trainer"),
        ("deepspeed", "import importlib\nengine = importlib.import_module('deepspeed')"),
        ("pytorch-fsdp", "from torch.distributed import fsdp"),
        ("pytorch-fsdp", "import torch.distributed\nmodel = torch.distributed.fsdp.fully_shard(model)"),
        ("horovod", "import horovod.torch as hvd"),
        ("tensorflow", "import tensorflow as tf"),
        ("megatron-lm", "from megatron.core import parallel_state"),
    ],
)
def test_a_script_of_the_framework_is_known_by_any_way_to_import_it(framework: str, text: str, tmp_path: Path) -> None:
    assert messages(framework, tmp_path, train=text) == []


def test_modules_beside_the_script_are_read_too_and_others_are_not(tmp_path: Path) -> None:
    own = {"train": "from trainer.loop import run\nimport yaml", "trainer__loop": "from . import engine"}
    assert messages("deepspeed", tmp_path, SCRIPT, **own, trainer__engine="import torch", trainer____init__="") != []
    assert messages("deepspeed", tmp_path, trainer__engine="import deepspeed") == []
    below = Run(script="src/train.py", workdir="work")
    assert messages("deepspeed", tmp_path / "b", below, src__train="import util", src__util="import deepspeed") == []


def test_a_module_is_found_as_python_finds_it(tmp_path: Path) -> None:
    run = Run(module="jobs.train", workdir="work")
    assert messages("deepspeed", tmp_path, run, jobs__train=PLAIN)[0].startswith("jobs/train.py does not import")
    run = Run(module="jobs.more", workdir="work")
    assert messages("deepspeed", tmp_path, run, jobs__more____main__="import deepspeed") == []
    assert check_imports("deepspeed", Run(module="installed.train", workdir="work"), tmp_path) == []


def test_of_what_cannot_be_read_nothing_is_said(tmp_path: Path) -> None:
    assert check_imports("deepspeed", SCRIPT, tmp_path) == []
    for text in ("print 'Python 2'", "\0", "(" * 5000, f"x = {'1 + ' * 400_000}1"):
        assert messages("deepspeed", tmp_path, train=text) == []
    many = {f"module{number}": f"import module{number + 1}" for number in range(MOST_FILES + 1)}
    assert messages("deepspeed", tmp_path, SCRIPT, train="import module0", **many) == []
    assert messages("deepspeed", tmp_path, train="import broken", broken="def") == []
    assert check_imports("deepspeed", Run(command=("python", "train.py"), workdir="work"), tmp_path) == []
    assert check_imports("deepspeed", Run(script="/srv/train.py"), tmp_path) == []


def test_a_script_that_has_changed_is_read_again(tmp_path: Path) -> None:
    assert messages("horovod", tmp_path, train=PLAIN) != []
    assert messages("horovod", tmp_path, train="import horovod.torch") == []


def test_plans_say_so_of_what_is_sent_and_of_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/train.py").write_text(PLAIN)
    for workdir, codes in (("work", ["script-imports"]), ("/srv", [])):
        job = make_job(*NAMES, framework="horovod", run=Run(script="train.py", workdir=workdir))
        plan = make_local_plan(Submission(job, INVENTORY, tmp_path))
        assert [item.code for item in plan.findings if item.code == "script-imports"] == codes
        assert not plan.errors


def test_megatrons_own_loop_is_spoken_of_to_scripts_that_may_run_it(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    model = Model(layers=2, hidden_size=64, heads=2, seq_length=32, vocab_size=128)
    gpus = Resources(gpu=GpuResources(count=2, simulated=True))
    without_cuda = Inventory(environments=(environment("a", resources=gpus),))
    for text, is_told in (
        ("from megatron.training import pretrain", True),
        ("def", True),
        ((EXAMPLES / "megatron-lm" / "train.py").read_text(), False),
    ):
        (tmp_path / "work/train.py").write_text(text)
        job = make_job("a", framework="megatron-lm", run=SCRIPT, model=model)
        plan = make_local_plan(Submission(job, without_cuda, tmp_path))
        assert ("megatron-cuda" in [item.code for item in plan.findings]) is is_told, text


@pytest.mark.parametrize("directory", sorted(EXAMPLES.glob("*/train.py")), ids=lambda path: path.parent.name)
def test_every_example_is_of_its_framework(directory: Path) -> None:
    known = {framework.name for framework in frameworks()} & {directory.parent.name}
    for framework in known:
        assert check_imports(framework, Run(script="train.py", workdir="."), directory.parent) == []
    found = imports_of(directory, directory.parent)
    assert found is not None
    assert {"torch", "tensorflow"} & found


def test_what_python_would_warn_of_in_a_script_is_not_said_here(tmp_path: Path) -> None:
    assert messages("deepspeed", tmp_path, train='import deepspeed\npattern = "\\d"\n') == []


def test_scripts_that_are_read_on_several_threads_leave_the_filters_of_warnings_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = 0
    most = 0
    parse = ast.parse

    def slow(text: bytes) -> ast.Module:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        both.wait(0.2)  # Let another thread come in where it may.
        inside -= 1
        return parse(text)

    both = threading.Event()
    monkeypatch.setattr(ast, "parse", slow)
    before = list(warnings.filters)
    scripts = [tmp_path / f"{name}.py" for name in "abc"]
    for script in scripts:
        script.write_text("import torch")
    with ThreadPoolExecutor(3) as pool:
        assert [*pool.map(lambda script: imports_of(script, tmp_path), scripts)] == [frozenset({"torch"})] * 3
    assert most == 1
    assert list(warnings.filters) == before


WRITES = 'import os\nplace = os.environ["DTTUI_CHECKPOINT_DIR"]\n'


@pytest.mark.parametrize(
    ("files", "recovery", "is_told"),
    [
        ({"train": WRITES}, {"on_node_failure": "restart"}, True),
        ({"train": "import saving\n", "saving": WRITES}, {"max_restarts": 2}, True),
        ({"train": WRITES + 'os.getenv("DTTUI_RESUME_FROM")\n'}, {"on_node_failure": "restart"}, False),
        ({"train": "import a\n" + WRITES, "a": 'NAME = "DTTUI_RESUME_FROM"\n'}, {"on_node_failure": "restart"}, False),
        ({"train": WRITES}, {}, False),
        ({"train": WRITES}, {"on_node_failure": "stop", "max_restarts": 2}, False),
        ({"train": PLAIN}, {"on_node_failure": "restart"}, False),
        ({"train": WRITES + "a broken line\n"}, {"on_node_failure": "restart"}, False),
        (
            {"train": WRITES},
            {"on_node_failure": "restart", "checkpoint": {"dir": "/c", "resume_args": ["--load={checkpoint}"]}},
            False,
        ),
    ],
)
def test_a_script_that_writes_checkpoints_and_never_reads_one_is_told_where_a_job_is_started_again(
    files: dict[str, str], recovery: dict[str, Any], is_told: bool, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    job = make_job(*NAMES, framework="pytorch-ddp", run=Run(script="train.py", workdir="."))
    job = job.model_copy(update={"recovery": Recovery.model_validate(recovery)})
    found = make_local_plan(Submission(job, INVENTORY, tmp_path)).findings
    told = [item.message for item in found if item.code == "script-never-resumes"]
    message = "train.py reads DTTUI_CHECKPOINT_DIR and never DTTUI_RESUME_FROM: another attempt begins training anew"
    assert told == ([message] if is_told else [])


def test_a_script_that_never_asks_for_its_share_is_told_where_samples_go_by_speed(tmp_path: Path) -> None:
    strategy = Strategy(data_parallel=DataParallel(batch_size=8, shares={NAMES[0]: 0.5}))
    job = make_job(*NAMES, strategy=strategy)
    (tmp_path / "train.py").write_text(PLAIN + "from settings import size\n")
    (tmp_path / "settings.py").write_text("size = config['batch_size']\n")
    run = Run(script="train.py", workdir="work")
    (finding,) = check_sharing(job, run, tmp_path)
    assert (finding.code, finding.path[-1]) == ("script-never-shares", "shares")
    assert finding.message.startswith('train.py never asks for "shares"')
    assert check_sharing(make_job(*NAMES), run, tmp_path) == []
    (tmp_path / "settings.py").write_text("size = config['shares'][rank]\n")
    assert check_sharing(job, run, tmp_path) == []
    assert check_sharing(job, Run(script="train.py", workdir="work"), EXAMPLES / "gpt") == []
