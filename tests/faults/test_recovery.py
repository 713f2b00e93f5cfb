"""Jobs that `recovery` has started again: by cause, on the same nodes, on a spare, and not for ever."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml
from dtagent.locations import AttemptFiles
from dtagent.protocol.events import EventKind

from dttui.inventory import load_inventory
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.course import read_reports
from dttui.jobs.left_to_do import unfetched_nodes
from dttui.launch.starting import ensure_controller
from tests.agent.conversation import processes_with
from tests.faults.recovering import (
    ONE,
    STEPS,
    THREE,
    TWO,
    comebacks,
    demo,
    ended,
    findings,
    launched,
    on_hosts,
    processes_of,
    replacing,
    restarts,
    submitted,
    told,
    wait_for_step,
)
from tests.faults.recovering import lab as lab
from tests.integration.elastic_jobs import Running
from tests.integration.headless import DEADLINE_S, dttui, example_job
from tests.integration.slow_steps import slow_down
from tests.integration.test_gpt_example import TINY
from tests.lab.hosts import Lab
from tests.lab.shared import SHARED, share, unshare_from
from tests.processes import controller_of, parent_of, processes_like
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("lab of recovery")


def kill_a_rank(directory: JobDirectory, rank: int) -> None:
    """End a process of the job by SIGKILL, on this machine."""
    job = {*processes_with(f"DTTUI_JOB_ID={directory.job_id}\0")} & {*processes_with(f"\0RANK={rank}\0")}
    # What it has started for a moment has its variables, too, and may be gone by now.
    (pid,) = (pid for pid in job if parent_of(pid) not in {None, *job})
    os.kill(pid, signal.SIGKILL)


def test_a_rank_that_is_killed_costs_an_attempt_and_the_next_one_tells_what_it_cost(tmp_path: Path) -> None:
    """Over within 120 s; nothing of it is left."""
    directory = launched(tmp_path, demo(), {ONE: 1, TWO: 1}, STEPS, on_node_failure="restart")
    wait_for_step(directory, 40)
    kill_a_rank(directory, 1)
    events = ended(directory)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    (restart,) = restarts(events)
    assert restart.data["cause"] == "killed"
    assert restart.data["until"] < restart.time + 0.1  # At once: it had made steps.
    (comeback,) = comebacks(events)
    assert (comeback.attempt, comeback.data["cause"]) == (1, "killed")
    assert comeback.data["lost_steps"] >= 10
    assert comeback.data["seconds"] > 0
    ports = {_plan(directory, number)["bindings"]["master_port"] for number in (0, 1)}
    assert len(ports) == 2
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []


def test_a_scripts_own_error_is_not_tried_again(tmp_path: Path) -> None:
    """Over within 120 s."""
    command = f"{sys.executable} -c 'import no_such_module_anywhere'"
    directory = launched(tmp_path, demo(), {ONE: 1, TWO: 1}, command, on_node_failure="restart", max_restarts=5)
    events = ended(directory)
    assert restarts(events) == []
    assert events[-1].data == {"state": "FAILED", "exit_code": 100}
    assert "it is not tried again for this cause: missing-module" in events[-1].message


def test_the_job_decides_for_itself_what_is_tried_again(tmp_path: Path) -> None:
    """Over within 120 s each."""
    command = f"{sys.executable} -c 'import no_such_module_anywhere'"
    own = {"on_node_failure": "restart", "max_restarts": 1}
    (tmp_path / "a").mkdir()
    events = ended(launched(tmp_path / "a", demo(), {ONE: 1}, command, **own, retry_on=["missing-module"]))
    assert len(restarts(events)) == 1
    (tmp_path / "b").mkdir()
    events = ended(launched(tmp_path / "b", demo(), {ONE: 1}, "exit 7", **own, no_retry_on=[7]))
    assert restarts(events) == []


def test_three_failures_in_a_row_without_a_new_step_are_enough(tmp_path: Path) -> None:
    """Over within 120 s; the waits grow."""
    directory = launched(tmp_path, demo(), {ONE: 1}, "exit 3", on_node_failure="restart", max_restarts=2)
    events = ended(directory)
    assert [event.attempt for event in restarts(events)] == [0, 1]
    waits = [event.data["until"] - event.time for event in restarts(events)]
    assert waits[0] < waits[1]
    assert events[-1].data == {"state": "FAILED", "exit_code": 100}
    assert "2 new attempts have made no new step, and max_restarts allows no more" in events[-1].message
    assert ("suspect", ONE) not in findings(events)  # Nobody knows that it is the host.


def test_new_steps_give_a_job_all_its_restarts_again(tmp_path: Path) -> None:
    """Over within 120 s: three restarts, though no more than one in a row may be in vain."""
    command = (
        "i=$((DTTUI_ATTEMPT * 5)); n=$((i + 5)); while [ $i -lt $n ]; do i=$((i+1)); "
        'echo "{\\"step\\": $i}" >> "$DTTUI_METRICS"; sleep 0.05; done; [ "$DTTUI_ATTEMPT" = 3 ] || exit 3'
    )
    events = ended(launched(tmp_path, demo(), {ONE: 1}, command, on_node_failure="restart", max_restarts=1))
    assert len(restarts(events)) == 3
    assert events[-1].data["state"] == "SUCCEEDED"
    assert [event.data["lost_steps"] for event in comebacks(events)] == [0, 0, 0]


def test_a_host_at_which_two_attempts_failed_is_set_aside_for_a_spare_and_named(tmp_path: Path) -> None:
    """Over within 120 s."""
    command = (
        '[ "$DTTUI_NODE_RANK$DTTUI_ATTEMPT" = 10 ] || [ "$DTTUI_NODE_RANK$DTTUI_ATTEMPT" = 11 ] && kill -9 $$; true'
    )
    recovery = {**replacing(tmp_path), "spares": [THREE]}
    directory = launched(tmp_path, demo(), {ONE: 1, TWO: 1}, command, **recovery)
    events = ended(directory)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    assert [event.data["cause"] for event in restarts(events)] == ["killed", "killed"]
    assert ("set-aside", TWO) in findings(events)
    assert ("unfenced", TWO) not in findings(events)  # It is proven clean.
    assert [node["name"] for node in _nodes(directory, 2)] == [ONE, THREE]


def test_a_job_that_waits_for_another_attempt_says_until_when_and_can_be_stopped(tmp_path: Path) -> None:
    """Over within 120 s; the controller that the stop finds is not the first."""
    directory = launched(tmp_path, demo(), {ONE: 1}, "exit 3", on_node_failure="restart", max_restarts=9)
    # The wait after that is long enough for all that is done in it, on a machine under load too.
    wait_until(lambda: len(restarts(directory.read_events())) >= 6, "some restarts", DEADLINE_S)
    last = restarts(directory.read_events())[-1]
    assert "; starting again at " in last.message
    status = dttui("status", directory.job_id)
    assert "RESTARTING" in status.stdout, status
    controller = controller_of(directory.path)
    os.kill(controller, signal.SIGKILL)
    wait_until(lambda: not directory.has_controller(), "the controller to be gone")
    done = dttui("stop", directory.job_id)
    assert done.returncode == 0, done.stderr
    events = ended(directory)
    assert events[-1].data == {"state": "CANCELLED", "exit_code": 103}
    assert events[-1].message.startswith("stopped on request before another attempt began; the one before: rank 0 on")
    assert restarts(events)[-1].seq == last.seq


def test_hosts_that_hear_of_no_controller_end_their_ranks_and_a_late_one_starts_the_job_again(tmp_path: Path) -> None:
    """Over within 120 s: the controller is halted, so that it takes no stop, until nothing of the job is left."""
    # Longer than a machine under load keeps a controller from being heard of.
    fenced = {"on_node_failure": "restart", "heartbeat_s": 10, "self_fence_s": 10}
    directory = launched(tmp_path, demo(), {ONE: 1, TWO: 1}, STEPS, **fenced)
    wait_for_step(directory, 40)
    controller = controller_of(directory.path)
    os.kill(controller, signal.SIGSTOP)
    try:
        wait_until(lambda: not processes_with(f"DTTUI_JOB_ID={directory.job_id}"), "all ranks to end", 60)
    finally:
        os.kill(controller, signal.SIGCONT)
    events = ended(directory)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    (restart,) = restarts(events)
    assert restart.data["cause"] == "self-fenced"
    assert "recovery.self_fence_s" in restart.message
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]")
def test_a_training_whose_torchrun_is_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Over within 120 s: the second attempt begins behind step 0, and ends as far as the job wants."""
    args = ["--steps", "400", "--checkpoint-every", "10", "--resume", *TINY]
    path = example_job(tmp_path, {ONE: 1, TWO: 1}, *args)
    slow_down(tmp_path / "gpt/train.py")
    checkpoints = {"dir": str(tmp_path / "checkpoints"), "shared": True}
    directory = submitted(path, demo(), on_node_failure="restart", checkpoint=checkpoints)
    wait_for_step(directory, 40)
    Running(directory).kill_launcher(TWO)
    events = ended(directory)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    (comeback,) = comebacks(events)
    first = int(comeback.message.partition("at step ")[2].partition(",")[0])
    assert first >= 10
    assert '"step": 400,' in directory.metrics.read_text()
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []


