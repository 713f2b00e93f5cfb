"""Job directories of the version before, kept as they were written: readers of today make of them what that did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState, NodeStanding

from dttui import jobs, locations
from dttui.cli import main
from dttui.engine.recovered import RecoveredState, read_history
from dttui.files import write_atomic
from dttui.i18n import set_language
from dttui.inventory.reader import parse_inventory
from dttui.jobs import JobDirectory
from dttui.jobs.following import JobFollower
from dttui.planning.models import BoundPlan, Plan
from dttui.spec import DocumentError
from tests.tui.catalogue import compile_catalogues

KEPT = Path(__file__).parent / "written_before"
GOOD, BAD = "good-1123-062846-aa1f", "bad-1123-062857-d7a9"
NODES = ("pytorch-dev-env", "llm-training-env")


@pytest.fixture(autouse=True)
def directories() -> dict[str, JobDirectory]:
    """Both jobs, where jobs are looked for."""
    for name in (GOOD, BAD):
        shutil.copytree(KEPT / name, locations.jobs_directory() / name)
    return {name: jobs.find(name) for name in (GOOD, BAD)}


def test_they_are_listed_and_told_with_their_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--all", "--output", "json"]) == 0
    assert {row["job_id"]: row["state"] for row in json.loads(capsys.readouterr().out)} == {
        GOOD: "SUCCEEDED",
        BAD: "FAILED",
    }
    assert main(["status", GOOD]) == 0
    assert "rank 0: step 11  loss 0.273  gradient norm 1.5  steps/s 3" in capsys.readouterr().out
    assert main(["status", BAD, "--output", "json"]) == 100
    told = json.loads(capsys.readouterr().out)
    assert [(node["name"], node["ranks"], node["state"]) for node in told["nodes"]] == [
        ("pytorch-dev-env", [0], "stopped"),
        ("llm-training-env", [1], "failed"),
    ]
    assert (told["metric"]["step"], told["metric"]["loss"]) == (11, 0.273)


def test_why_one_failed_is_found_in_its_logs_in_the_readers_language(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", BAD]) == 100
    found = capsys.readouterr().out
    assert "rank 1 on llm-training-env exited with code 1" in found
    assert "The script raised ValueError in train.py, line 8: batch 11 has no samples" in found
    assert main(["logs", BAD, "--rank", "1", "--stderr"]) == 0
    assert "batch 11 has no samples" in capsys.readouterr().out
    compile_catalogues()
    try:
        assert main(["status", BAD, "--lang", "zh"]) == 100
        assert "退出码" in capsys.readouterr().out
    finally:
        set_language("en")


def test_what_ranks_reported_is_drawn_whatever_was_known_by_name_then(directories: dict[str, JobDirectory]) -> None:
    follower = JobFollower(directories[BAD])
    while follower.poll():
        pass
    loss, speed = follower.view.curves()
    assert (loss.name, loss.points[0], loss.points[-1]) == ("loss", (1, 3.0), (11, 0.273))
    assert (speed.name, {value for _step, value in speed.points}) == ("steps_per_s", {3.0})
    assert [node.sample is not None for node in follower.view.nodes.values()] == [True, True]


@pytest.mark.parametrize("name", [GOOD, BAD])
def test_a_plan_and_what_was_bound_of_it_are_read_and_written_again_without_loss(
    name: str, directories: dict[str, JobDirectory]
) -> None:
    directory = directories[name]
    plan = Plan.model_validate_json(directory.plan.read_bytes())
    bound = BoundPlan.model_validate_json(directory.bound_plan(0).read_bytes())
    for made in (plan, bound.plan):
        assert tuple(node.name for node in made.nodes) == NODES
        assert [(node.node_rank, node.ranks, node.slots, node.cuda_slots) for node in made.nodes] == [
            (0, (0,), 1, 0),
            (1, (1,), 1, 0),
        ]
        assert all(node.simulated and node.address == "127.0.0.1" and node.processes for node in made.nodes)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert BoundPlan.model_validate_json(bound.model_dump_json()) == bound


def with_dropped_keys(value: object) -> object:
    """Return a document of which each object has a key that no model knows."""
    if isinstance(value, dict):
        return {key: with_dropped_keys(item) for key, item in value.items()} | {"dropped": {"since": [1]}}
    return [with_dropped_keys(item) for item in value] if isinstance(value, list) else value


def test_keys_that_were_dropped_since_are_passed_over_in_whatever_dttui_wrote_itself(
    directories: dict[str, JobDirectory],
) -> None:
    directory = directories[GOOD]
    readings = (directory.read_launch, directory.read_plan, lambda: directory.read_bound_plan(0))
    before = [read() for read in readings]
    launch = json.loads(directory.launch.read_text())
    launch["inventory"] = with_dropped_keys(launch["inventory"])
    write_atomic(directory.launch, json.dumps({**launch, "dropped": 1}))
    plan = json.loads(directory.plan.read_text())
    write_atomic(directory.plan, json.dumps({**plan, "aggregate": {**plan["aggregate"], "dropped": 1}, "dropped": [2]}))
    bound = json.loads(directory.bound_plan(0).read_text())
    for binding in bound["bindings"]["nodes"].values():
        binding["dropped"] = 3
    write_atomic(directory.bound_plan(0), json.dumps({**bound, "dropped": {}}))
    assert [read() for read in readings] == before
    with pytest.raises(DocumentError, match="unknown key"):  # What a person writes stays as strict as it was.
        parse_inventory("environments: [{name: a, host: h, dropped: 1}]", "inventory.yaml")


def test_a_controller_can_take_over_what_was_running_then(directories: dict[str, JobDirectory]) -> None:
    directory = directories[GOOD]
    lines = directory.events.read_text().splitlines(keepends=True)
    running = next(number for number, line in enumerate(lines) if '"state": "RUNNING"' in line)
    directory.events.write_text("".join(lines[: running + 1]))
    found = RecoveredState.read(directory, 1e9)
    assert (found.attempt, found.is_new, found.started_all) == (0, False, True)
    assert found.bound is not None
    assert set(found.bound.bindings.nodes) == set(NODES)
    assert found.states[-1] is JobState.RUNNING
    assert read_history(directory) == []
    follower = JobFollower(directory)
    follower.poll()
    assert {node.state for node in follower.view.nodes.values()} == {NodeStanding.RUNNING}
    assert all(event.kind is not EventKind.OUTCOME for event in follower.view.events)
