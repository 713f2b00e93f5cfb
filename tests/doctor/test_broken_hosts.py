"""`dttui doctor` on isolated hosts on which something is broken for real: that is named, and its command mends it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.headless import dttui
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

LATE_S = 120.0
SLOW = (" own-name-slow", " reverse-dns", " slow-login")
"""Ends of what is named for the time that it took."""


@pytest.fixture
def hosts(deployed: Lab, breakable_lab3: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.delenv("TERM", raising=False)
    yield breakable_lab3
    for host in (item for item in breakable_lab3.values() if item.alive):
        host.run(["sh", "-c", "iptables -F; umount /mnt 2>/dev/null; true"])


@pytest.fixture
def inventory(hosts: Lab, tmp_path: Path) -> Path:
    return hosts.inventory(tmp_path / "inventory.yaml")


def examine(inventory: Path, *names: str) -> dict[str, Any]:
    """Return what doctor says, each finding by its code below its place.

    What it calls slow counts where it is so twice: once may be the machine's doing, which has other tests to run.
    """
    for _time in range(2):
        done = dttui("doctor", *names, "--inventory", inventory, "--output", "json")
        assert done.stdout, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["exit_code"] == done.returncode
        if not any(finding.endswith(SLOW) for finding in wrong(document)):
            break
    return document


def wrong(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the findings that are no mere information, by subject and code; not what others left on this machine."""
    found = [*document["login"], *document["between"], *(item for of in document["hosts"].values() for item in of)]
    return {
        f"{item['subject']} {item['code']}": item
        for item in found
        if item["severity"] != "info" and not item["code"].endswith("-left")
    }


def follow(lab: Lab, finding: dict[str, Any], inventory: Path) -> None:
    """Run what a finding advises, each command where it says."""
    assert finding["commands"], finding
    for item in finding["commands"]:
        if item["run_on"] == "login":
            assert item["command"].startswith("dttui ")
            assert str(inventory) in item["command"]
            words = item["command"].removeprefix("dttui ").split()
            assert dttui(*words).returncode == 0, item
        else:
            lab[item["run_on"]].run(["sh", "-c", item["command"]])


def tree(host: Host) -> bytes:
    """Return the names, modes and contents of all that a host keeps of the agent, and of its settings."""
    script = (
        "find /var/tmp/dtagent-0 /etc/hosts /etc/ssh /root/.ssh -not -name daemon.err -not -path '*/__pycache__*' "
        r"\( -type f -printf '%p %m %s ' -exec sha256sum {} \; -o -printf '%p %m\n' \) | sort"
    )
    return host.run(["sh", "-c", script]).stdout


def test_healthy_hosts_have_nothing_wrong_and_are_left_as_they_were(hosts: Lab, inventory: Path) -> None:
    before = {host.name: tree(host) for host in hosts.values()}
    document = examine(inventory)
    assert wrong(document) == {}
    assert document["exit_code"] == (6 if document["warnings"] else 0)
    assert {host.name: tree(host) for host in hosts.values()} == before


def test_a_firewall_between_two_hosts_is_named_and_opened_by_its_commands(hosts: Lab, inventory: Path) -> None:
    drop = ["-s", hosts["gpu3"].address, "-p", "tcp", "-j", "DROP"]
    hosts["gpu2"].run(["iptables", "-A", "INPUT", *drop])
    document = examine(inventory)
    found = wrong(document)
    assert list(found) == ["gpu2 ↔ gpu3 hosts-apart"]
    assert document["exit_code"] == 3
    assert {item["run_on"] for item in found["gpu2 ↔ gpu3 hosts-apart"]["commands"]} == {"gpu2", "gpu3"}
    follow(hosts, found["gpu2 ↔ gpu3 hosts-apart"], inventory)
    assert wrong(examine(inventory)) == {}


