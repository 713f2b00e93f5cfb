"""What is told at the end of real jobs on the embedded cluster: where things are, and how long and how it went."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from dtagent.protocol.events import Event, EventKind

from dttui import jobs
from dttui.jobs.following import JobFollower
from dttui.launch.stop_request import stop_job
from tests.agent.conversation import processes_with
from tests.integration.headless import DEADLINE_S, dttui_here, shell_job, start_dttui, wait_for_state
from tests.processes import demo_root as demo_root
from tests.processes import processes_like
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"


def of_kind(events: list[Event], kind: EventKind) -> list[Event]:
    return [event for event in events if event.kind is kind]


def test_a_job_that_succeeded_tells_its_checkpoints_its_duration_and_metrics_nobody_could_read(tmp_path: Path) -> None:
    script = 'echo x > "$DTTUI_CHECKPOINT_DIR/$RANK.pt"; [ "$RANK" = 1 ] || exit 0;'
    metrics = """printf 'loss 1\\n{"step": 1, "loss": 2.5}\\n[3]\\n' >> "$DTTUI_METRICS"; sleep 1"""
    done = dttui_here(
        "--demo", "--apply", shell_job(tmp_path, {ONE: 1, TWO: 1}, f"{script} {metrics}"), "--output", "jsonl"
    )
    assert done.returncode == 0, done.stderr
    directory = jobs.find("last")
    follower = JobFollower(directory)
    while follower.poll():
        pass
    view = follower.view
    paths = [node.checkpoints for node in view.nodes.values()]
    assert [sorted(path.name for path in Path(path or "").iterdir()) for path in paths] == [["0.pt"], ["1.pt"]]
    assert view.places(str(directory.path))[1] == f"checkpoints: {ONE}:{paths[0]} and 1 more node"
    assert view.started_at is not None
    assert view.ended_at is not None
    assert view.reason == f"finished in {int(view.ended_at - view.started_at)} s"
    last = of_kind(view.events, EventKind.FINDING)[-1]
    assert (last.data["code"], last.data["subject"]) == ("metrics-unreadable", TWO)
    assert last.message == f"2 lines of metrics of {TWO} could not be read; the first: loss 1"
    assert [metric.step for metric in view.metrics] == [1]


@pytest.mark.parametrize(
    ("force", "node", "job"),
    [
        (False, "ended by itself after SIGTERM", "stopped on request"),
        (True, "killed", "stopped on request; killed"),
    ],
)
def test_a_stopped_job_tells_whether_it_was_killed_and_leaves_nothing(
    tmp_path: Path, force: bool, node: str, job: str
) -> None:
    command = "trap 'exit 0' TERM; echo begun; while :; do sleep 0.1; done"
    done = dttui_here("--demo", "--apply", shell_job(tmp_path, {ONE: 1, TWO: 1}, command), "--detach")
    assert done.returncode == 0, done.stderr
    directory = jobs.find(done.stdout.strip())
    wait_for_state(directory.job_id, "RUNNING")
    logs = [directory.logs(0, name) / f"{rank}.out" for rank, name in enumerate((ONE, TWO))]
    wait_until(lambda: all(path.exists() and path.stat().st_size for path in logs), "the first lines")
    stop_job(directory, force=force)
    wait_until(lambda: of_kind(directory.read_events(), EventKind.OUTCOME), "the end", 60)
    events = directory.read_events()
    assert {event.message for event in of_kind(events, EventKind.NODE_STATE) if event.data["state"] == "stopped"} == {
        node
    }
    assert events[-1].message == job
    assert not processes_with(f"DTTUI_JOB_ID={directory.job_id}")
    wait_until(lambda: not processes_like("dttui.engine", str(directory.path)), "its controller to end")


def test_leaving_an_attach_leaves_the_job_and_says_how_it_is_ended(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1}, "echo begun; while :; do sleep 0.1; done")
    started = dttui_here("--demo", "--apply", job, "--detach")
    directory = jobs.find(started.stdout.strip())
    following = [start_dttui("attach", directory.job_id) for _ in range(2)]
    for process in following:
        assert process.stderr is not None
        for line in process.stderr:
            if "RUNNING" in line:
                break
        process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 101, err
        assert f"dttui stop {directory.job_id}" in err
    assert dttui_here("stop", "--force").returncode == 0
    assert dttui_here("attach", directory.job_id).returncode == 103
