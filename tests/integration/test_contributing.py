"""What CONTRIBUTING.md prints is applied to a copy of the tree, and what each patch adds is used there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.agent.nvml_stub import CONTROL
from tests.agent.nvml_stub import nvml_library as nvml_library
from tests.agent.nvml_stub import nvml_stub as nvml_stub
from tests.integration.headless import dttui, write_job
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

pytestmark = pytest.mark.timeout(600)
RUN_S = 540.0
"""The tests of others take 40 s of a quiet core."""
ROOT = Path(__file__).resolve().parents[2]
KINDS = (
    "A framework",
    "A verb",
    "A check of the preflight",
    "A screen",
    "A cause of a failure",
    "A metric",
    "A metric of a host",
)
MOST_FILES = 3
ONE, TWO = "pytorch-dev-env", "llm-training-env"
COUNTING = (
    "tests/unit/compose/test_templates.py",
    "tests/unit/diagnosis/test_causes.py",
    "tests/unit/frameworks/test_bundles.py",
    "tests/unit/preflight/test_hosts.py",
    "tests/unit/spec/test_dialects.py",
    "tests/unit/spec/test_loader.py",
    "tests/unit/spec/test_messages.py",
    "tests/unit/spec/test_schema.py",
    "tests/unit/test_doors.py",
    "tests/unit/test_names.py",
    "tests/unit/words/test_advised_commands.py",
    "tests/unit/words/test_catalogue.py",
)
"""Tests that count up what there is of a kind, or what is told of it."""
LEFT_OUT = shutil.ignore_patterns("__pycache__", "frameworks-*", "*.png")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def printed() -> dict[str, str]:
    """Return the patches, by the heading that each stands below."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)[1:]
    blocks = {
        heading: re.findall(r"^```diff\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }
    return {heading: patch for heading, found in blocks.items() for patch in found}


def files_of(patch: str) -> list[str]:
    return re.findall(r"^\+\+\+ b/(.+)$", patch, re.MULTILINE)


def apply(patch: str, tree: Path, *options: str) -> None:
    # Not as part of a repository that the copy may lie in, which git would take the paths for.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    done = subprocess.run(
        ["git", "apply", *options, "-"],
        cwd=tree,
        input=patch,
        text=True,
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with all patches, each of which fits the tree as it is, too."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("dttui", "agent", "themes", "examples", "tests", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=LEFT_OUT, symlinks=True)
    for name in ("pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, copy)
    patches = printed()
    for patch in patches.values():
        apply(patch, copy, "--check")
    for patch in patches.values():
        apply(patch, copy)
    return copy


@pytest.fixture
def run(tree: Path, demo_root: Path) -> Run:
    """Run a module of the copy, in this test's environment."""
    shared = demo_root / "copy"  # Agents of the copy, not those of the tree itself.

    def run_module(
        *arguments: str | Path, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *map(str, arguments)],
            cwd=tree,
            env={
                **os.environ,
                **(environment or {}),
                "PYTHONPATH": f"{tree}:{tree / 'agent'}",
                "DTTUI_DEMO_ROOT": str(shared),
            },
            capture_output=True,
            text=True,
            timeout=RUN_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return run_module


def test_there_is_a_patch_of_each_kind_of_at_most_three_files_with_its_test() -> None:
    patches = printed()
    assert tuple(patches) == KINDS
    for kind, patch in patches.items():
        files = files_of(patch)
        assert len(files) <= MOST_FILES, kind
        assert any(file.startswith("tests/") for file in files), kind


def test_the_tests_that_come_with_the_patches_pass(run: Run, tree: Path) -> None:
    tests = [file for patch in printed().values() for file in files_of(patch) if file.startswith("tests/")]
    done = run("pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run("ruff", "check", *[file for patch in printed().values() for file in files_of(patch)]).returncode == 0


@pytest.fixture
def jax_job(tmp_path: Path) -> Path:
    """A job of the framework that is added, of two nodes."""
    (tmp_path / "train.py").write_text(
        "import os\nprint(*(os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'JAX_COORDINATOR_ADDRESS')))\n"
    )
    return write_job(tmp_path, {ONE: 1, TWO: 1}, framework="jax", run={"script": "train.py", "workdir": "."})


def test_an_added_framework_validates_plans_and_renders(run: Run, jax_job: Path, tmp_path: Path) -> None:
    done = run("dttui", "validate", jax_job)
    assert done.returncode == 0, done.stderr
    done = run("dttui", "plan", jax_job, "--demo", "--output", "json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert (plan["framework"], plan["world_size"]) == ("jax", 2)
    done = run("dttui", "render", jax_job, "--demo", "-o", tmp_path / "rendered")
    assert done.returncode == 0, done.stderr
    assert any("JAX_COORDINATOR_ADDRESS" in path.read_text() for path in (tmp_path / "rendered").rglob("*.sh"))
    # Where it is misspelt it is among what may be written, and in the schema.
    wrong = jax_job.with_name("wrong.yaml")
    wrong.write_text(jax_job.read_text().replace("framework: jax", "framework: jaxx"))
    assert 'did you mean "jax"?' in run("dttui", "validate", wrong).stderr
    assert '"jax"' in run("dttui", "schema").stdout


def test_an_added_framework_without_an_example_has_a_job_to_start_from(run: Run, tmp_path: Path) -> None:
    done = run("dttui", "--demo", "init", "--framework", "jax", tmp_path / "mine")
    assert done.returncode == 0, done.stderr
    assert f"JAX comes without an example: write your script to {tmp_path}/mine/train.py" in done.stdout
    (tmp_path / "mine" / "train.py").write_text("print('hello')\n")
    done = run("dttui", "plan", tmp_path / "mine" / "job.yaml", "--demo", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["framework"] == "jax"


def test_what_is_added_in_english_is_all_that_the_tests_of_the_others_need(run: Run) -> None:
    done = run("pytest", "-q", "-p", "no:cacheprovider", "-rs", *COUNTING, environment={"DTTUI_REQUIRE_CHINESE": "0"})
    assert done.returncode == 0, done.stdout + done.stderr
    # Each patch but the framework's says something for which there is no Chinese yet.
    for told in ("sharded arrays", "print the directory of a job", "CPUs", "zones", "protobuf on {host}"):
        assert told in done.stdout
    done = run("pytest", "-q", "-p", "no:cacheprovider", "tests/integration/test_secrets.py", "-k", "added")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_added_framework_launches_and_an_added_verb_tells_where_its_job_is(run: Run, jax_job: Path) -> None:
    done = run("dttui", "--demo", "--apply", jax_job, "--output", "json", "--ignore", "package-missing")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    lines = [next(Path(result["directory"]).glob(f"logs/0/*/{rank}.out")).read_text().split() for rank in (0, 1)]
    assert [line[:2] for line in lines] == [["0", "2"], ["1", "2"]]
    assert lines[0][2] == lines[1][2]
    where = run("dttui", "where", "last")
    assert where.stdout == result["directory"] + "\n", where.stderr


def test_an_added_check_shows_on_the_board(run: Run, tmp_path: Path) -> None:
    job = write_job(tmp_path, {ONE: 1}, framework="command", run={"command": ["true"]})
    done = run("dttui", "preflight", job, "--demo")
    lines = done.stdout.splitlines()
    heading, row = next(pair for pair in pairwise(lines) if "reach" in pair[0])
    assert "CPUs" in heading.split(), done.stdout + done.stderr
    assert row[heading.index("CPUs")] == "✓"


def test_an_added_cause_is_diagnosed_from_a_log(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise TypeError('Descriptors cannot be created directly.')\n")
    job = write_job(tmp_path, {ONE: 1}, framework="pytorch-ddp", run={"script": "train.py", "workdir": "."})
    done = run("dttui", "--demo", "--apply", job, "--output", "json")
    assert done.returncode == 100, done.stdout + done.stderr
    told = run("dttui", "diagnose", "last")
    assert f"protobuf on {ONE} is newer than the code that was generated for it." in told.stdout, told.stderr


def test_added_metrics_are_in_the_agents_prometheus_text_and_an_alert_may_wait_for_them(
    run: Run, nvml_stub: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    driver = nvml_stub(gpus=2, settings={"fan": 45, "fan.1": 80})
    environment = {name: driver[name] for name in ("LD_LIBRARY_PATH", CONTROL)}
    told = run("dtagent", "metrics", environment=environment)
    speeds = re.findall(r'^dtagent_gpu_fan_speed_ratio\{gpu="(\d)".*\} (.*)$', told.stdout, re.MULTILINE)
    assert speeds == [("0", "0.45"), ("1", "0.8")], told.stdout + told.stderr
    shown = run("dtagent", "top", environment=environment)
    assert re.findall(r"fan \d+%", shown.stdout) == ["fan 45%", "fan 80%"], shown.stdout + shown.stderr
    assert re.search(r"^dtagent_memory_major_faults_per_second [\d.]+$", told.stdout, re.MULTILINE), told.stdout
    assert re.search(r"^ host .*\bfaults [\d.]+k?/s", shown.stdout, re.MULTILINE), shown.stdout
    alerts = {"alerts": [{"metric": "gpu.fan > 90 for 10m"}, {"metric": "host.major_faults > 1000"}]}
    job = write_job(tmp_path, {ONE: 1}, framework="command", run={"command": ["true"]}, monitoring=alerts)
    assert run("dttui", "validate", job).returncode == 0
    unknown = dttui("validate", job).stderr  # The tree itself does not know them.
    assert "gpu.fan" in unknown
    assert "host.major_faults" in unknown