def test_a_firewall_that_leaves_the_ports_of_the_range_open_is_told_apart(hosts: Lab, inventory: Path) -> None:
    gpu1 = hosts["gpu1"]
    gpu1.run(["iptables", "-A", "INPUT", "-p", "tcp", "--dport", "29500:29999", "-j", "ACCEPT"])
    gpu1.run(["iptables", "-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "ACCEPT"])
    gpu1.run(["iptables", "-A", "INPUT", "-p", "tcp", "--syn", "-j", "REJECT"])
    found = wrong(examine(inventory))
    assert set(found) == {"gpu2 → gpu1 ports-blocked", "gpu3 → gpu1 ports-blocked"}
    assert "port_range" in found["gpu2 → gpu1 ports-blocked"]["message"]
    follow(hosts, found["gpu2 → gpu1 ports-blocked"], inventory)
    assert set(wrong(examine(inventory))) == {"gpu3 → gpu1 ports-blocked"}


def test_what_is_wrong_on_a_host_is_named_and_mended(hosts: Lab, inventory: Path) -> None:
    gpu1, gpu2 = hosts["gpu1"], hosts["gpu2"]
    kept = {host.name: host.run(["cat", "/etc/hosts"]).stdout for host in (gpu1, gpu2)}
    gpu1.run(["sed", "-i", f"s/^{gpu1.address} gpu1$/127.0.1.1 gpu1.cluster gpu1/", "/etc/hosts"])
    gpu1.run(["mount", "-o", "remount,size=1M", "/dev/shm"])
    # A name server that never answers: nobody listens there, and what says so is dropped.
    login = gpu2.address.rpartition(".")[0] + ".1"
    gpu2.run(["sh", "-c", "sed -i /login/d /etc/hosts; cp /etc/resolv.conf /root/resolv.kept || true"])
    gpu2.run(["sh", "-c", f"echo 'nameserver {login}' > /etc/resolv.conf; iptables -A INPUT -p icmp -j DROP"])
    gpu2.run(["sh", "-c", "touch /root/.ssh/id_open; chmod 644 /root/.ssh/id_open"])
    try:
        document = examine(inventory)
        found = wrong(document)
        expected = {
            "gpu1 own-name-loopback",
            "gpu1 shm-small",
            "gpu2 reverse-dns",
            "gpu2 ssh-permissions",
        }
        assert set(found) == expected
        assert document["exit_code"] == 6
        for finding in found.values():
            follow(hosts, finding, inventory)
        assert wrong(examine(inventory)) == {}
        names = gpu1.run(["getent", "ahosts", "gpu1"]).stdout.decode()
        assert names.split()[0] == gpu1.address
    finally:
        for host in (gpu1, gpu2):
            host.run(["sh", "-c", "cat > /etc/hosts"], input=kept[host.name])
        gpu2.run(["sh", "-c", "cat /root/resolv.kept > /etc/resolv.conf; rm -f /root/.ssh/id_open; true"])


def test_limits_of_logins_and_slow_ones_are_named(hosts: Lab, inventory: Path) -> None:
    gpu1 = hosts["gpu1"]
    pid = gpu1.run(["cat", "/run/sshd.pid"]).stdout.decode().strip()
    limits = gpu1.run(["prlimit", "--nofile", "--output", "SOFT,HARD", "--noheadings", "--pid", pid]).stdout.split()
    soft, hard = (item.decode() for item in limits)
    gpu1.run(["prlimit", f"--nofile=200:{hard}", "--pid", pid])
    gpu1.run(["sh", "-c", "mv /root/.bashrc /root/.bashrc.kept 2>/dev/null; echo 'sleep 6' > /root/.bashrc"])
    try:
        found = wrong(examine(inventory, "gpu1"))
        assert set(found) == {"gpu1 nofile-low", "gpu1 slow-login"}
        assert "limits.d" in found["gpu1 nofile-low"]["commands"][0]["command"]
        assert "200" in found["gpu1 nofile-low"]["message"]
    finally:
        gpu1.run(["prlimit", f"--nofile={soft}:{hard}", "--pid", pid])
        gpu1.run(["sh", "-c", "rm /root/.bashrc; mv /root/.bashrc.kept /root/.bashrc 2>/dev/null; true"])


def test_an_agent_on_a_disk_that_executes_nothing_and_one_that_is_missing(hosts: Lab, tmp_path: Path) -> None:
    gpu3 = hosts["gpu3"]
    gpu3.run(["mount", "-t", "tmpfs", "-o", "size=2G", "tmpfs", "/mnt"])
    inventory = hosts.inventory(tmp_path / "inventory.yaml")
    document = yaml.safe_load(inventory.read_text())
    document["environments"] = [
        {**item, "agent_root": "/mnt/agent"} for item in document["environments"] if item["name"] == "gpu3"
    ]
    inventory.write_text(yaml.safe_dump(document))
    missing = wrong(examine(inventory))
    assert "gpu3 agent-missing" in missing
    follow(hosts, missing["gpu3 agent-missing"], inventory)
    assert wrong(examine(inventory)) == {}
    gpu3.run(["mount", "-o", "remount,noexec", "/mnt"])
    found = wrong(examine(inventory))
    assert set(found) == {"gpu3 agent-noexec"}
    follow(hosts, found["gpu3 agent-noexec"], inventory)
    assert wrong(examine(inventory)) == {}
    assert dttui("agents", "remove", "--yes", "--inventory", inventory).returncode == 0


def test_a_host_that_refuses_does_not_keep_the_others_from_being_told(hosts: Lab, inventory: Path) -> None:
    refuse = ["-p", "tcp", "--dport", "22", "-j", "REJECT", "--reject-with", "tcp-reset"]
    hosts["gpu2"].run(["iptables", "-A", "INPUT", *refuse])
    done = dttui("doctor", "--inventory", inventory, deadline_s=LATE_S)
    assert done.returncode == 4, done.stdout
    assert "✗ unreachable" in done.stdout
    assert "✓ gpu1" in done.stdout, done.stdout
    assert "✓ gpu3" in done.stdout


@pytest.mark.usefixtures("shared_agents")
def test_the_embedded_cluster_needs_no_agent_and_has_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.delenv("TERM", raising=False)
    done = dttui("--demo", "doctor", "--output", "json")
    assert wrong(json.loads(done.stdout)) == {}, done.stderr


def test_hosts_that_were_not_asked_in_time_are_named(hosts: Lab, inventory: Path) -> None:
    hosts["gpu2"].cut()
    done = dttui("doctor", "--inventory", inventory, "--timeout", "10s", "--output", "json")
    assert done.returncode == 101, done.stderr
    found = wrong(json.loads(done.stdout))
    assert "gpu2 unchecked" in found
