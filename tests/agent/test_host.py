"""The host's own metrics: rates worked out from counters, and what real processes use."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from dtagent import processes
from dtagent.host import HostProbe, RankProcesses
from dtagent.protocol.telemetry import GpuSample, HostSample, RankSample

MIB = 1024 * 1024


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def python(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run code in a child that has said `ready`, and end it with its children afterwards."""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, 9)
        child.wait(timeout=10)
        assert child.stdout is not None
        child.stdout.close()


def sample_until(
    probe: HostProbe, wanted: RankProcesses, satisfied: Callable[[RankSample], bool], deadline_s: float = 20.0
) -> RankSample:
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        rank = probe.sample(1, wanted, []).ranks["job"][0]
        if satisfied(rank):
            return rank
    raise AssertionError(f"not within {deadline_s} s: {rank}")


def test_a_reading_of_this_machine_is_whole(tmp_path: Path) -> None:
    probe = HostProbe(tmp_path)
    gpus = [GpuSample(0)]
    first = probe.sample(1, {}, gpus)
    assert (first.seq, first.gpus, first.ranks) == (1, gpus, {})
    assert first.cpu_percent is None
    assert first.network_receive_bytes_per_s == {}
    assert abs(first.time - time.time()) < 60
    assert first.memory_total_mib == psutil.virtual_memory().total // MIB
    assert first.memory_used_mib is not None
    assert 0 < first.memory_used_mib < first.memory_total_mib
    assert first.load1 is not None
    assert first.load1 >= 0
    assert first.swap_used_mib is not None
    assert first.disk_free_mib is not None
    assert first.disk_free_mib > 0
    second = probe.sample(2, {}, [])
    assert second.seq == 2


def test_cpu_use_is_busy_time_over_all_time_since_the_reading_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Guest time is counted in user already; waiting for a disk is idle.
    readings = iter(
        [
            {"user": 100, "system": 50, "idle": 800, "iowait": 50, "guest": 20},
            {"user": 130, "system": 60, "idle": 850, "iowait": 60, "guest": 30},
            {"user": 130, "system": 60, "idle": 850, "iowait": 60, "guest": 30},
            {"user": 230, "system": 60, "idle": 845, "iowait": 55, "guest": 30},
        ]
    )
    zero = psutil.cpu_times()._replace(**dict.fromkeys(psutil.cpu_times()._fields, 0.0))
    monkeypatch.setattr(psutil, "cpu_times", lambda: zero._replace(**next(readings)))
    probe = HostProbe(tmp_path)
    percents = [probe.sample(seq, {}, []).cpu_percent for seq in range(4)]
    assert percents == [None, 40.0, None, 100.0]


