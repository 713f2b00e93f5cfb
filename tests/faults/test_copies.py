"""Checkpoints on one host's own disk outlive it: copies on others are what the next attempt goes on from."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import Event

from dttui.jobs import JobDirectory
from tests.faults.recovering import demo, ended, launched, on_hosts, processes_of, submitted, told
from tests.faults.recovering import lab as lab
from tests.integration.headless import DEADLINE_S, dttui, example_job
from tests.integration.slow_steps import slow_down
from tests.integration.test_gpt_example import TINY
from tests.lab.hosts import Lab
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"
pytestmark = pytest.mark.xdist_group("lab of recovery")
DIRECTORY = "/var/tmp/checkpoints-of-its-own"
STEPS, EVERY = 240, 60

SAVES = """
step=0
[ -n "$DTTUI_RESUME_FROM" ] && echo "from=$DTTUI_RESUME_FROM step=$(cat "$DTTUI_RESUME_FROM/state")" &&
  step=$(tr -dc '0-9 ' < "$DTTUI_RESUME_FROM/state" | cut -d' ' -f1)
most=100000; [ "$DTTUI_ATTEMPT" != 0 ] && most=$((step+20))
while [ $step -lt $most ]; do
  step=$((step+1)); echo "{\\"step\\": $step}" >> "$DTTUI_METRICS"; sleep 0.1
  if [ "$RANK" = 0 ] && [ $((step%10)) = 0 ]; then
    d=$DTTUI_CHECKPOINT_DIR/step-$step; mkdir -p "$d"; echo $step > "$d/state"; touch "$d/COMPLETE"
  fi