@pytest.mark.parametrize("lost", ["gpu2", "gpu1"])
def test_a_spare_takes_the_place_of_a_host_that_is_off_the_masters_too(lost: str, lab: Lab, tmp_path: Path) -> None:
    """Over within 240 s; what comes to be of the lost host is told."""
    left = {"gpu1": "gpu2", "gpu2": "gpu1"}[lost]
    directory = launched(tmp_path, on_hosts(lab, tmp_path), {"gpu1": 1, "gpu2": 1}, STEPS, **replacing(tmp_path))
    wait_for_step(directory, 40)
    lab[lost].kill()
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    assert "what an earlier attempt has left on " + lost in events[-1].message
    (restart,) = restarts(events)
    assert restart.data["cause"] == "node-lost"
    assert ("unfenced", lost) in findings(events)
    nodes = [node["name"] for node in _nodes(directory, 1)]
    assert nodes == (["gpu1", "gpu3"] if lost == "gpu2" else ["gpu3", "gpu2"])
    (comeback,) = comebacks(events)
    assert comeback.data["lost_steps"] >= 10
    for name, rank in zip(nodes, (0, 1), strict=True):
        assert (directory.logs(1, name) / f"{rank}.out").read_text() == "began\n"
    assert left in nodes
    logs = dttui("logs", directory.job_id, "--attempt", "0", "--node", lost)
    assert "began" in logs.stdout, logs.stderr
    lab[lost].start()
    done = dttui("stop", directory.job_id)
    assert done.returncode == 0, done.stderr
    assert processes_of(lab, lost, directory) == []


