"""The preflight over real SSH on isolated hosts: whatever is in the way is found before the start, and named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.headless import dttui, result_of, shell_job
from tests.lab.commands import call, in_network_of
from tests.lab.hosts import Lab
from tests.lab.probes import SYSTEM_PYTHON

pytestmark = pytest.mark.lab

NODES = {"gpu1": 1, "gpu2": 1, "gpu3": 1}
DEADLINE_S = 60.0
"""Of every preflight here, on a machine that does much else; a probe that is dropped takes 4 s."""
Check = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def check(deployed: Lab, tmp_path: Path) -> Check:
    """Run `dttui preflight` over the three hosts; return the exit code and the document."""

    def run(*options: str, job: Path | None = None, **inventory: Any) -> tuple[int, dict[str, Any]]:
        hosts = deployed.inventory(tmp_path / "inventory.yaml", **inventory)
        wanted = job or shell_job(tmp_path, NODES, "true")
        began = time.monotonic()
        done = dttui("preflight", wanted, "--inventory", hosts, "--output", "json", *options)
        assert time.monotonic() - began < DEADLINE_S
        document = result_of(done)
        assert document["exit_code"] == done.returncode, done.stderr
        return done.returncode, document

    return run


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


def test_well_hosts_pass_every_check_with_its_time_and_nothing_is_left_there(deployed: Lab, check: Check) -> None:
    code, document = check("--bandwidth")
    assert (code, found(document)) == (0, [])
    for node in document["nodes"]:
        checks = node["checks"]
        assert list(checks) == [
            "reach", "agent", "software", "gpus", "health", "room", "limits", "clock", "paths", "master", "peers"
        ]  # fmt: skip
        assert not {name for name, cell in checks.items() if cell["verdict"] in ("error", "pending", "unknown")}
        assert all(cell["seconds"] is not None for cell in checks.values())
        assert checks["master"]["text"].startswith("eth0 ")
        assert "Gbit/s" in checks["peers"]["text"]
    links = json.loads((Path(os.environ["XDG_STATE_HOME"]) / "dttui/links.json").read_text())["links"]
    assert {(link["kind"], *sorted(link["between"])) for link in links} == {
        ("hosts", "gpu1", "gpu2"),
        ("hosts", "gpu2", "gpu3"),
        ("hosts", "gpu1", "gpu3"),
        ("zones", "zone-a", "zone-a"),
        ("zones", "zone-a", "zone-b"),
    }
    assert all(0 < link["round_trip_s"] < 0.1 and link["bandwidth"] > 1e6 for link in links)
    for host in deployed.values():
        assert _listening(host.pid) == {22}


def test_a_firewall_that_refuses_is_named_with_the_port(
    deployed: Lab, check: Check, firewall: Callable[..., None]
) -> None:
    for source, answer in (("gpu2", "tcp-reset"), ("gpu3", "icmp-host-prohibited")):
        rule = ("--protocol", "tcp", "--dport", "29500:29999", "--source", deployed[source].address)
        firewall("gpu1", *rule, "--jump", "REJECT", "--reject-with", answer)
    code, document = check()
    assert code == 3
    assert found(document) == [("master-unreachable", "gpu2"), ("master-unreachable", "gpu3")]
    assert verdicts(document, "master") == {"gpu1": "ok", "gpu2": "error", "gpu3": "error"}
    for text, host, word in zip(
        messages(document, "master-unreachable"), ("gpu2", "gpu3"), ("refused", "no route"), strict=True
    ):
        assert re.match(rf"{host} → gpu1:29[5-9]\d\d {word} ", text)


def test_a_firewall_that_drops_is_named_within_its_deadline_and_the_others_go_on(
    deployed: Lab, check: Check, firewall: Callable[..., None]
) -> None:
    firewall("gpu1", "--protocol", "tcp", "--source", deployed["gpu3"].address, "--jump", "DROP")
    code, document = check()
    assert (code, found(document)) == (3, [("master-unreachable", "gpu3")])
    assert " timed out " in messages(document, "master-unreachable")[0]
    assert messages(document, "peer-unreachable") != []
    seconds = {node["name"]: node["checks"]["master"]["seconds"] for node in document["nodes"]}
    assert seconds["gpu3"] >= 3
    assert seconds["gpu2"] < seconds["gpu3"]


def test_closed_ephemeral_ports_between_workers_are_a_warning(
    deployed: Lab, check: Check, firewall: Callable[..., None]
) -> None:
    firewall(
        "gpu3", "--protocol", "tcp", "--source", deployed["gpu2"].address, "--dport", "32768:60999",
        "--jump", "REJECT", "--reject-with", "tcp-reset",
    )  # fmt: skip
    code, document = check()
    assert (code, found(document)) == (0, [])
    (text,) = messages(document, "peer-unreachable")
    assert text.startswith("gpu2 → gpu3:")
    assert " refused " in text


def test_a_name_that_resolves_to_loopback_is_named_on_the_master_and_on_workers(deployed: Lab, check: Check) -> None:
    with _hosts_file(deployed, "gpu1", "127.0.1.1 gpu1"), _hosts_file(deployed, "gpu3", "127.0.1.1 gpu1"):
        code, document = check(gpu1={"address": "gpu1"})
    assert code == 3
    assert found(document) == [("address-loopback", "gpu1"), ("address-loopback", "gpu3")]
    assert verdicts(document, "master") == {"gpu1": "error", "gpu2": "ok", "gpu3": "error"}
    assert "resolves to loopback (127.0.1.1) on gpu1" in messages(document, "address-loopback")[0]


def test_an_address_of_another_host_is_found(deployed: Lab, check: Check) -> None:
    code, document = check(gpu1={"address": deployed.login_address})
    assert code == 3
    assert {item for item in found(document)} == {("master-unreachable", name) for name in NODES}
    unknown = check(gpu1={"address": "no-such-host.invalid"})[1]
    assert found(unknown) == [("address-unknown", name) for name in NODES]


def test_ports_that_are_taken_are_passed_over_until_none_is_left(deployed: Lab, check: Check) -> None:
    with _taken(deployed["gpu1"].pid, 29600):
        code, document = check(port_range="29600-29601")
        assert (code, found(document)) == (0, [])
        code, document = check(port_range="29600-29600")
    assert (code, found(document)) == (3, [("no-free-port", "gpu1")])
    assert "29600 to 29600 are all taken" in messages(document, "no-free-port")[0]
    assert verdicts(document, "master") == {"gpu1": "error", "gpu2": "unknown", "gpu3": "unknown"}
    assert set(verdicts(document, "peers").values()) == {"ok"}


def test_what_is_not_at_its_path_is_an_error_that_may_be_ignored(deployed: Lab, check: Check, tmp_path: Path) -> None:
    deployed["gpu1"].run(["mkdir", "-p", "/srv/here"])
    deployed["gpu2"].run(["mkdir", "-p", "/srv/here"])
    job = shell_job(tmp_path, NODES, "true", workdir="/srv/here")
    code, document = check(job=job)
    assert (code, found(document)) == (3, [("path-missing", "gpu3")])
    assert verdicts(document, "paths") == {"gpu1": "ok", "gpu2": "ok", "gpu3": "error"}
    code, document = check("--ignore", "path-missing", job=job)
    assert (code, found(document)) == (0, [])
    assert messages(document, "path-missing") == ["ignored: gpu3: there is no /srv/here"]


def test_a_low_limit_of_open_files_is_a_warning(deployed: Lab, check: Check) -> None:
    daemon = next(
        item.pid for item in deployed["gpu2"].processes() if "dtagent" in item.cmdline and "daemon" in item.cmdline
    )
    before = deployed["gpu2"].run(["prlimit", "--nofile", "--noheadings", "--output", "SOFT", "--pid", str(daemon)])
    deployed["gpu2"].run(["prlimit", "--nofile=128:", "--pid", str(daemon)])
    try:
        code, document = check()
    finally:
        deployed["gpu2"].run(["prlimit", f"--nofile={before.stdout.decode().strip()}:", "--pid", str(daemon)])
    assert code == 0
    assert ("nofile-low", "gpu2") in found(document, "warning")
    assert verdicts(document, "limits")["gpu2"] == "warning"


def test_a_host_that_cannot_be_reached_is_named_and_the_others_are_checked(check: Check) -> None:
    code, document = check(gpu2={"port": 23})
    assert code == 4
    assert found(document) == [("unreachable", "gpu2")]
    checks = {node["name"]: node["checks"] for node in document["nodes"]}
    assert checks["gpu2"]["reach"]["verdict"] == "error"
    assert checks["gpu3"]["master"]["verdict"] == "ok"
    assert checks["gpu1"]["peers"]["verdict"] == "unknown"


def test_two_preflights_at_once_do_not_disturb_each_other(deployed: Lab, tmp_path: Path) -> None:
    hosts = deployed.inventory(tmp_path / "inventory.yaml", port_range="29700-29703")
    argv = [sys.executable, "-m", "dttui", "preflight", "--nodes", "gpu1,gpu2,gpu3", "--inventory", str(hosts)]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in running:
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, stderr + stdout
        assert "0 errors" in stdout


_HOLD = """\
import socket, sys
held = socket.socket()
held.bind(("", int(sys.argv[1])))
print("held", flush=True)
sys.stdin.read()
"""


class _hosts_file:
    """Gives a host another line at the top of its /etc/hosts for a while."""

    def __init__(self, lab: Lab, host: str, line: str) -> None:
        self._host = lab[host]
        self._line = line
        self._before = b""

    def __enter__(self) -> None:
        self._before = self._host.run(["cat", "/etc/hosts"]).stdout
        name = self._line.split()[-1].encode()
        kept = b"".join(line + b"\n" for line in self._before.splitlines() if name not in line.split())
        self._write(self._line.encode() + b"\n" + kept)

    def __exit__(self, *_: object) -> None:
        self._write(self._before)

    def _write(self, text: bytes) -> None:
        self._host.run(["sh", "-c", "cat > /etc/hosts"], input=text)


class _taken:
    """Holds a port of a host for a while."""

    def __init__(self, pid: int, port: int) -> None:
        program = (
            f"import socket,sys; s=socket.socket(); s.bind(('', {port})); print('held', flush=True); sys.stdin.read()"
        )
        self._process = subprocess.Popen(
            [*in_network_of(pid), SYSTEM_PYTHON, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "held\n"

    def __exit__(self, *_: object) -> None:
        self._process.communicate("", timeout=DEADLINE_S)


def _listening(pid: int) -> set[int]:
    """Return the TCP ports that a host listens on."""
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
