"""A file system that is really full: how the job ended is told all the same, and a job can be stopped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conversation import Conversation
from tests.agent.flood import follow
from tests.waiting import wait_until

DISK_BYTES = 8 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(place)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system can only be mounted by root, and not in every container")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def free(disk: Path) -> int:
    info = os.statvfs(disk)
    return info.f_bavail * info.f_frsize


def fill(disk: Path) -> None:
    """Leave not a byte."""
    with (disk / "ballast").open("wb", buffering=0) as stream:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    stream.write(b"x" * size)
            except OSError:
                continue


def test_a_job_that_fills_the_disk_is_told_with_its_exit_and_that_its_log_is_cut(disk: Path) -> None:
    """Within 30 s; what is left is what the job wrote."""
    with Conversation(disk / "root") as agent:
        agent.prepare("greedy")
        agent.start("greedy", [["sh", "-c", "yes 0123456789abcdef | head -c 50000000; exit 7"]])
        status = agent.end_of("greedy")
        assert free(disk) == 0
        assert status["state"] == "ended"
        assert [item["exit_code"] for item in status["exits"]] == [7]
        found = follow(agent, "greedy")
        assert 1 << 20 < len(found.data["0.out"]) < DISK_BYTES
        assert bytes(found.data["0.out"]).startswith(b"0123456789abcdef\n")


def test_a_full_disk_is_told_while_the_job_runs_and_does_not_keep_it_from_being_stopped(disk: Path) -> None:
    """Told within 10 s and stopped within 30; with room again, the next job starts."""
    with Conversation(disk / "root") as agent:
        agent.prepare("long")
        agent.prepare("late")
        agent.start("long", [["sh", "-c", "echo ready; exec sleep 300"]])
        log = agent.root / "jobs/long/0/logs/0.out"
        wait_until(lambda: log.exists() and log.stat().st_size, "the rank to run")
        fill(disk)
        warnings = wait_until(lambda: agent.status("long")["warnings"], "the agent to notice")
        assert "was full at" in warnings[0]
        for method, params in (
            ("start", {"key": {"job_id": "late", "attempt": 0}, "node_rank": 0, "processes": [], "ranks": []}),
            ("upload", {"key": {"job_id": "late", "attempt": 0}, "path": "x", "offset": 0, "data": "eHg="}),
        ):
            error = agent.ask(method, params)["error"]
            assert error["code"] == 4
        agent.stop("long")
        status = agent.end_of("long")
        assert (status["state"], status["reason"]) == ("ended", "stopped")
        assert status["exits"][0]["signal"] == 15
        (disk / "ballast").unlink()
        agent.start("late", [["true"]])
        assert agent.end_of("late")["exits"][0]["exit_code"] == 0