def test_spares_that_are_off_too_small_or_refused_by_their_checks_are_passed_over_and_cost_no_restart(
    lab: Lab, tmp_path: Path
) -> None:
    """Over within 240 s, though one attempt in vain would be the end: the third spare is used."""
    inventory = with_bad_spares(lab, tmp_path)
    recovery = {**replacing(tmp_path), "max_restarts": 1, "spares": ["off", "small", "bare", "gpu3"]}
    directory = launched(tmp_path, inventory, {"gpu1": 1, "gpu2": 2}, STEPS, **recovery)
    wait_for_step(directory, 40)
    lab["gpu2"].kill()
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    assert [event.data["cause"] for event in restarts(events)] == ["node-lost", "host-unreachable", "preflight"]
    assert [node["name"] for node in _nodes(directory, 3)] == ["gpu1", "gpu3"]
    assert ("spare-unfit", "small") in findings(events)
    assert not {subject for code, subject in findings(events) if code == "set-aside"}


def test_a_launch_tells_of_spares_of_no_use_and_is_refused_for_none(lab: Lab, tmp_path: Path) -> None:
    """Over within 120 s."""
    recovery = {**replacing(tmp_path), "spares": ["off", "small", "bare", "gpu3"]}
    command = "sleep 600"
    directory = launched(tmp_path, with_bad_spares(lab, tmp_path), {"gpu1": 1, "gpu2": 2}, command, **recovery)

    def of_spares() -> set[tuple[str, str, str]]:
        events = directory.read_events(EventKind.FINDING)
        keys = ("subject", "code", "severity")
        return {tuple(event.data[key] for key in keys) for event in events if event.message.startswith("the spare ")}

    expected = {("off", "unreachable", "warning"), ("bare", "python-missing", "warning")}
    wait_until(lambda: of_spares() == expected, "both to be told", DEADLINE_S)
    wait_until(lambda: (0, "RUNNING") in told(directory.read_events()), "the job to run all the same", DEADLINE_S)
    assert dttui("stop", directory.job_id).returncode == 0


