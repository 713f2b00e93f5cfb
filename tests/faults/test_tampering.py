"""Somebody on the training network who reaches an elastic job's rendezvous: none of his code runs, and all is told."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.engine.rendezvous.tampering import CODE
from dttui.jobs.following import JobFollower
from tests.faults import store_attacker
from tests.faults.leftovers import assert_nothing_is_left
from tests.integration import elastic_training
from tests.integration.headless import dttui, result_of, write_job
from tests.lab.hosts import Lab
from tests.lab.interpreter import USER_PYTHON
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.torch,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]"
    ),
]
BOMB = "/tmp/unpickled"
OVER = "/tmp/over"
"""Until it is there the job goes on: whoever attacks it imports torch first, which takes its time on a busy machine."""


@dataclass
class Attacked:
    """An elastic job of gpu1 and gpu2 that trains, and whoever on gpu3 reaches the port of its rendezvous."""

    lab: Lab
    follower: JobFollower
    address: str
    port: str
    run_id: str

    def suffer(self, deed: str, *more: str) -> None:
        script = Path(store_attacker.__file__).read_bytes()
        argv = [USER_PYTHON, "-", self.address, self.port, self.run_id, deed, *more]
        self.lab["gpu3"].run(argv, script, timeout=120.0, check=False)  # The store may go with the job.

    def wait_for_round(self, number: int) -> None:
        def has_come() -> bool:
            events = self.follower.directory.read_events()
            told = {event.data["port"] for event in events if event.kind is EventKind.RANKS}
            return len(told) == number

        wait_until(has_come, f"round {number}", 60.0)

    def end(self, deadline_s: float = 120.0) -> dict[str, Any]:
        self.lab["gpu1"].run(["touch", OVER])
        done = dttui("attach", self.follower.view.job_id, "--output", "json", deadline_s=deadline_s)
        while self.follower.poll():
            pass
        assert_nothing_is_left(self.follower.directory, self.lab)
        return result_of(done)


def start(lab: Lab, directory: Path, steps: int = 120) -> Attacked:
    for name in ("gpu1", "gpu2"):
        lab[name].run(["rm", "-f", OVER])
    inventory = lab.inventory(directory / "inventory.yaml")
    shutil.copy(elastic_training.__file__, directory / "train.py")
    job = write_job(
        directory,
        {"gpu1": 1, "gpu2": 1},
        framework="pytorch-ddp",
        framework_options={"elastic": {"min_nodes": 2, "wait_s": 3}},
        communication={"collective_timeout": "6s"},
        run={"script": "train.py", "workdir": ".", "args": [str(steps), "0.1", OVER]},
    )
    started = dttui("--apply", job, "--inventory", inventory, "--detach", "--output", "json")
    assert started.returncode == 0, started.stderr
    follower = JobFollower(jobs.find(result_of(started)["job_id"]))

    def trains() -> bool:
        return any(event.kind is EventKind.METRIC for event in follower.poll())

    wait_until(trains, "some steps", 150.0)
    (launcher,) = [item.cmdline for item in lab["gpu1"].processes() if "--rdzv-endpoint" in item.cmdline]
    told = dict(word[2:].split("=", 1) for word in launcher.split() if word.startswith("--") and "=" in word)
    address, _, port = told["rdzv-endpoint"].rpartition(":")
    return Attacked(lab, follower, address, port, told["rdzv-id"])


def assert_it_went_well_or_was_told(attacked: Attacked, result: dict[str, Any]) -> None:
    """The job goes on, or ends and says why; of what was altered there is a word in both."""
    told = [event for event in attacked.follower.view.findings if event.data["code"] == CODE]
    if result["state"] == "SUCCEEDED":
        assert told, "nothing was told"
        assert "that was put right" in told[0].message
    else:
        assert "the rendezvous was tampered with: on gpu" in result["reason"], result["reason"]
        assert "Let nobody but the nodes reach 10.77." in result["reason"], result["reason"]


def test_no_code_runs_of_who_writes_to_the_rendezvous(deployed: Lab, breakable_lab3: Lab, tmp_path: Path) -> None:
    """Within 120 s: a pickle that makes a directory where it is read, alone and in the place of a part of a state."""
    attacked = start(breakable_lab3, tmp_path)
    attacked.suffer("bomb", BOMB)
    result = attacked.end()
    hosts = breakable_lab3.values()
    assert [host.name for host in hosts if host.run(["test", "-e", BOMB], check=False).returncode == 0] == []
    assert_it_went_well_or_was_told(attacked, result)


@pytest.mark.parametrize("deed", ["hold", "delay", "flood"])
def test_a_rendezvous_that_is_disturbed_holds_or_its_end_is_told(
    deed: str, deployed: Lab, breakable_lab3: Lab, tmp_path: Path
) -> None:
    """Within 120 s: keys taken away and given back, put back late, or all overwritten twenty times a second."""
    attacked = start(breakable_lab3, tmp_path)
    attacked.suffer(deed)
    assert_it_went_well_or_was_told(attacked, attacked.end())


def test_states_of_an_earlier_round_and_of_another_attempt_are_known(
    deployed: Lab, breakable_lab3: Lab, tmp_path: Path
) -> None:
    """Within 240 s: what a job had written some seconds before, and what the job before it had."""
    earlier = start(breakable_lab3, tmp_path, steps=60)
    earlier.suffer("read", "/tmp/another")
    assert earlier.end()["state"] == "SUCCEEDED"
    (tmp_path / "next").mkdir()
    attacked = start(breakable_lab3, tmp_path / "next", steps=200)
    attacked.suffer("replay", "/tmp/another")
    attacked.suffer("read", "/tmp/before")
    gpu2 = breakable_lab3["gpu2"]
    (rank,) = [item.pid for item in gpu2.processes() if "/rank.py" in item.cmdline and "--rdzv" not in item.cmdline]
    gpu2.run(["kill", "-KILL", str(rank)])
    attacked.wait_for_round(2)
    attacked.suffer("replay", "/tmp/before")
    assert_it_went_well_or_was_told(attacked, attacked.end())
