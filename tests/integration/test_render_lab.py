"""A rendered directory on isolated hosts, by the commands of its README: the same training without dttui."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.headless import dttui_here
from tests.integration.trained import Trained
from tests.lab.hosts import Lab
from tests.lab.interpreter import USER_PYTHON

pytestmark = [pytest.mark.lab, pytest.mark.torch, pytest.mark.timeout(300)]

CHECKOUT = str(Path(__file__).parents[2])
DEADLINE_S = 100


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


def commands(readme: str) -> tuple[list[str], list[str]]:
    """Return what the README says to paste: to copy, and to start."""
    lines = [line.strip() for line in readme.splitlines() if line.startswith("    ")]
    return [line for line in lines if line.startswith("tar")], [line for line in lines if line.startswith("ssh")]


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
    copies, starts = commands((out / "README.md").read_text())
    assert len(copies) == len(starts) == 3
    for line in copies:
        subprocess.run(["bash", "-c", line], cwd=out, check=True, capture_output=True, timeout=DEADLINE_S)
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    running = [subprocess.Popen(["bash", "-c", line], text=True, **pipes) for line in starts]
    try:
        told = [process.communicate(timeout=DEADLINE_S)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0, 0], "\n".join(told)
    assert "world size 4" in told[0]

    metrics = lab["gpu2"].run(["cat", "/root/test-job/node0/metrics.jsonl"]).stdout.decode()
    by_hand = losses(metrics)
    assert by_hand == pytest.approx(
        losses((Path(trained.result["directory"]) / "telemetry" / "metrics.jsonl").read_text()), abs=1e-4
    )
    assert by_hand[30] < by_hand[1] - 1
    assert lab["gpu2"].run(["ls", "/root/test-job/node0/checkpoints"]).stdout != b""
