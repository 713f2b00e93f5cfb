"""What a job listens with, by the sockets of its processes on isolated hosts whose training addresses are names."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.jobs.following import JobFollower
from tests.integration import elastic_training
from tests.integration.headless import dttui_here, result_of, write_job
from tests.lab.hosts import Lab
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]"
    ),
]
NAMES = ("gpu1", "gpu2")
ELASTIC = {"elastic": {"min_nodes": 2, "wait_s": 3}}


def listeners(lab: Lab, name: str) -> list[tuple[str, str]]:
    """Return address and command line of all that listens on a host but sshd."""
    commands = {item.pid: item.cmdline for item in lab[name].processes()}
    lines = lab[name].run(["ss", "-Hltnp"]).stdout.decode().splitlines()
    found = [(line.split()[3].rpartition(":")[0], int(re.findall(r"pid=(\d+)", line)[0])) for line in lines]
    return [(address, commands.get(pid, "")) for address, pid in found if "sshd" not in commands.get(pid, "")]


@pytest.mark.parametrize("options", [None, ELASTIC], ids=["static", "elastic"])
def test_all_that_a_torch_job_listens_with_is_on_the_training_address_though_that_is_a_name(
    options: dict[str, Any] | None, deployed: Lab, lab3: Lab, tmp_path: Path
) -> None:
    """Within 90 s: torchrun's stores, the ranks' own and gloo."""
    inventory = lab3.inventory(tmp_path / "inventory.yaml", **{name: {"address": name} for name in NAMES})
    shutil.copy(elastic_training.__file__, tmp_path / "train.py")
    job = write_job(
        tmp_path,
        dict.fromkeys(NAMES, 1),
        framework="pytorch-ddp",
        **({"framework_options": options} if options else {}),
        run={"script": "train.py", "workdir": ".", "args": ["1000", "0.1"]},
    )
    started = dttui_here("--apply", job, "--inventory", inventory, "--detach", "--output", "json")
    assert started.returncode == 0, started.stderr
    follower = JobFollower(jobs.find(result_of(started)["job_id"]))
    try:
        trains = lambda: any(event.kind is EventKind.METRIC for event in follower.poll())  # noqa: E731 - said once
        wait_until(trains, "some steps", 90.0)
        for name in NAMES:
            found = listeners(lab3, name)
            assert {address for address, _command in found} == {lab3[name].address}, found
        commands = [command for _address, command in listeners(lab3, "gpu1")]
        assert any("torchrun.py" in command for command in commands)
        assert any("train.py" in command and "torchrun.py" not in command for command in commands)
    finally:
        dttui_here("stop", follower.view.job_id)