done
"""


EACH_SAVES = SAVES.replace('[ "$RANK" = 0 ] && ', "").replace("echo $step >", "echo $step of $RANK >")
"""The same, but that each rank saves a part, and says of which it has read one."""


def kept_on_own_disks(directory: str, **more: Any) -> dict[str, Any]:
    checkpoint = {"dir": directory, "copies": 1, "interval": "10s"}
    return {"on_node_failure": "replace", "spares": ["gpu3"], "heartbeat_s": 5, "checkpoint": {**checkpoint, **more}}


def copied(events: list[Event], target: str) -> list[int]:
    return [event.data["step"] for event in events if event.data.get("copied") and event.data["target"] == target]


def wait_for_copy(directory: JobDirectory, target: str, step: int) -> None:
    def is_there() -> bool:
        return any(found >= step for found in copied(directory.read_events(), target))

    try:
        wait_until(is_there, f"a copy on {target}", DEADLINE_S)
    except AssertionError as error:
        raise AssertionError([event.message for event in directory.read_events()][-12:]) from error


@pytest.mark.parametrize("way", ["off", pytest.param("cut off a while", marks=pytest.mark.thorough)])
def test_a_spare_in_the_masters_place_gets_the_copy_that_another_host_kept(way: str, lab: Lab, tmp_path: Path) -> None:
    """Over within 240 s; a host that is there again once the spare has begun is cleared, and writes no more.

    Each host writes a part: the spare gets the master's, and the other one has its own.
    """
    place, recovery = DIRECTORY + "-lines", kept_on_own_disks(DIRECTORY + "-lines")
    directory = launched(tmp_path, on_hosts(lab, tmp_path), {"gpu1": 1, "gpu2": 1}, EACH_SAVES, **recovery)
    wait_for_copy(directory, "gpu2", 20)
    if way == "off":
        lab["gpu1"].kill()
    else:
        lab["gpu1"].cut()
        wait_until(lambda: (1, "RUNNING") in told(directory.read_events()), "the spare to begin", 240)
        lab["gpu1"].heal()
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    if way != "off":
        assert dttui("stop", directory.job_id, deadline_s=60.0).returncode == 0  # Where it was not cleared in time.
        assert processes_of(lab, "gpu1", directory) == []
        assert lab["gpu1"].run(["find", place, "-name", "attempt-1"]).stdout == b""
    (resumed,) = (event for event in events if event.data.get("resume_from"))
    before = [event for event in events if event.attempt == 0]
    assert resumed.data["step"] == max(copied(before, "gpu2"))
    assert copied(events, "gpu3")[0] == resumed.data["step"]  # Later ones are of the other host's in this attempt.
    said = (directory.logs(1, "gpu3") / "0.out").read_text()
    assert said == f"from={resumed.data['resume_from']} step={resumed.data['step']} of 0\n"
    assert f" step={resumed.data['step']} of 1\n" in (directory.logs(1, "gpu2") / "1.out").read_text()
    left = lab["gpu2"].run(["find", place, "-name", "*.dttui-copies*"]).stdout
    assert left == b""


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]")
def test_a_training_whose_masters_host_is_off_ends_with_the_losses_and_parameters_of_one_that_was_not(
    lab: Lab, tmp_path: Path
) -> None:
    """Over within 300 s."""
    torch = importlib.import_module("torch")
    args = ["--steps", str(STEPS), "--checkpoint-every", str(EVERY), "--resume", *TINY]
    whole = tmp_path / "whole"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    path = example_job(tmp_path / "a", {"gpu1": 1, "gpu2": 1}, *args)
    slow_down(tmp_path / "a/gpt/train.py")
    directory = submitted(path, on_hosts(lab, tmp_path), **kept_on_own_disks(DIRECTORY))
    wait_for_copy(directory, "gpu2", EVERY)
    lab["gpu1"].kill()
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    (resumed,) = (event for event in events if event.data.get("resume_from"))
    assert resumed.data["step"] >= EVERY
    undisturbed = submitted(
        example_job(tmp_path / "b", {ONE: 1, TWO: 1}, *args), demo(), checkpoint={"dir": str(whole)}
    )
    assert ended(undisturbed)[-1].data["state"] == "SUCCEEDED"
    expected, found = losses(undisturbed), losses(directory)
    assert found == expected
    state = f"step-{STEPS:08}/state.pt"
    mine = lab["gpu3"].run(["cat", f"{DIRECTORY}/attempt-1/{state}"]).stdout
    assert digest(torch, mine) == digest(torch, (whole / state).read_bytes())


def losses(directory: JobDirectory) -> dict[int, float]:
    """Return the last loss that was told of each step."""
    lines = (json.loads(line) for line in directory.metrics.read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def digest(torch: Any, data: bytes) -> str:
    """Return the hash of all tensors in what torch has saved, by their names."""
    made = hashlib.sha256()

    def add(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            made.update(name.encode() + value.detach().contiguous().numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                add(f"{name}.{key}", value[key])

    add("", torch.load(BytesIO(data), weights_only=False))
    return made.hexdigest()


def test_a_host_that_goes_on_alone_begins_with_the_copy_that_it_kept_itself(lab: Lab, tmp_path: Path) -> None:
    """Over within 240 s."""
    recovery = kept_on_own_disks(DIRECTORY + "-alone") | {"on_node_failure": "restart", "spares": [], "min_nodes": 1}
    directory = launched(tmp_path, on_hosts(lab, tmp_path), {"gpu1": 1, "gpu2": 1}, SAVES, **recovery)
    wait_for_copy(directory, "gpu2", 20)
    lab["gpu1"].kill()
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    (resumed,) = (event for event in events if event.data.get("resume_from"))
    assert resumed.data["step"] == max(copied(events, "gpu2"))
    said = (directory.logs(1, "gpu2") / "0.out").read_text()
    assert said == f"from={resumed.data['resume_from']} step={resumed.data['step']}\n"


def test_of_two_copies_each_the_last_host_goes_on_from_its_own_when_both_others_are_off_at_once(
    lab: Lab, tmp_path: Path
) -> None:
    """Over within 240 s."""
    place = DIRECTORY + "-twice"
    recovery = kept_on_own_disks(place, copies=2) | {"on_node_failure": "restart", "spares": [], "min_nodes": 1}
    directory = launched(tmp_path, on_hosts(lab, tmp_path), {"gpu1": 1, "gpu2": 1, "gpu3": 1}, SAVES, **recovery)
    for target in ("gpu2", "gpu3"):
        wait_for_copy(directory, target, 20)
    for name in ("gpu1", "gpu2"):
        lab[name].kill()
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    (resumed,) = (event for event in events if event.data.get("resume_from"))
    assert resumed.data["step"] == max(copied(events, "gpu3"))
    assert resumed.data["resume_from"].startswith(f"{place}/.dttui-copies/")
    said = (directory.logs(1, "gpu3") / "0.out").read_text()
    assert said == f"from={resumed.data['resume_from']} step={resumed.data['step']}\n"
