"""One cause everywhere: whoever tells of a job that failed names the same node, rank and cause."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from tests.faults.test_jobs_on_bad_links import launch, let_go
from tests.integration.headless import dttui, result_of, shell_job
from tests.lab.hosts import Lab
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

DEADLINE_S = 120.0
LOST_PEER = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.77.0.1]:29500"
WAITS = (
    "until [ -e /tmp/go ]; do sleep 0.1; done; echo Traceback '(most recent call last):' >&2; "
    f"echo 'RuntimeError: {LOST_PEER}' >&2; exit 1"
)


@pytest.mark.lab
def test_a_master_that_is_switched_off_is_the_cause_wherever_it_is_told(
    deployed: Lab, breakable_lab3: Lab, tmp_path: Path
) -> None:
    """And not the rank that lost it, with a raw line of its own; over within 120 s."""
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    directory = launch(inventory, shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, WAITS))
    breakable_lab3["gpu1"].kill()
    let_go(breakable_lab3["gpu2"])
    wait_until(directory.is_over, "the job to end", DEADLINE_S)
    wait_until(lambda: not directory.has_controller(), "its controller to end", DEADLINE_S)
    told = [event for event in directory.read_events() if event.kind in (EventKind.JOB_STATE, EventKind.OUTCOME)][-2:]
    first = told[0].data["first_failure"]
    assert (first["node"], first["rank"], first["cause"]) == ("gpu1", None, "node-lost")
    diagnosed = result_of(dttui("diagnose", directory.job_id, "--output", "json"))
    assert (diagnosed["first_failure"]["node"], diagnosed["cause"]["code"]) == ("gpu1", "node-lost")
    status = result_of(dttui("status", directory.job_id, "--output", "json"))
    assert status["cause"] == "node-lost"
    for said in (told[0].message, told[1].message, jobs.summarize(directory).reason, status["reason"]):
        assert "gpu1 could not be reached" in said
        assert LOST_PEER not in said
    human = dttui("status", directory.job_id).stdout
    assert "gpu1" in human.splitlines()[0]
    listed = dttui("ps", "--all").stdout
    assert "gpu1 could not be reached" in listed


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group of 64 MiB of memory, of either version."""
    for parent, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(parent, f"dttui-test-{os.getpid()}")
        if Path(parent, "cgroup.procs").exists() and os.getuid() == 0:
            group.mkdir()
            try:
                (group / limit).write_text(str(64 << 20))
                with contextlib.suppress(OSError):
                    (group / "memory.swap.max").write_text("0")
                yield group
                return
            finally:
                group.rmdir()
    pytest.skip("no control group can be limited here: that takes root, and the controller of memory")


def test_a_rank_that_its_cgroup_s_limit_killed_is_told_as_that(limited: Path, tmp_path: Path) -> None:
    """Within 120 s, though its host had room, and whatever moment the last reading is of."""
    takes = f'{sys.executable} -c "x = bytearray(400 << 20)"'
    command = f"if [ $DTTUI_NODE_RANK = 1 ]; then echo $$ > {limited}/cgroup.procs; exec {takes}; else sleep 300; fi"
    nodes = {"pytorch-dev-env": 1, "llm-training-env": 1}
    done = dttui("--demo", "--apply", shell_job(tmp_path, nodes, command), "--output", "json")
    assert done.returncode == 100, done.stderr
    found = result_of(done)
    assert found["cause"] == "memory-limit"
    assert [(item["node"], item["rank"]) for item in found["failures"]] == [("llm-training-env", 1)]
    assert "memory.max" in found["advice"][0]
    told = dttui("status", found["job_id"]).stdout
    assert "it had reached the limit of its container or cgroup" in told
    assert "The kernel did not do it" not in told


def test_a_kill_for_memory_of_somebody_else_on_the_host_is_not_taken_for_the_ranks(
    limited: Path, tmp_path: Path
) -> None:
    """Within 120 s: the rank's end is told as a kill from outside, which is tried again, and not as a limit."""
    takes = [sys.executable, "-c", "x = bytearray(400 << 20)"]
    command = f"touch {tmp_path}/runs; until [ -e {tmp_path}/broken ]; do sleep 0.1; done; kill -9 $$"
    file = shell_job(tmp_path, {"pytorch-dev-env": 1}, command)
    done = dttui("--demo", "--apply", file, "--detach", "--output", "json")
    assert done.returncode == 0, done.stderr
    directory = jobs.find(result_of(done)["job_id"])
    wait_until((tmp_path / "runs").exists, "the rank to run", DEADLINE_S)
    time.sleep(3)  # As long as the agent needs to see twice which cgroup the rank is in.
    join = f'echo $$ > {limited}/cgroup.procs; exec "$@"'
    ended = subprocess.run(["sh", "-c", join, "sh", *takes], check=False)
    assert ended.returncode == -signal.SIGKILL
    (tmp_path / "broken").touch()
    wait_until(directory.is_over, "the job to end", DEADLINE_S)
    found = result_of(dttui("diagnose", directory.job_id, "--output", "json"))
    assert found["cause"]["code"] == "killed"
    assert "no such kill in the cgroup of the job" in found["cause"]["words"]
