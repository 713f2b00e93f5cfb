"""The preflight over real SSH on isolated hosts: whatever is in the way is found before the start, and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.integration.headless import shell_job
from tests.integration.preflights import DEADLINE_S, NODES, Check, found, listening, messages, verdicts
from tests.integration.preflights import check as check
from tests.integration.preflights import firewall as firewall
from tests.lab.hosts import Lab

pytestmark = pytest.mark.lab


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
        assert listening(host.pid) == {22}


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


def test_an_address_of_another_host_is_found(deployed: Lab, check: Check) -> None:
    code, document = check(gpu1={"address": deployed.login_address})
    assert code == 3
    assert {item for item in found(document)} == {("master-unreachable", name) for name in NODES}
    unknown = check(gpu1={"address": "no-such-host.invalid"})[1]
    assert found(unknown) == [("address-unknown", name) for name in NODES]


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


def test_a_spare_that_cannot_be_reached_is_a_warning_and_a_well_one_is_none(check: Check, tmp_path: Path) -> None:
    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, "true")
    document = yaml.safe_load(job.read_text())
    checkpoint = {"dir": "/tmp/kept", "shared": True}
    document["distributed_training"]["recovery"] = {
        "on_node_failure": "replace", "spares": ["gpu3"], "checkpoint": checkpoint
    }  # fmt: skip
    job.write_text(yaml.safe_dump(document))
    code, told = check(job=job)
    assert (code, messages(told, "unreachable")) == (0, [])
    assert not [item for item in told["findings"] if "gpu3" in item["message"] and item["code"] != "host-busy"]
    code, told = check(job=job, gpu3={"port": 23})
    assert (code, found(told)) == (0, [])
    (text,) = messages(told, "unreachable")
    assert text.startswith("the spare gpu3 would be refused now: ")
    assert [node["name"] for node in told["nodes"]] == ["gpu1", "gpu2"]


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