def with_bad_spares(lab: Lab, tmp_path: Path) -> Inventory:
    """Return the lab's hosts, two of them with two GPUs, and three environments that cannot take such a place."""
    resources = {"gpu": {"count": 2, "simulated": True}}
    path = lab.inventory(tmp_path / "inventory.yaml", gpu2={"resources": resources}, gpu3={"resources": resources})
    document = yaml.safe_load(path.read_text())
    last = document["environments"][-1]
    document["environments"] += [
        {**last, "name": "off", "host": str(ip_address(last["host"]) + 100)},
        {**last, "name": "small", "resources": {"gpu": {"count": 1, "simulated": True}}},
        {**last, "name": "bare", "python": "/no/such/python"},
    ]
    path.write_text(yaml.safe_dump(document))
    return load_inventory(path)


def test_the_only_host_of_a_job_is_replaced_where_a_spare_shows_that_it_is_not_us_who_are_cut_off(
    lab: Lab, tmp_path: Path
) -> None:
    """Over within 240 s."""
    directory = launched(tmp_path, on_hosts(lab, tmp_path), {"gpu2": 1}, STEPS, **replacing(tmp_path))
    wait_for_step(directory, 40)
    lab["gpu2"].kill()
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    assert [node["name"] for node in _nodes(directory, 1)] == ["gpu3"]


@pytest.mark.parametrize("moment", ["the wait", "the second launch", "the second run"])
def test_a_controller_killed_while_a_spare_takes_over_is_followed_by_one_that_goes_on(
    moment: str, lab: Lab, tmp_path: Path
) -> None:
    """Over within 240 s: each attempt runs once a node."""
    longer = STEPS.replace("n=60", "n=200")  # So that it is not over before its controller is found and killed.
    directory = launched(tmp_path, on_hosts(lab, tmp_path), {"gpu1": 1, "gpu2": 1}, longer, **replacing(tmp_path))
    wait_for_step(directory, 40)
    lab["gpu1"].kill()
    state = {"the wait": (0, "RESTARTING"), "the second launch": (1, "LAUNCHING"), "the second run": (1, "RUNNING")}
    wait_until(lambda: state[moment] in told(directory.read_events()), f"{moment} to begin", 120)
    controller = controller_of(directory.path)
    os.kill(controller, signal.SIGKILL)
    wait_until(lambda: not directory.has_controller(), "the controller to be gone")
    assert ensure_controller(directory)
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    last = len(restarts(events))
    assert [node["name"] for node in _nodes(directory, last)] == ["gpu3", "gpu2"]
    for name, rank in (("gpu3", 0), ("gpu2", 1)):
        assert (directory.logs(last, name) / f"{rank}.out").read_text() == "began\n"
    assert len(comebacks(events)) == 1
    assert "what an earlier attempt has left on gpu1" in events[-1].message


@pytest.fixture
def shared(lab: Lab) -> Iterator[Path]:
    """A directory that all hosts see, also one whose link is cut; the path at which this machine sees it."""
    hosts = [lab[name] for name in ("gpu1", "gpu2", "gpu3")]
    yield share(hosts)
    for host in hosts:
        unshare_from(host)


@dataclass(frozen=True)
class Written:
    """What a rank wrote of a step."""

    attempt: int
    rank: int
    step: int
    at: float
    """Unix time."""


def written(log: Path) -> list[Written]:
    lines = (line.split() for line in log.read_text().splitlines())
    return [Written(int(attempt), int(rank), int(step), float(at)) for attempt, rank, step, at in lines]


