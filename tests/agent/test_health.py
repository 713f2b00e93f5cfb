"""The job's own command that says whether it goes well on a host: counted, bounded, gone with all that it forked."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.health import Health, HealthCheck
from dtagent.supervision.family import Family
from dtagent.supervision.health import LINE_CHARACTERS, CheckResult, HealthRunner, HealthTally
from dtagent.system import processes
from dtagent.system.processes import ProcessId

from tests.agent.conversation import Conversation, processes_with
from tests.waiting import wait_until

GOOD, BAD = CheckResult(0), CheckResult(3, line="no batch for 90 s")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    with Conversation(tmp_path_factory.mktemp("health") / "root") as conversation:
        yield conversation


def tally(**more: Any) -> HealthTally:
    return HealthTally(HealthCheck(["check"], "/", 1, 1, **{"failures": 3, **more}), 0.0)


def start(agent: Conversation, job_id: str, command: str, **more: Any) -> Path:
    """Start a rank beside which a command is run in `check`, 20 times a second."""
    directory = Path(agent.prepare(job_id)["directory"])
    check = {"argv": ["sh", "-c", command], "cwd": str(directory), "every_s": 0.05, "timeout_s": 20, "failures": 2}
    agent.start(job_id, [["sleep", "1000"]], health={**check, **more})
    return directory


def runs_of(job_id: str) -> set[int]:
    """Return the processes of runs."""
    return {*processes_with(f"DTTUI_JOB_ID={job_id}")} & {*processes_with("DTTUI_HEALTH_CHECK=1")}


def health(agent: Conversation, job_id: str, *, is_healthy: bool) -> dict[str, Any]:
    def look() -> Any:
        told = agent.status(job_id).get("health")
        return told if told is not None and told["is_healthy"] is is_healthy else None

    return wait_until(look, f"{job_id} to be told as healthy: {is_healthy}")


def bar(path: Path) -> None:
    """Put a directory in the place of a file that is made again as soon as it is gone."""

    def is_done() -> bool:
        path.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        return path.is_dir()

    wait_until(is_done, f"{path} to be a directory")


def test_some_failures_in_a_row_count_and_one_success_ends_them() -> None:
    count = tally()
    assert not any(count.take(BAD, now, 100 + now) for now in (1, 2))
    assert count.take(GOOD, 3, 103)
    assert count.health is not None
    assert count.health.is_healthy
    assert not any(count.take(BAD, now, 100 + now) for now in (4, 5))
    assert count.take(BAD, 6, 106)
    assert (count.health.is_healthy, count.health.since, count.health.exit_code) == (False, 104, 3)
    assert count.health.line == "no batch for 90 s"
    assert count.take(GOOD, 7, 107)
    assert (count.health.is_healthy, count.health.since) == (True, 107)


def test_the_same_failure_with_another_line_is_no_news_and_another_failure_is() -> None:
    count = tally(failures=1)
    assert count.take(BAD, 1, 101)
    assert not count.take(CheckResult(3, line="no batch for 120 s"), 2, 102)
    assert count.take(CheckResult(timed_out=True), 3, 103)
    assert count.health is not None
    assert count.health.since == 101


def test_failures_of_the_start_period_do_not_count_unless_one_has_succeeded() -> None:
    count = tally(failures=1, start_period_s=60)
    assert not count.take(BAD, 59, 100)
    assert count.take(BAD, 60, 101)
    early = tally(failures=1, start_period_s=60)
    assert early.take(GOOD, 1, 100)
    assert early.take(BAD, 2, 101)


def test_the_greeting_says_that_it_checks_health(agent: Conversation) -> None:
    assert agent.call("hello", {"versions": [1]})["checks_health"] is True


def test_a_command_is_run_in_the_environment_of_the_ranks_and_what_it_says_is_told(agent: Conversation) -> None:
    directory = start(agent, "told", 'echo first; printf "\\033[31m%s %s\\033[0m\\n" "$DTTUI_JOB_ID" "$PWD"; [ -e ok ]')
    told = health(agent, "told", is_healthy=False)
    assert (told["exit_code"], told.get("signal"), told.get("timed_out", False)) == (1, None, False)
    assert told["line"] == f"told {directory}"
    (directory / "ok").touch()
    assert health(agent, "told", is_healthy=True)["exit_code"] == 0
    agent.stop("told", force=True)
    agent.end_of("told")


def test_what_was_said_is_told_again_where_its_file_is_removed_and_the_end_is_told_where_it_cannot_be(
    agent: Conversation,
) -> None:
    directory = start(agent, "gone", "exit 1")
    health(agent, "gone", is_healthy=False)
    (directory / "health.json").unlink()
    health(agent, "gone", is_healthy=False)
    directory = start(agent, "barred", "[ -e ok ]", failures=1)
    health(agent, "barred", is_healthy=False)
    bar(directory / "health.json")
    (directory / "ok").touch()
    for job_id in ("gone", "barred"):
        agent.stop(job_id)
        assert agent.end_of(job_id)["state"] == "ended"


def test_a_run_that_takes_too_long_is_killed_with_what_it_forked_away(agent: Conversation) -> None:
    start(agent, "slow", "setsid sleep 1000 & sleep 1001", timeout_s=0.3, failures=1)
    assert health(agent, "slow", is_healthy=False)["timed_out"] is True
    # Those of the next run are there by now, or will be: of none there is more than one.
    wait_until(lambda: not runs_of("slow"), "a moment without a run")
    agent.stop("slow", force=True)
    agent.end_of("slow")
    assert not processes_with("DTTUI_JOB_ID=slow")


def test_a_run_that_cannot_be_ended_counts_again_and_no_other_begins_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it waits for a file system that does not answer: SIGKILL does nothing to it then."""
    unheard, told = list[ProcessId](), list[Health]()
    runs = tmp_path / "runs"
    argv = ["sh", "-c", f"echo x >> {runs}; exec sleep 1000"]
    check = HealthCheck(argv, str(tmp_path), every_s=0.05, timeout_s=0.05, failures=3)
    family = Family(AttemptKey("stuck", 1), 0)
    environment = {**os.environ, "DTTUI_JOB_ID": "stuck", "DTTUI_ATTEMPT": "1", "DTTUI_NODE_RANK": "0"}
    runner = HealthRunner(check, family, environment, lambda: True, told.append)

    def is_told() -> bool:
        runner.look()
        return bool(told)

    with monkeypatch.context() as deaf:
        deaf.setattr(processes, "send", lambda process, _signal: unheard.append(process))
        wait_until(is_told, "the run to be told as one that takes too long")
    assert (told[0].is_healthy, told[0].timed_out) == (False, True)
    wait_until(lambda: runs.exists() and runs.read_text(), "the run to have begun")
    assert runs.read_text() == "x\n"
    assert {item.pid for item in unheard} == runs_of("stuck")
    runner.close(lambda: None)
    assert not runs_of("stuck")