def test_network_rates_are_differences_by_interface(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def counters(**interfaces: tuple[int, int]) -> dict[str, SimpleNamespace]:
        return {name: SimpleNamespace(bytes_recv=r, bytes_sent=s) for name, (r, s) in interfaces.items()}

    readings = iter(
        [
            counters(lo=(5, 5), eth0=(1000, 2000), ib0=(900, 900)),
            counters(lo=(9, 9), eth0=(5000, 2500), ib0=(10, 10), eth1=(70, 70)),
            counters(eth0=(5000, 2500), ib0=(210, 10), eth1=(70, 70)),
        ]
    )
    monkeypatch.setattr(psutil, "net_io_counters", lambda **_: next(readings))
    clock = Clock()
    probe = HostProbe(tmp_path, clock)
    assert probe.sample(1, {}, []).network_receive_bytes_per_s == {}
    clock.now += 2
    second = probe.sample(2, {}, [])
    # ib0 was made anew and eth1 has just come: neither has a rate yet, and the loopback never has one.
    assert second.network_receive_bytes_per_s == {"eth0": 2000.0}
    assert second.network_transmit_bytes_per_s == {"eth0": 250.0}
    clock.now += 1
    third = probe.sample(3, {}, [])
    assert third.network_receive_bytes_per_s == {"eth0": 0.0, "ib0": 200.0, "eth1": 0.0}


def test_the_loopback_is_left_out_whatever_passes_over_it(tmp_path: Path) -> None:
    probe = HostProbe(tmp_path)
    probe.sample(1, {}, [])
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.sendall(b"x" * 10000)
        sample = probe.sample(2, {}, [])
    assert "lo" not in sample.network_receive_bytes_per_s
    assert set(sample.network_receive_bytes_per_s) == set(sample.network_transmit_bytes_per_s)


def test_a_metric_that_cannot_be_read_is_none_and_the_others_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("no such file")

    monkeypatch.setattr(psutil, "virtual_memory", refuse)
    sample = HostProbe(Path("/nonexistent/directory")).sample(1, {}, [])
    assert (sample.memory_used_mib, sample.memory_total_mib, sample.disk_free_mib) == (None, None, None)
    assert sample.load1 is not None
    assert sample.swap_used_mib is not None


def test_a_rank_is_the_sum_of_its_process_and_its_descendants(tmp_path: Path) -> None:
    child = "held = bytearray(60 * 1024 * 1024); print('ready', flush=True); import time; time.sleep(600)"
    code = (
        "import subprocess, sys, threading, time\n"
        "held = bytearray(60 * 1024 * 1024)\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "time.sleep(600)\n"
    )
    with python(code) as process:
        sample = HostProbe(tmp_path).sample(1, {"job": {3: process.pid}}, [])
    (rank,) = sample.ranks["job"]
    assert (rank.rank, rank.pid, rank.threads, rank.state) == (3, process.pid, 3, "sleeping")
    assert rank.cpu_percent is None
    assert rank.memory_used_mib is not None
    assert 120 < rank.memory_used_mib < 220


def test_cpu_use_of_a_rank_counts_what_its_children_burn(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "burn = \"print('ready', flush=True)\\nwhile True: pass\"\n"
        "subprocess.Popen([sys.executable, '-c', burn])\n"
        "time.sleep(600)\n"
    )
    with python(code) as process:
        probe = HostProbe(tmp_path)
        wanted = {"job": {0: process.pid}}
        probe.sample(1, wanted, [])
        busy = sample_until(probe, wanted, lambda rank: (rank.cpu_percent or 0) > 20)
    assert busy.state == "sleeping"


def test_ranks_come_in_order_and_by_job(tmp_path: Path) -> None:
    me, parent = os.getpid(), os.getppid()
    sample = HostProbe(tmp_path).sample(1, {"b": {5: me, 2: parent}, "a": {0: me}, "none": {}}, [])
    assert {job: [(rank.rank, rank.pid) for rank in ranks] for job, ranks in sample.ranks.items()} == {
        "b": [(2, parent), (5, me)],
        "a": [(0, me)],
        "none": [],
    }


def test_a_process_that_is_gone_is_left_out(tmp_path: Path) -> None:
    probe = HostProbe(tmp_path)
    with python("print('ready', flush=True); import time; time.sleep(600)") as process:
        wanted = {"job": {0: os.getpid(), 1: process.pid}}
        assert [rank.rank for rank in probe.sample(1, wanted, []).ranks["job"]] == [0, 1]
    assert [rank.rank for rank in probe.sample(2, wanted, []).ranks["job"]] == [0]


def test_another_process_with_the_same_pid_is_left_out(tmp_path: Path) -> None:
    identity = processes.identify(os.getpid())
    assert identity is not None
    probe = HostProbe(tmp_path)

    def ranks(start_time: int | None) -> list[RankSample]:
        sample: HostSample = probe.sample(1, {"job": {0: (identity.pid, start_time)}}, [])
        return sample.ranks["job"]

    assert len(ranks(identity.start_time)) == 1
    assert len(ranks(None)) == 1
    assert ranks(identity.start_time + 1) == []


def test_a_zombie_says_that_it_is_one(tmp_path: Path) -> None:
    with python("print('ready', flush=True)") as process:
        # Waits for the end without reaping.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        (rank,) = HostProbe(tmp_path).sample(1, {"job": {0: process.pid}}, []).ranks["job"]
    assert (rank.state, rank.memory_used_mib) == ("zombie", 0)


def test_a_command_name_with_parentheses_and_spaces_is_read_right(tmp_path: Path) -> None:
    program = tmp_path / "a ) (b) c"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "600"])
    try:
        (rank,) = HostProbe(tmp_path).sample(1, {"job": {0: process.pid}}, []).ranks["job"]
    finally:
        process.kill()
        process.wait(timeout=10)
    assert (rank.pid, rank.threads) == (process.pid, 1)
