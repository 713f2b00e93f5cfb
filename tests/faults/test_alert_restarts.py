"""An alert that is to restart its job: the attempt ends everywhere, and another one goes on."""

from __future__ import annotations

from pathlib import Path

import yaml
from dtagent.protocol.events import EventKind

from dttui import jobs
from tests.agent.conversation import processes_with
from tests.faults.test_login_node import kill_controller
from tests.integration.gangs import ONE, TWO
from tests.integration.headless import DEADLINE_S, dttui, result_of
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

WAITS = """
echo "attempt $DTTUI_ATTEMPT"
[ "$DTTUI_ATTEMPT" = 1 ] && until [ -e end ]; do sleep 0.05; done && exit 0
[ "$RANK" = 1 ] && until [ -e go ]; do sleep 0.05; done && echo "the queue is full"
sleep 1000
"""
STALLS = """
[ "$DTTUI_ATTEMPT" = 1 ] && exit 0
for step in 1 2 3; do echo "{\\"step\\": $step}" >> "$DTTUI_METRICS"; done
while true; do echo "waiting for data"; sleep 0.2; done
"""


def submitted(tmp_path: Path, script: str = WAITS, **alert: str) -> jobs.JobDirectory:
    """Submit a job that stands still when it is told to, and comes to its end in its second attempt."""
    job = {
        "name": "queue",
        "framework": "command",
        "dataset": "none",
        "run": {"command": ["sh", "-c", script], "workdir": str(tmp_path)},
        "cluster": {"nodes": [{"id": name, "resources": {"gpu": {"count": 1}}} for name in (ONE, TWO)]},
        "monitoring": {"alerts": [{**(alert or {"log": "queue is full"}), "action": "restart"}]},
        "recovery": {"on_node_failure": "restart", "max_restarts": 1},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"distributed_training": job}))
    started = dttui("--demo", "--apply", path, "--detach", "--output", "json")
    assert started.returncode == 0, started.stdout + started.stderr
    return jobs.find(result_of(started)["job_id"])


def states(directory: jobs.JobDirectory) -> list[object]:
    return [event.data.get("state") for event in directory.read_events(EventKind.JOB_STATE)]


def check(
    directory: jobs.JobDirectory, said: str = f"queue is full: rank 1 on {TWO} printed: the queue is full"
) -> None:
    wait_until(directory.is_over, "the job to end", DEADLINE_S)
    events = directory.read_events()
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    (alert,) = (event for event in events if event.kind is EventKind.ALERT)
    (restart,) = (event for event in events if event.data.get("state") == "RESTARTING")
    assert alert.message == said
    assert (restart.attempt, restart.data["cause"]) == (0, "alert")
    assert restart.message.startswith(alert.message)
    wait_until(lambda: not processes_with(f"DTTUI_JOB_ID={directory.job_id}"), "nothing to be left")


def test_an_alert_restarts_its_job(tmp_path: Path) -> None:
    """Over within 60 s."""
    directory = submitted(tmp_path)
    for name in ("go", "end"):
        (tmp_path / name).touch()
    check(directory)


def test_steps_that_stand_still_restart_their_job_though_its_ranks_print(tmp_path: Path) -> None:
    """Over within 60 s."""
    directory = submitted(tmp_path, STALLS, state="steps stalled for 2s")
    check(directory, "steps stalled for 2s: no step for 2 s, since step 3")


def test_a_restart_for_an_alert_goes_on_under_another_controller(tmp_path: Path) -> None:
    """Over within 60 s: the first one is killed while the ranks are ended."""
    directory = submitted(tmp_path)
    wait_until(lambda: "RUNNING" in states(directory), "the ranks", DEADLINE_S)
    (tmp_path / "go").touch()
    wait_until(lambda: "STOPPING" in states(directory), "the attempt to be ended", DEADLINE_S)
    kill_controller(directory)
    (tmp_path / "end").touch()
    attached = dttui("attach", directory.job_id, "--output", "json")
    assert attached.returncode == 0, attached.stderr
    check(directory)