def test_what_a_run_that_ended_well_has_left_is_ended(agent: Conversation) -> None:
    directory = start(agent, "left", "setsid sleep 1000 & [ -e before ] && touch twice; touch before", every_s=0.3)
    wait_until((directory / "twice").exists, "a second run")
    wait_until(lambda: not runs_of("left"), "a moment without a run")
    agent.stop("left", force=True)
    agent.end_of("left")


def test_no_two_runs_are_there_at_a_time(agent: Conversation) -> None:
    command = "mkdir one 2>/dev/null || touch two; echo x >> runs; sleep 0.05; rmdir one"
    directory = start(agent, "alone", command)
    runs = directory / "runs"
    wait_until(lambda: runs.exists() and len(runs.read_text()) >= 8, "four runs")
    assert not (directory / "two").exists()
    agent.stop("alone", force=True)
    agent.end_of("alone")


def test_of_what_a_run_prints_the_end_is_kept_and_it_may_print_more_than_a_pipe_holds(agent: Conversation) -> None:
    start(agent, "loud", "head -c 200000 /dev/zero | tr '\\0' a; echo; head -c 5000 /dev/zero | tr '\\0' b; exit 4")
    told = health(agent, "loud", is_healthy=False)
    assert (told["exit_code"], told["line"]) == (4, "b" * LINE_CHARACTERS)
    agent.stop("loud", force=True)
    agent.end_of("loud")


def test_a_command_that_is_not_there_is_told(agent: Conversation) -> None:
    start(agent, "absent", "", argv=["/nowhere/check"])
    assert health(agent, "absent", is_healthy=False)["error"] == "/nowhere/check: No such file or directory"
    agent.stop("absent", force=True)
    agent.end_of("absent")


def test_a_run_under_way_does_not_hold_up_the_end_of_an_attempt(agent: Conversation) -> None:
    directory = start(agent, "over", "trap '' TERM; touch began; sleep 1000")
    wait_until((directory / "began").exists, "a run")
    agent.stop("over")
    assert agent.end_of("over")["state"] == "ended"
    assert not processes_with("DTTUI_JOB_ID=over")


def test_nothing_of_a_run_stays_where_its_supervisor_is_killed(agent: Conversation) -> None:
    directory = start(agent, "killed", "touch began; setsid sleep 1000 & sleep 1000")
    wait_until((directory / "began").exists, "a run")
    os.kill(json.loads((directory / "supervisor.json").read_text())["pid"], signal.SIGKILL)
    assert agent.end_of("killed")["state"] == "lost"
    assert not processes_with("DTTUI_JOB_ID=killed")
