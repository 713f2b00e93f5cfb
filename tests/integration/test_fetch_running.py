"""Fetching from a job that runs, and having it keep what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.context import HostUse
from dttui.engine.start import GangStart
from tests.integration.gangs import ONE, TWO, TestGang, have_older_agent
from tests.integration.headless import dttui, shell_job, wait_for_state
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(200)
GROWS = "seq 2000 > log.txt; while :; do echo more; done >> log.txt"
LINES = [str(number) for number in range(1, 2001)]


def test_a_file_that_grows_is_fetched_and_what_is_kept_is_told_after_the_end(demo_root: Path, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/sent.txt").write_text("sent")
    job = shell_job(tmp_path, {"pytorch-dev-env": 1}, GROWS, workdir="src")
    started = dttui("--apply", job, "--demo", "--detach")
    assert started.returncode == 0, started.stderr
    job_id = started.stdout.strip()
    wait_for_state(job_id, "RUNNING")
    log = demo_root / f"pytorch-dev-env/jobs/{job_id}/0/work/log.txt"
    wait_until(lambda: log.exists() and log.stat().st_size > 20_000, "lines of the script", 30.0)
    done = dttui("fetch", job_id, "-o", tmp_path / "got")
    assert done.returncode == 0, done.stderr
    assert "work/log.txt: it is being written to: here is its beginning" in done.stderr
    here = (tmp_path / "got/work/log.txt").read_bytes()
    assert log.read_bytes().startswith(here)
    assert here.decode().splitlines()[:2000] == LINES
    kept = dttui("keep", job_id)
    assert (kept.returncode, kept.stdout) == (0, f"pytorch-dev-env: kept: {log.parents[1]}\n")
    assert dttui("stop", job_id).returncode == 0
    wait_for_state(job_id, "CANCELLED")
    told = [line for line in dttui("status", job_id).stdout.splitlines() if line.startswith("saved: ")]
    assert [(str(log.parent) in line, line.endswith("; kept")) for line in told] == [(True, True)]


def keepers(root: Path, job_id: str) -> set[str]:
    """Return the hosts of an embedded cluster that keep what a job leaves."""
    return {path.relative_to(root).parts[0] for path in root.glob(f"*/jobs/{job_id}/0/keep")}


async def test_an_agent_too_old_to_keep_anything_is_warned_of_and_the_job_starts(
    demo_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_older_agent(monkeypatch, TWO, keeps_directories=False)
    gang = TestGang(tmp_path / "job", {ONE: 1, TWO: 1}, run={"command": ["sleep", "1000"]})
    log, nodes = AttemptLog(gang.log, 0), gang.gang.nodes
    gang.gang_start = GangStart(
        gang.directory, log, nodes, gang.gang.plan, tmp_path / "job", {}, use=HostUse(keeps=True)
    )
    try:
        await gang.start()
    finally:
        await gang.end()
    told = [event.message for event in gang.directory.read_events() if event.data.get("code") == "keep-old-agent"]
    assert told == [f"{TWO}: its agent is too old for --keep: what the job leaves there may go after 7 days"]
    assert keepers(demo_root, gang.directory.job_id) == {ONE, TWO}, "it is one that can"