def test_a_host_that_comes_back_is_cleared_and_the_replacement_is_not_touched(
    lab: Lab, shared: Path, tmp_path: Path
) -> None:
    """Over within 240 s: the link is cut, and mended once the spare has begun; what each attempt wrote is its own.

    The host that is cut off goes on writing where all write: into the directory of the first attempt, and of what
    follows nothing there is of two attempts, and no step is there twice.
    """
    note = 'echo line $i; echo "$DTTUI_ATTEMPT $RANK $i $(date +%s.%N)" >> "$DTTUI_CHECKPOINT_DIR/steps.log"; sleep 0.1'
    # Until the host that comes back has been cleared, which takes some seconds from its link's being whole again.
    forever = STEPS.replace("n=60", "n=400").replace("sleep 0.1", note)
    policy = {**replacing(tmp_path), "checkpoint": {"dir": f"{SHARED}/run", "shared": True}}
    directory = launched(tmp_path, on_hosts(lab, tmp_path), {"gpu1": 1, "gpu2": 1}, forever, **policy)
    wait_for_step(directory, 40)
    lab["gpu2"].cut()
    wait_until(lambda: comebacks(directory.read_events()), "the spare to run", 120)
    assert processes_of(lab, "gpu2", directory)
    lab["gpu2"].heal()
    wait_until(lambda: not processes_of(lab, "gpu2", directory), "what was left to end", 120)
    left_over = (shared / "run/steps.log").read_bytes()
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED"
    assert events[-1].message.startswith("finished in")
    assert "not known" not in events[-1].message
    assert len(restarts(events)) == 1
    first, second = written(shared / "run/steps.log"), written(shared / "run/attempt-1/steps.log")
    assert (shared / "run/steps.log").read_bytes() == left_over
    assert ({line.attempt for line in first}, {line.attempt for line in second}) == ({0}, {1})
    assert sorted((line.rank, line.step) for line in second) == [(rank, i) for rank in (0, 1) for i in range(31, 401)]
    began = min(line.at for line in second)
    late = [line for line in first if line.at > began]
    # The host did write while the replacement ran, which is what the fault is about, and nobody else of its attempt.
    assert {line.rank for line in late} == {1}
    assert max(line.at for line in first) < max(line.at for line in second)
    # What that host has told meanwhile is fetched once it is back, and told as of the attempt that it was in.
    reports = [(attempt, item) for attempt, item in read_reports(directory.metrics) if (item.time or 0.0) > began]
    assert {item.rank for attempt, item in reports if attempt == 1} == {0, 1}
    assert {(attempt, item.rank) for attempt, item in reports} <= {(0, 1), (1, 0), (1, 1)}
    told = Counter((attempt, item.rank, item.step) for attempt, item in read_reports(directory.metrics))
    assert max(told.values()) == 1, told.most_common(3)
    log = AttemptFiles.of(Path("/var/tmp/dtagent-0"), directory.job_id, 0).logs / "1.out"
    printed = lab["gpu2"].run(["cat", str(log)]).stdout.decode().splitlines()
    assert printed == ["began", *(f"line {number}" for number in range(1, len(printed)))]
    assert (directory.logs(0, "gpu2") / "1.out").read_text().splitlines() == printed
    assert len(printed) > max(line.step for line in first if line.at <= began)


