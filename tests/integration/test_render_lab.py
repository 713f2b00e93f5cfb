"""A rendered directory on isolated hosts, by the commands of its README: the same training without dttui."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gloo import LEAVES
from tests.integration.headless import dttui_here, write_job
from tests.integration.trained import Trained
from tests.lab.hosts import Lab
from tests.lab.interpreter import USER_PYTHON

pytestmark = [pytest.mark.lab, pytest.mark.torch, pytest.mark.timeout(300)]

CHECKOUT = str(Path(__file__).parents[2])
DEADLINE_S = 100
MEETS = (
    """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
count = torch.ones(1)
dist.all_reduce(count)
print(int(count), "ranks have met", flush=True)
"""
    + LEAVES
)


@pytest.fixture
def without_dttui(deployed: Lab) -> Iterator[Lab]:
    """The hosts with nothing of dttui to be imported or run, but for what jobs need no more: their agents."""
    for host in deployed.values():
        host.run(["mkdir", "-p", CHECKOUT])
        host.run(["mount", "-t", "tmpfs", "tmpfs", CHECKOUT])
    yield deployed
    for host in deployed.values():
        host.run(["umount", CHECKOUT])


def losses(lines: str) -> dict[int, float]:
    """Return step → loss, as rank 0 reported it."""
    found = [json.loads(line) for line in lines.splitlines()]
    return {line["step"]: line["loss"] for line in found if line["rank"] == 0}


def started_by_hand(out: Path) -> list[str]:
    """Do what the README says to paste; return what each node then printed, in the order of their ranks."""
    lines = [line.strip() for line in (out / "README.md").read_text().splitlines() if line.startswith("    ")]
    starts = [line for line in lines if line.startswith("ssh")]
    before = [line for line in lines if line.startswith(("tar", "(umask"))]
    assert len(starts) == sum(line.startswith("tar") for line in before)
    for line in before:
        subprocess.run(["bash", "-c", line], cwd=out, check=True, capture_output=True, timeout=DEADLINE_S)
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    running = [subprocess.Popen(["bash", "-c", line], text=True, **pipes) for line in starts]
    try:
        told = [process.communicate(timeout=DEADLINE_S)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * len(starts), "\n".join(told)
    return told


def test_the_ejected_example_trains_to_the_same_losses_by_hand(
    trained: Trained, without_dttui: Lab, tmp_path: Path
) -> None:
    lab, out = without_dttui, tmp_path / "out"
    rendered = dttui_here("render", trained.job, "-o", out, "--inventory", trained.inventory, "--output", "json")
    assert rendered.returncode == 0, rendered.stderr
    assert json.loads(rendered.stdout)["files"]

    for name, host in lab.items():
        for program in (
            ["sh", "-c", "command -v dttui || command -v dtagent"],
            [USER_PYTHON, "-c", "import dttui.cli"],
        ):
            assert host.run(program, check=False).returncode != 0, name
    told = started_by_hand(out)
    assert len(told) == 3
    assert "world size 4" in told[0]

    metrics = lab["gpu2"].run(["cat", "/root/test-job/node0/metrics.jsonl"]).stdout.decode()
    by_hand = losses(metrics)
    assert by_hand == pytest.approx(
        losses((Path(trained.result["directory"]) / "telemetry" / "metrics.jsonl").read_text()), abs=1e-4
    )
    assert by_hand[30] < by_hand[1] - 1
    assert lab["gpu2"].run(["ls", "/root/test-job/node0/checkpoints"]).stdout != b""


def test_an_elastic_job_finds_its_nodes_by_the_key_that_the_readme_says_how_to_make(
    without_dttui: Lab, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(MEETS)
    job = write_job(
        tmp_path,
        {"gpu2": 1, "gpu1": 1},
        framework="pytorch-ddp",
        framework_options={"elastic": {"min_nodes": 2}},
        run={"script": "train.py", "workdir": ".", "python": USER_PYTHON},
    )
    out = tmp_path / "out"
    inventory = without_dttui.inventory(tmp_path / "inventory.yaml")
    rendered = dttui_here("render", job, "-o", out, "--inventory", inventory)
    assert rendered.returncode == 0, rendered.stderr
    assert all("2 ranks have met" in text for text in started_by_hand(out))
