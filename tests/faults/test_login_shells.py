"""Login shells that print, sleep, exit, are none, or speak no sh: the agent is reached, or the host named in time."""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.headless import dttui
from tests.lab.fixtures import require_lab
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.waiting import wait_until

pytestmark = pytest.mark.lab

DEADLINE_S = 30.0
"""Of one look at all hosts, on a machine under load."""
NOISE = r"printf 'Welcome to \033]0;gotcha\007\033[2J this host\n'; seq 5000; echo last words >&2" + "\n"
Rows = dict[str, dict[str, Any]]


@pytest.fixture
def shells(deployed: Lab) -> Iterator[Callable[..., None]]:
    """Give a host another login shell, or files for it; all are as before after the test."""
    passwd = {name: host.run(["cat", "/etc/passwd"]).stdout for name, host in deployed.items()}
    written: list[tuple[str, str]] = []

    def change(host: str, shell: str, start_up_file: str = "", text: str = "") -> None:
        deployed[host].run(["sed", "-i", f"s,^\\(root:.*\\):[^:]*$,\\1:{shell},", "/etc/passwd"])
        if start_up_file:
            path = f"/root/{start_up_file}"
            deployed[host].run(["mkdir", "-p", str(Path(path).parent)])
            deployed[host].run(["tee", path], input=text.encode())
            written.append((host, path))

    yield change
    for name, text in passwd.items():
        deployed[name].run(["tee", "/etc/passwd"], input=text)
    for host, path in written:
        deployed[host].run(["rm", "-f", path])


@pytest.fixture
def look(deployed: Lab, tmp_path: Path) -> Callable[[], Rows]:
    """Return what `dttui envs` tells of each host within the deadline; nothing of it runs on there."""

    def envs() -> Rows:
        inventory = deployed.inventory(tmp_path / "inventory.yaml")
        began = time.monotonic()
        done = dttui("envs", "--inventory", inventory, "--output", "json")
        assert time.monotonic() - began < DEADLINE_S
        assert "\x1b" not in done.stdout + done.stderr
        assert "gotcha" not in done.stdout + done.stderr
        for host in deployed.values():
            wait_until(functools.partial(has_no_bridge, host), f"the bridges on {host.name} to go", DEADLINE_S)
        return {row["name"]: row for row in json.loads(done.stdout)}

    return envs


def has_no_bridge(host: Host) -> bool:
    return not any("dtagent connect" in process.cmdline for process in host.processes())


def installed(shell: str) -> str:
    """Return where a shell is; skip, or fail where that is not allowed, if it is nowhere."""
    path = shutil.which(shell)
    require_lab(None if path else f"needs {shell}: apt install {shell}")
    return path or ""


def test_start_up_files_that_print_sleep_or_exit_cost_their_own_host_at_most(
    shells: Callable[..., None], look: Callable[[], Rows]
) -> None:
    """All are known within 30 s, and no bridge is left on a host."""
    shells("gpu1", "/bin/bash", ".bashrc", NOISE)
    shells("gpu2", "/bin/bash", ".bashrc", "sleep 3; echo late\n")
    shells("gpu3", "/bin/bash", ".bashrc", "echo the scratch disk is full >&2; exit 7\n")
    rows = look()
    assert [rows[name]["state"] for name in ("gpu1", "gpu2", "gpu3")] == ["idle", "idle", "no agent"]
    assert "the scratch disk is full" in rows["gpu3"]["reason"]


def test_shells_that_are_no_sh_work_and_one_that_is_none_is_quoted(
    shells: Callable[..., None], look: Callable[[], Rows]
) -> None:
    """All are known within 30 s, and no bridge is left on a host."""
    shells("gpu1", installed("csh"), ".cshrc", "echo csh says hello\n")
    shells("gpu2", installed("fish"), ".config/fish/config.fish", "echo fish says hello\n")
    shells("gpu3", "/usr/sbin/nologin")
    rows = look()
    assert [rows[name]["state"] for name in ("gpu1", "gpu2", "gpu3")] == ["idle", "idle", "no agent"]
    assert "This account is currently not available" in rows["gpu3"]["reason"]
