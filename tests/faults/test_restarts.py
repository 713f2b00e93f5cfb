"""A job that a policy starts again, with controllers killed between any two of the records that they write."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from dtagent.protocol.events import Event, EventKind, JobState

from dttui import locations
from dttui.inventory import load_inventory
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.exit_codes import exit_code_of
from dttui.jobs.outcome import AttemptOutcome, NodeEnd
from tests.agent.conversation import processes_with
from tests.faults.restarting import begun, ended, runs
from tests.integration.headless import shell_job
from tests.lab.hosts import Lab
from tests.processes import ended_agents as ended_agents

ONE, TWO = "pytorch-dev-env", "llm-training-env"
FAILS_ONCE = 'echo ran; sleep 0.4; if [ "$RANK" = 1 ] && [ "$DTTUI_ATTEMPT" = 0 ]; then exit 3; fi'
CELLS = 2
"""Records of a preflight's board that are counted: one of each host."""
MOST_RECORDS = 70
SHARES = 8
"""Tests among which the records are shared out: every eighth record is for one of them."""
OFTEN = (0, 5)
"""Shares that are run each time."""


def states(events: Sequence[Event]) -> list[tuple[int | None, str]]:
    return [(event.attempt, event.data["state"]) for event in events if event.kind is EventKind.JOB_STATE]


def check(directory: JobDirectory, events: list[Event], names: list[str]) -> str:
    """Check what must hold wherever a controller died; return the final state."""
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event.kind for event in events].count(EventKind.OUTCOME) == 1
    assert events[-1].kind is EventKind.OUTCOME
    told = states(events)
    restarts = [state for _attempt, state in told].count("RESTARTING")
    ran = runs(directory, names)
    for attempt in range(restarts + 2):
        assert all(count <= 1 for count in ran(attempt)), f"attempt {attempt} ran twice"
    assert ran(restarts + 1) == [0, 0]
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []
    final = str(events[-1].data["state"])
    if final == "SUCCEEDED":
        assert ran(restarts) == [1, 1]
    return final


def test_a_job_that_fails_is_started_again_where_its_policy_allows_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over within 120 s; nothing of it is left."""
    directory, first = begun(shell_job(tmp_path, {ONE: 1, TWO: 1}, FAILS_ONCE), demo(), monkeypatch, 0)
    events = ended(directory, first)
    assert check(directory, events, [ONE, TWO]) == "SUCCEEDED"
    (restarting,) = (event for event in events if event.data.get("state") == JobState.RESTARTING.value)
    assert restarting.message == f"rank 1 on {TWO} exited with code 3; starting again"
    outcome = AttemptOutcome.model_validate(restarting.data["attempt_outcome"])
    assert (outcome.attempt, outcome.state, exit_code_of(outcome)) == (0, JobState.FAILED, 100)
    assert {name: node.end for name, node in outcome.nodes.items()} == dict.fromkeys((ONE, TWO), NodeEnd.CLEAN)
    assert outcome.nodes[TWO].ranks[1].exit_code == 3
    assert outcome.first_failure is not None
    assert (outcome.first_failure.node, outcome.first_failure.rank) == (TWO, 1)
    assert outcome.left_behind == ()
    last = [event for event in events if event.kind is EventKind.JOB_STATE][-1]
    final = AttemptOutcome.model_validate(last.data["attempt_outcome"])
    assert (final.attempt, final.state) == (1, JobState.SUCCEEDED)
    told = states(events)
    again = [state for attempt, state in told if attempt == 1]
    # Its ranks may have ended before a controller that is held up sees them run.
    assert again == ["PREFLIGHT", "LAUNCHING", "RENDEZVOUS", *["RUNNING"] * ("RUNNING" in again)]


def test_a_controller_killed_around_the_promise_of_a_restart_leaves_a_job_that_the_next_one_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over within 120 s each; it dies at the promise of the restart, after it, and in the second launch."""
    file = shell_job(tmp_path, {ONE: 1, TWO: 1}, FAILS_ONCE)
    directory, first = begun(file, demo(), monkeypatch, 0)
    counted = [event for event in ended(directory, first) if event.kind is not EventKind.PREFLIGHT]
    records = [(event.attempt, event.data.get("state")) for event in counted]
    promise = records.index((0, "RESTARTING")) + 1 + CELLS
    launching = records.index((1, "LAUNCHING")) + 1 + 2 * CELLS
    for dies_at in (promise, promise + 1, launching + 1):
        directory, first = begun(file, demo(), monkeypatch, dies_at)
        events = ended(directory, first)
        assert first.returncode != 0
        assert check(directory, events, [ONE, TWO]) == "SUCCEEDED"


@pytest.mark.parametrize(
    "share", [share if share in OFTEN else pytest.param(share, marks=pytest.mark.thorough) for share in range(SHARES)]
)
def test_a_controller_killed_before_any_of_its_records_leaves_a_job_that_the_next_one_ends_well(
    share: int, deployed: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over within 120 s each; no rank runs twice in an attempt, and nothing is left.

    What follows is for a fake policy to say, which starts again what the real one would not.
    """
    inventory = load_inventory(deployed.inventory(tmp_path / "inventory.yaml"))
    file = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, FAILS_ONCE)
    seen = []
    for dies_at in range(1 + share, MOST_RECORDS, SHARES):
        directory, first = begun(file, inventory, monkeypatch, dies_at, decides="fake")
        events = ended(directory, first, decides="fake")
        assert check(directory, events, ["gpu1", "gpu2"]) == "SUCCEEDED", (dies_at, states(events))
        seen.append(dies_at)
        if first.returncode == 0:
            return  # It came to its end before that record.
    raise AssertionError(f"there were more than {MOST_RECORDS} records: {seen}")


def demo() -> Inventory:
    return demo_inventory(locations.demo_root(), locations.shipped("examples"), sys.executable)
