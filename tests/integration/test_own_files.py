"""Who can read what dttui writes on the login node: its own files nobody else, what was asked for whoever may."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dttui.fleet.deployment.wheel_source import run_pip, staging_directory
from dttui.transport.ssh.known_hosts import HostKey, append
from dttui.tui.own_log import log_to_file

JOB = """
distributed_training:
  name: small
  framework: command
  dataset: none
  cluster: {nodes: [{id: pytorch-dev-env, role: master}, {id: llm-training-env}]}
  run: {command: [sh, run.sh], workdir: .}
"""
SCRIPT = """
echo '{"step": 1, "loss": 2.0}' >> "$DTTUI_METRICS"
echo hello
"""


@pytest.fixture(params=[0o000, 0o022])
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield int(request.param)
    os.umask(before)


def open_to_others(*roots: Path) -> dict[str, str]:
    """Return what others could read or write, by its path."""
    found = {}
    for root in roots:
        assert root.exists(), root
        for path in (root, *root.rglob("*")):
            try:
                info = path.lstat()
            except FileNotFoundError:  # Of an agent that still serves.
                continue
            if info.st_mode & 0o077 and not stat.S_ISLNK(info.st_mode):
                found[str(path)] = stat.filemode(info.st_mode)
    return found


def test_nobody_else_can_read_what_a_job_leaves(tmp_path: Path, mask: int) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    places = {name: tmp_path / name for name in ("state", "config", "cache")}
    variables = {f"XDG_{name.upper()}_HOME": str(path) for name, path in places.items()}
    environment = {**os.environ, **variables, "HOME": str(home)}
    demo = Path(environment["DTTUI_DEMO_ROOT"])
    work = tmp_path / "work"
    work.mkdir(mode=0o755)
    (work / "job.yaml").write_text(JOB)
    (work / "run.sh").write_text(SCRIPT)

    def dttui_here(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "dttui", "--demo", *arguments],
            cwd=work, env=environment, capture_output=True, text=True, timeout=240, check=False, umask=mask,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    dttui_here("--apply", "job.yaml")
    dttui_here("preflight", "job.yaml")
    dttui_here("diagnose", "small")
    assert "hello" in dttui_here("logs", "small")
    dttui_here("render", "job.yaml", "-o", "rendered")
    dttui_here("init", "--framework", "command", "fresh", "--yes")
    assert {path.name for path in (tmp_path / "state/dttui/jobs").iterdir() if path.is_dir()}
    written = [path for path in (places["config"], places["cache"]) if path.exists()]
    assert open_to_others(places["state"], *demo.iterdir(), *written) == {}
    asked_for = [work / "rendered", work / "rendered/work/run.sh", work / "fresh", work / "fresh/job.yaml"]
    assert [stat.S_IMODE(path.stat().st_mode) & 0o666 for path in asked_for] == [0o666 & ~mask] * 4


def test_nobody_else_can_read_what_dttui_keeps_beside_jobs(
    tmp_path: Path, mask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "own"
    append(top / "config/dttui/known_hosts", "gpu1", HostKey("ssh-ed25519", b"key"))
    with staging_directory(top / "cache/dttui/wheels/x86_64") as staging:
        asyncio.run(run_pip(["-c", "open('a-1-py3-none-any.whl', 'w')"], staging))
    root = logging.getLogger()
    before = root.handlers[:]
    monkeypatch.setenv("XDG_STATE_HOME", str(top / "state"))
    log_to_file()
    root.handlers[-1].close()
    root.handlers[:] = before
    assert (top / "state/dttui/dttui.log").exists()
    assert list((top / "cache/dttui/wheels/x86_64").iterdir())
    assert open_to_others(top) == {}