def test_what_a_lost_host_printed_after_it_was_lost_is_fetched_by_attach_once_it_answers(
    lab: Lab, tmp_path: Path
) -> None:
    """Over within 180 s: nobody follows the job any more when the link is mended."""
    directory = launched(
        tmp_path, on_hosts(lab, tmp_path), {"gpu1": 1, "gpu2": 1}, STEPS.replace("sleep", "echo line $i; sleep"),
        on_node_failure="stop", heartbeat_s=5,
    )  # fmt: skip
    wait_for_step(directory, 20)
    lab["gpu2"].cut()
    lost = ("gpu2", "unknown")
    wait_until(
        lambda: lost in [(item.node, item.data.get("state")) for item in directory.read_events()], "silence", DEADLINE_S
    )
    dttui("stop", directory.job_id, "--force", deadline_s=120)
    events = ended(directory, 120)
    assert "gpu2 could not be reached" in events[-1].message
    for controller in processes_like("dttui.engine", str(directory.path)):  # Nobody but the `attach` below is to look.
        os.kill(controller, signal.SIGKILL)
    wait_until(lambda: not directory.has_controller(), "the controller to be gone")
    copied = (directory.logs(0, "gpu2") / "1.out").read_text()
    lab["gpu2"].heal()
    done = dttui("attach", directory.job_id, deadline_s=120)
    assert done.returncode == events[-1].data["exit_code"], done.stderr
    assert processes_of(lab, "gpu2", directory) == []
    log = AttemptFiles.of(Path("/var/tmp/dtagent-0"), directory.job_id, 0).logs / "1.out"
    printed = lab["gpu2"].run(["cat", str(log)]).stdout.decode().splitlines()
    assert printed[:2] == ["began", "line 1"]
    kept = (directory.logs(0, "gpu2") / "1.out").read_text().splitlines()
    assert [line for line in kept if not line.startswith("…")] == printed
    assert len(printed) > len(copied.splitlines()) + 20
    assert unfetched_nodes(directory.read_events()) == []


def test_a_host_that_hears_nothing_ends_its_ranks_by_itself_while_its_link_is_cut(lab: Lab, tmp_path: Path) -> None:
    """Over within 240 s: the spare is due only after that; the link stays cut until what was left there has ended."""
    forever = STEPS.replace("n=60", "n=200")
    policy = {**replacing(tmp_path), "self_fence_s": 6}
    directory = launched(tmp_path, on_hosts(lab, tmp_path), {"gpu1": 1, "gpu2": 1}, forever, **policy)
    wait_for_step(directory, 40)
    assert processes_of(lab, "gpu2", directory)
    lab["gpu2"].cut()
    wait_until(lambda: not processes_of(lab, "gpu2", directory), "what ran there to end by itself", 120)
    wait_until(lambda: restarts(directory.read_events()), "the restart to be promised", 120)
    (restart,) = restarts(directory.read_events())
    silent = next(event for event in directory.read_events() if event.data.get("state") == "unknown")
    assert restart.data["until"] >= silent.data["heard_at"] + 6
    lab["gpu2"].heal()
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    assert [node["name"] for node in _nodes(directory, 1)] == ["gpu1", "gpu3"]
    (cleared,) = [event for event in events if (event.node, event.data.get("state")) == ("gpu2", "stopped")]
    assert "it had ended (nobody asked after the job" in cleared.message


def test_without_a_spare_the_gang_begins_again_once_its_host_is_back(lab: Lab, tmp_path: Path) -> None:
    """Over within 240 s."""
    directory = launched(
        tmp_path, on_hosts(lab, tmp_path), {"gpu1": 1, "gpu2": 1}, STEPS, on_node_failure="restart", heartbeat_s=5
    )
    wait_for_step(directory, 40)
    lab["gpu2"].kill()
    wait_until(lambda: restarts(directory.read_events()), "the restart to be promised", 120)
    lab["gpu2"].start()
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    assert [node["name"] for node in _nodes(directory, len(restarts(events)))] == ["gpu1", "gpu2"]
    assert "not known" not in events[-1].message


def test_with_min_nodes_the_gang_goes_on_without_its_host(lab: Lab, tmp_path: Path) -> None:
    """Over within 240 s."""
    recovery = {"on_node_failure": "restart", "heartbeat_s": 5, "min_nodes": 1}
    directory = launched(tmp_path, on_hosts(lab, tmp_path), {"gpu1": 1, "gpu2": 1}, STEPS, **recovery)
    wait_for_step(directory, 40)
    lab["gpu1"].kill()
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    assert [(node["name"], node["node_rank"]) for node in _nodes(directory, 1)] == [("gpu2", 0)]


def _plan(directory: JobDirectory, attempt: int) -> Any:
    return yaml.safe_load(directory.bound_plan(attempt).read_text())


def _nodes(directory: JobDirectory, attempt: int) -> list[dict[str, Any]]:
    plan = directory.read_bound_plan(attempt).plan
    return [{"name": node.name, "node_rank": node.node_rank} for node in plan.nodes]
