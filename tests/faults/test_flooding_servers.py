"""SSH servers that send packets and greetings without end, beside one that is a server: named, and nobody pays."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from tests.integration.hostile_peer import announcing, flooding_peer
from tests.integration.sshd import running_sshd

pytestmark = pytest.mark.sshd

OPENINGS = {"packet": announcing(0x10000004), "huge": announcing(0xFFFFFFFC), "line": b"welcome " * 8192}
DEADLINE_S = 30.0
MOST_EXTRA_MIB = 48
"""Above what the same command takes for the good host alone."""


def test_servers_that_flood_are_named_and_cost_neither_memory_nor_the_good_host(tmp_path: Path) -> None:
    """Within 30 s, with hardly more memory than without them."""
    with running_sshd(tmp_path / "sshd") as good, contextlib.ExitStack() as stack:
        hosts = [good.environment("good").model_dump(mode="json", exclude_unset=True)]
        alone, alone_mib = list_hosts(tmp_path, hosts)
        for name, opening in OPENINGS.items():
            port = stack.enter_context(flooding_peer(opening))
            hosts.append({"name": name, "host": "127.0.0.1", "port": port})
        rows, mib = list_hosts(tmp_path, hosts)
    assert mib - alone_mib < MOST_EXTRA_MIB, f"{alone_mib} MiB alone, {mib} MiB beside them"
    assert rows["good"]["state"] == alone["good"]["state"] != "unreachable"
    for name in OPENINGS:
        assert rows[name]["state"] == "unreachable"
        assert "262144" in rows[name]["reason"]


def list_hosts(directory: Path, hosts: list[dict[str, object]]) -> tuple[dict[str, dict[str, str]], int]:
    """Run `envs`; return its rows by name, and the most memory it held, in MiB."""
    inventory = directory / "inventory.yaml"
    inventory.write_text(yaml.safe_dump({"environments": hosts}))
    with (directory / "rows.json").open("w+") as output:
        command = [sys.executable, "-m", "dttui", "envs", "--inventory", str(inventory), "--output", "json"]
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output)
        watchdog = threading.Timer(DEADLINE_S, running.kill)
        watchdog.start()
        usage = os.wait4(running.pid, 0)[2]
        watchdog.cancel()
        running.returncode = 0
        output.seek(0)
        return {row["name"]: row for row in json.load(output)}, usage.ru_maxrss // 1024
