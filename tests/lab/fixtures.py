"""Fixtures of the test cluster, and the one place that decides whether this machine can have one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.lab.hosts import Lab

_TOOLS = {
    "sshd": "sshd: apt install openssh-server",
    "ssh-keygen": "ssh-keygen: apt install openssh-client",
    "ip": "ip: apt install iproute2",
    "tc": "tc: apt install iproute2",
    "iptables": "iptables: apt install iptables",
    "nsenter": "nsenter: apt install util-linux",
    "unshare": "unshare: apt install util-linux",
}
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


def _find(tool: str) -> str | None:
    return shutil.which(tool, path=_SYSTEM_PATH)


def missing_requirement(user_id: int | None = None, find: Callable[[str], str | None] = _find) -> str | None:
    """Return what this machine lacks for a lab, as a reason to skip, or `None`."""
    if (os.geteuid() if user_id is None else user_id) != 0:
        return "needs root"
    for tool, reason in _TOOLS.items():
        if find(tool) is None:
            return f"needs {reason}"
    if not Path("/usr/bin/python3").exists():
        return "needs /usr/bin/python3: apt install python3"
    probe = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "true"]
    if subprocess.run(probe, capture_output=True, timeout=120, check=False).returncode != 0:
        return "needs the right to make namespaces (CAP_SYS_ADMIN)"
    return None


def require_lab(reason: str | None, environment: Mapping[str, str] = os.environ) -> None:
    """Skip where there is a reason to, or fail where `DTTUI_REQUIRE_LAB=1` says that skipping is not allowed."""
    if reason is None:
        return
    if environment.get("DTTUI_REQUIRE_LAB") == "1":
        pytest.fail(f"DTTUI_REQUIRE_LAB=1, but the test cluster {reason}", pytrace=False)
    pytest.skip(f"the test cluster {reason}")


def user_environment() -> Path | None:
    """Return the virtual environment that these tests run in, or `None` outside of one."""
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else None


@pytest.fixture(scope="session")
def can_have_lab() -> None:
    """Skip or fail where this machine cannot have a lab."""
    require_lab(missing_requirement())


def three_hosts() -> Lab:
    """Return three hosts in two zones with 1, 1 and 2 simulated GPUs, not started yet; the third is bare."""
    zones = {"gpu1": "zone-a", "gpu2": "zone-a", "gpu3": "zone-b"}
    return Lab([*zones], bare={"gpu3"}, user_python=user_environment(), zones=zones, gpus={"gpu3": 2})


@pytest.fixture(scope="session")
def lab3(can_have_lab: None) -> Iterator[Lab]:
    """`three_hosts`, shared by all tests of the session: put right again what you break, or use `breakable_lab3`."""
    with three_hosts() as lab:
        yield lab


@pytest.fixture
def breakable_lab3(lab3: Lab) -> Iterator[Lab]:
    """`lab3`, whose hosts are on and whose links are whole again after the test."""
    yield lab3
    lab3.restore()
