"""Jobs whose GPUs are free for a moment: at their turn, and between two attempts, while others wait for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs, locations
from dttui.inventory.demo import demo_inventory
from dttui.jobs import JobDirectory
from dttui.launch import submit as launch
from dttui.launch.local_plan import make_local_plan
from dttui.launch.submit import submit
from dttui.planning.submission import Submission
from dttui.spec import load_document
from tests.agent.conversation import Conversation
from tests.integration.headless import DEADLINE_S, dttui, shell_job, wait_for_state
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"
ROBBED = """
import sys
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.preparation import PrepareReply, PrepareRequest
from dttui.engine import controller, start

run, is_robbed = start.GangStart.run, False

async def robbed(self, unless_stopped):
    global is_robbed
    if not is_robbed:
        is_robbed = True
        client = await self._nodes[0].node.connect()
        thief, ports = AttemptKey("thief", 0), (29500, 29999)
        slots = {"simulated_slots": 2, "simulated_total": 2, "asked_at": 1.0}
        request = PrepareRequest(thief, 0, "sh", "127.0.0.1", False, ports, 0, **slots)
        await client.call("prepare", request, PrepareReply)
    return await run(self, unless_stopped)

start.GangStart.run = robbed
sys.exit(controller.main(sys.argv[1:]))
"""


RESTARTING = """
import functools, sys
from dttui.engine import controller, decision
from dttui.planning.recovery import RecoveryPolicy

decision.FIRST_DELAY_S = 10.0  # Five times as long as those who wait need to see that there is room.
controller.Controller = functools.partial(controller.Controller, policy=RecoveryPolicy(max_restarts=2))
sys.exit(controller.main(sys.argv[1:]))
"""


@pytest.fixture
def controllers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Those that were started, which end with the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for controller in started:
        controller.kill()
        controller.wait()


def begun(
    file: Path, patch: pytest.MonkeyPatch, code: str, started: list[subprocess.Popen[bytes]], *, is_queued: bool
) -> tuple[JobDirectory, subprocess.Popen[bytes]]:
    """Submit a job to a controller with this code."""

    def start(directory: JobDirectory, lock: int, **_options: bool) -> None:
        command = [sys.executable, "-c", code, str(directory.path), "--launch", f"--lock={lock}"]
        with directory.controller_log.open("ab") as log:
            started.append(subprocess.Popen(command, pass_fds=[lock], stdout=log, stderr=log))
        os.close(lock)

    inventory = demo_inventory(locations.demo_root(), locations.shipped("examples"), sys.executable)
    with patch.context() as patched:
        patched.setattr(launch, "start_controller", start)
        submission = Submission(load_document(file).job, inventory, file.parent, is_queued=is_queued)
        directory = submit(submission, make_local_plan(submission), expects_client=False)
    return directory, started[0]


def test_a_job_whose_gpus_another_got_after_its_turn_had_come_waits_again_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controllers: list[subprocess.Popen[bytes]]
) -> None:
    """It waits again at once, on all its hosts, and runs within 120 s of the other's end; nothing is left."""
    file = shell_job(tmp_path, {ONE: 2, TWO: 1}, "true")
    directory, controller = begun(file, monkeypatch, ROBBED, controllers, is_queued=True)

    def waits_again() -> str:
        told = directory.read_events(EventKind.JOB_STATE)
        is_again = "RESTARTING" in [event.data["state"] for event in told] and told[-1].data["state"] == "PENDING"
        return told[-1].message if is_again else ""

    said = wait_until(waits_again, "the job to wait again", DEADLINE_S)
    assert said.startswith(f"queued: 0 jobs before it; {ONE}: ")
    with Conversation(locations.demo_root() / ONE, keep_daemon=True) as agent:
        agent.stop("thief")
    assert controller.wait(DEADLINE_S) == 0, directory.controller_log.read_text()
    told = states(directory)
    assert [*dict.fromkeys(told)] == [
        *("PREFLIGHT", "LAUNCHING", "RESTARTING", "PENDING", "RENDEZVOUS"),
        *(["RUNNING"] * ("RUNNING" in told)),
        "SUCCEEDED",
    ]
    assert (directory.logs(1, TWO) / "2.out").exists()


def test_a_job_that_is_started_again_comes_before_those_who_wait_for_its_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controllers: list[subprocess.Popen[bytes]]
) -> None:
    """Over within 240 s; who waits has no turn in the ten seconds between the attempts, and begins then."""
    command = f"""
        wait_for() {{ until [ -e {tmp_path}/$1 ]; do sleep 0.1; done; }}
        if [ $DTTUI_ATTEMPT = 0 ]; then wait_for broken; kill -9 $$; fi
        wait_for done
    """
    file = shell_job(tmp_path, {ONE: 2}, command)
    directory, controller = begun(file, monkeypatch, RESTARTING, controllers, is_queued=False)
    wait_for_state(directory.job_id, "RUNNING")
    folder = tmp_path / "waiting"
    folder.mkdir()
    done = dttui("--demo", "--apply", shell_job(folder, {ONE: 1}, "true"), "--queue", "--detach")
    assert done.returncode == 0, done.stderr
    waiting = jobs.find(done.stdout.strip())
    samples = directory.samples(ONE)
    wait_until(
        lambda: samples.exists() and waiting.job_id in samples.read_text(), "the job to hear of who waits", DEADLINE_S
    )
    (tmp_path / "broken").touch()
    wait_until(lambda: "RESTARTING" in states(directory), "the first attempt to end", DEADLINE_S)
    wait_until(lambda: states(directory)[-1] == "RUNNING", "the second", DEADLINE_S)
    assert set(states(waiting)) == {"PENDING"}
    (tmp_path / "done").touch()
    assert controller.wait(DEADLINE_S) == 0, directory.controller_log.read_text()
    assert states(directory)[-1] == "SUCCEEDED"
    wait_for_state(waiting.job_id, "SUCCEEDED")


def states(directory: JobDirectory) -> list[str]:
    return [event.data["state"] for event in directory.read_events(EventKind.JOB_STATE)]
