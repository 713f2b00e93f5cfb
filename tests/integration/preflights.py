"""Running the preflight over three isolated hosts, putting a firewall before them, and reading its document."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.headless import dttui_here, result_of, shell_job
from tests.lab.commands import call, in_network_of
from tests.lab.hosts import Lab

NODES = {"gpu1": 1, "gpu2": 1, "gpu3": 1}
DEADLINE_S = 60.0
"""Of every preflight here, on a machine that does much else; a probe that is dropped takes 4 s."""
Check = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def check(deployed: Lab, tmp_path: Path) -> Iterator[Check]:
    """Run `dttui preflight` over the three hosts; return the exit code and the document. No port is left open."""

    def run(*options: str, job: Path | None = None, **inventory: Any) -> tuple[int, dict[str, Any]]:
        hosts = deployed.inventory(tmp_path / "inventory.yaml", **inventory)
        wanted = job or shell_job(tmp_path, NODES, "true")
        began = time.monotonic()
        done = dttui_here("preflight", wanted, "--inventory", hosts, "--output", "json", *options)
        assert time.monotonic() - began < DEADLINE_S
        document = result_of(done)
        assert document["exit_code"] == done.returncode, done.stderr
        return done.returncode, document

    yield run
    for host in deployed.values():
        assert listening(host.pid) == {host.ssh_port}


@pytest.fixture
def firewall(deployed: Lab) -> Iterator[Callable[..., None]]:
    """Add a rule for what comes in at a host; it goes again after the test."""
    added: list[list[str]] = []

    def add(host: str, *rule: str) -> None:
        table = [*in_network_of(deployed[host].pid), "iptables", "--wait"]
        call([*table, "--insert", "INPUT", *rule])
        added.append([*table, "--delete", "INPUT", *rule])

    yield add
    for rule in added:
        call(rule)


def verdicts(document: dict[str, Any], check: str) -> dict[str, str]:
    return {node["name"]: node["checks"][check]["verdict"] for node in document["nodes"]}


def found(document: dict[str, Any], severity: str = "error") -> list[tuple[str, str]]:
    return [(item["code"], item["subject"]) for item in document["findings"] if item["severity"] == severity]


def messages(document: dict[str, Any], code: str) -> list[str]:
    return [item["message"] for item in document["findings"] if item["code"] == code]


def listening(pid: int) -> set[int]:
    """Return the TCP ports that a host listens on."""
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
