"""The master's port taken, firewalled or looked for on loopback: found before the start and named; nothing is left."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from tests.integration.preflights import DEADLINE_S, Check, found, messages, verdicts
from tests.integration.preflights import check as check
from tests.integration.preflights import firewall as firewall
from tests.lab.commands import in_network_of
from tests.lab.hosts import Lab
from tests.lab.probes import SYSTEM_PYTHON

pytestmark = pytest.mark.lab


def test_a_firewall_that_refuses_is_named_with_the_port(
    deployed: Lab, check: Check, firewall: Callable[..., None]
) -> None:
    """Within 60 s; no host listens on more than its sshd afterwards."""
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
    """Within 60 s, of which a probe without an answer takes 4; no host listens on more than its sshd afterwards."""
    firewall("gpu1", "--protocol", "tcp", "--source", deployed["gpu3"].address, "--jump", "DROP")
    code, document = check()
    assert (code, found(document)) == (3, [("master-unreachable", "gpu3")])
    assert " timed out " in messages(document, "master-unreachable")[0]
    assert messages(document, "peer-unreachable") != []
    seconds = {node["name"]: node["checks"]["master"]["seconds"] for node in document["nodes"]}
    assert seconds["gpu3"] >= 3
    assert seconds["gpu2"] < seconds["gpu3"]


def test_ports_that_are_taken_are_passed_over_until_none_is_left(deployed: Lab, check: Check) -> None:
    """Within 60 s; no host listens on more than its sshd afterwards."""
    with _taken(deployed["gpu1"].pid, 29600):
        code, document = check(port_range="29600-29601")
        assert (code, found(document)) == (0, [])
        code, document = check(port_range="29600-29600")
    assert (code, found(document)) == (3, [("no-free-port", "gpu1")])
    assert "29600 to 29600 are all taken" in messages(document, "no-free-port")[0]
    assert verdicts(document, "master") == {"gpu1": "error", "gpu2": "unknown", "gpu3": "unknown"}
    assert set(verdicts(document, "peers").values()) == {"ok"}


def test_a_name_that_resolves_to_loopback_is_named_on_the_master_and_on_workers(deployed: Lab, check: Check) -> None:
    """Within 60 s; no host listens on more than its sshd afterwards."""
    with _hosts_file(deployed, "gpu1", "127.0.1.1 gpu1"), _hosts_file(deployed, "gpu3", "127.0.1.1 gpu1"):
        code, document = check(gpu1={"address": "gpu1"})
    assert code == 3
    assert found(document) == [("address-loopback", "gpu1"), ("address-loopback", "gpu3")]
    assert verdicts(document, "master") == {"gpu1": "error", "gpu2": "ok", "gpu3": "error"}
    assert "resolves to loopback (127.0.1.1) on gpu1" in messages(document, "address-loopback")[0]


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
