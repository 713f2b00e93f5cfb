"""A million lines a second: the disk and the daemon stay within bounds, and no byte is lost without a word."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

from tests.agent.conversation import Conversation
from tests.agent.flood import follow, pss_mib

FLOOD_S = float(os.environ.get("DTTUI_TEST_FLOOD_S", "2"))
"""The whole measure is 10; that moves 640 MB."""
LINES_PER_S = 1_000_000
LINE_BYTES = 64
CAP_BYTES = 32 << 20
DAEMON_MIB = 64.0

WRITER = """
import os, sys, time
rate, seconds = int(sys.argv[1]), float(sys.argv[2])
number, began = 0, time.monotonic()
while number < rate * seconds:
    block = b"".join(b"%015d %s\\n" % (line, b"x" * 47) for line in range(number, number + 5000))
    while block:
        block = block[os.write(1, block):]
    number += 5000
    time.sleep(max(0.0, began + number / rate - time.monotonic()))
print(time.monotonic() - began, file=sys.stderr)
"""

LOSSES_PER_S = 100_000
LOSSES_S = 3.0
LOSS_WRITER = """
import os, sys, time
rate, seconds = int(sys.argv[1]), float(sys.argv[2])
number, began = 0, time.monotonic()
while number < rate * seconds:
    now = time.monotonic()
    block = b"".join(b"step %d loss 2.5 lr 3e-4 at %.3f\\n" % (line, now) for line in range(number, number + 1000))
    while block:
        block = block[os.write(1, block):]
    number += 1000
    time.sleep(max(0.0, began + number / rate - time.monotonic()))
"""


def lines(offset: int, size: int) -> bytes:
    """What the writer has put between two offsets, both where a line begins."""
    first = offset // LINE_BYTES
    return b"".join(b"%015d %s\n" % (number, b"x" * 47) for number in range(first, first + size // LINE_BYTES))


def test_a_flood_is_capped_on_disk_and_every_byte_is_had_or_told_as_gone(tmp_path: Path) -> None:
    whole = int(LINES_PER_S * FLOOD_S) * LINE_BYTES
    quiet = CAP_BYTES // LINE_BYTES // 2
    kept: dict[str, int] = {"0.out": 0, "1.out": 0}
    rest = {"0.out": b"", "1.out": b""}
    worst = {"disk": 0, "daemon": 0.0, "held up": 0.0}

    def check(stream: str, offset: int, data: bytes) -> None:
        if stream not in kept:
            return
        kept[stream] += len(data)
        if offset % LINE_BYTES == 0:  # After a gap it begins with a line; before, one may have been cut.
            rest[stream] = b""
        data = rest[stream] + data
        start = offset - len(rest[stream])
        size = len(data) // LINE_BYTES * LINE_BYTES
        assert data[:size] == lines(start, size)
        rest[stream] = data[size:]

    with Conversation(tmp_path / "root") as agent:
        pid = agent.call("hello", {"versions": [1]})["pid"]
        flooded = agent.root / "jobs/flood/0/logs/1.out"

        def look() -> None:
            if flooded.exists():
                worst["disk"] = max(worst["disk"], flooded.stat().st_blocks * 512)
                worst["held up"] = max(worst["held up"], held_up_s(agent.root / "jobs/flood/0/supervisor.json"))
            worst["daemon"] = max(worst["daemon"], pss_mib(pid))

        agent.prepare("flood")
        commands = [
            [sys.executable, "-c", WRITER, str(quiet), "1"],
            [sys.executable, "-c", WRITER, str(LINES_PER_S), str(FLOOD_S)],
        ]
        agent.start("flood", commands, log_cap_bytes=CAP_BYTES)
        found = follow(agent, "flood", check=check, between=look)
        assert [item["exit_code"] for item in agent.status("flood")["exits"]] == [0, 0]
    gone = sum(end - start for start, end in found.gaps.get("1.out", []))
    ping_s = statistics.median(found.pings_s)
    print(f"{whole >> 20} MiB written, {gone >> 20} not kept, {worst}, ping {ping_s * 1e3:.0f} ms")
    assert kept["0.out"] == quiet // 5000 * 5000 * LINE_BYTES + (5000 * LINE_BYTES if quiet % 5000 else 0)
    assert "0.out" not in found.gaps
    assert found.offsets["1.out"] == whole
    assert kept["1.out"] + gone == whole
    assert flooded.stat().st_blocks * 512 < 1.1 * CAP_BYTES
    # For as long as other programs kept its supervisor from a core, it could drop nothing.
    assert worst["disk"] < 1.5 * CAP_BYTES + worst["held up"] * LINES_PER_S * LINE_BYTES
    assert worst["daemon"] < DAEMON_MIB
    assert ping_s < 1.0


def test_a_hundred_thousand_lines_with_a_loss_a_second_cost_little_and_are_not_late(tmp_path: Path) -> None:
    late_s: list[float] = []

    def check(stream: str, _offset: int, data: bytes) -> None:
        whole = data[: data.rfind(b"\n")] if stream == "0.out" else b""
        if b"\n" in whole:
            late_s.append(time.monotonic() - float(whole.rpartition(b" ")[2]))

    with Conversation(tmp_path / "root") as agent:
        pid = agent.call("hello", {"versions": [1]})["pid"]
        agent.prepare("losses")
        before, began = cpu_s(pid), time.monotonic()
        agent.start("losses", [[sys.executable, "-c", LOSS_WRITER, str(LOSSES_PER_S), str(LOSSES_S)]])
        follow(agent, "losses", check=check)
        took, lasted_s = cpu_s(pid) - before, time.monotonic() - began
        reports = (agent.root / "jobs/losses/0/trainer.jsonl").read_text()
    print(f"{took / lasted_s:.2f} of a core, {statistics.median(late_s):.2f} s late, {max(late_s):.2f} at most")
    assert '"loss": 2.5' in reports
    assert '"unread_lines"' in reports
    assert took < lasted_s * 0.5  # About 0.15.
    assert statistics.median(late_s) < 2.0


def held_up_s(record: Path) -> float:
    """Return how long a process could have run and had to wait for a core; 0 where it has ended."""
    try:
        pid = json.loads(record.read_text())["pid"]
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
