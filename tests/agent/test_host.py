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

import psutil
import pytest
from dtagent.protocol.telemetry import DeviceRate, GpuSample, HostSample, RankSample
from dtagent.system import processes
from dtagent.telemetry.host import HostReader
from dtagent.telemetry.rank_use import RankProcess, RankProcesses

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
        child.wait(timeout=120)
        assert child.stdout is not None
        child.stdout.close()


def sample_until(
    probe: HostReader, wanted: RankProcesses, satisfied: Callable[[RankSample], bool], deadline_s: float = 20.0
) -> RankSample:
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        rank = probe.sample(1, wanted, []).ranks["job"][0]
        if satisfied(rank):
            return rank
    raise AssertionError(f"not within {deadline_s} s: {rank}")


class FakeMachine:
    """The files of /proc and /sys that the probe reads, under a directory."""

    def __init__(self, directory: Path) -> None:
        self.proc = directory / "proc"
        self.sys = directory / "sys"
        (self.proc / "self/net").mkdir(parents=True)
        (self.sys / "block").mkdir(parents=True)
        self.cpu("cpu 0 0 0 0")
        self.network()
        self.disks()
        self.write("proc/meminfo", "MemTotal: 2048 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n")
        self.write("proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")

    def write(self, path: str, text: str) -> None:
        target = self.proc.parent / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def cpu(self, *lines: str) -> None:
        self.write("proc/stat", "\n".join(lines) + "\nintr 1 2 3\nctxt 4\n")

    def network(self, **counters: tuple[int, int, int]) -> None:
        rows = [f"{name}: {got} 1 {bad} 0 0 0 0 0 {sent} 1 0 1 0 0 0 0" for name, (got, sent, bad) in counters.items()]
        self.write("proc/self/net/dev", "\n".join(["Inter-| Receive", " face |bytes", *rows]) + "\n")

    def disks(self, **counters: tuple[int, int, int]) -> None:
        rows = [
            f" 259 0 {name} 1 0 {read} 4 5 6 {wrote} 8 0 {busy_ms} 9"
            for name, (read, wrote, busy_ms) in counters.items()
        ]
        self.write("proc/diskstats", "".join(row + "\n" for row in rows))

    def probe(self, clock: Clock) -> HostReader:
        return HostReader(self.proc, clock, self.proc, self.sys)


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_a_reading_of_this_machine_is_whole(tmp_path: Path) -> None:
    probe = HostReader(tmp_path)
    gpus = [GpuSample(0)]
    first = probe.sample(1, {}, gpus)
    assert (first.seq, first.gpus, first.ranks) == (1, gpus, {})
    assert first.cpu_percent is None
    assert first.network_receive_bytes_per_s == {}
    assert abs(first.time - time.time()) < 60
    assert first.memory_total_mib == psutil.virtual_memory().total // MIB
    assert first.memory_used_mib is not None
    assert 0 < first.memory_used_mib < first.memory_total_mib
    assert None not in (first.load1, first.load5, first.load15)
    assert first.swap_used_mib is not None
    assert first.swap_total_mib == psutil.swap_memory().total // MIB
    assert first.disk_free_mib is not None
    assert first.disk_free_mib > 0
    assert first.file_systems is not None
    root = next(item for item in first.file_systems if item.mount == "/")
    assert 0 < root.used_mib <= root.total_mib
    second = probe.sample(2, {}, [])
    assert second.seq == 2


def test_cpu_use_is_busy_time_over_all_time_since_the_reading_before(machine: FakeMachine) -> None:
    # Guest time, the ninth, is counted in user already; waiting for a disk, the fifth, is idle.
    readings = ["100 0 50 800 50 0 0 0 20", "130 0 60 850 60 0 0 0 30", "130 0 60 850 60 0 0 0 30", "230 0 60 845 55"]
    probe = machine.probe(Clock())
    percents = []
    for seq, reading in enumerate(readings):
        machine.cpu(f"cpu  {reading}", f"cpu0 {reading}")
        percents.append(probe.sample(seq, {}, []).cpu_percent)
    assert percents == [None, 40.0, None, 100.0]


def test_each_cpu_is_told_only_where_it_is_wanted(machine: FakeMachine) -> None:
    probe = machine.probe(Clock())
    cores = []
    for ticks in range(1, 5):
        machine.cpu(f"cpu {ticks} 0 0 {ticks} 0", f"cpu0 {2 * ticks} 0 0 0 0", f"cpu1 0 0 0 {2 * ticks} 0")
        sample = probe.sample(ticks, {}, [], with_cores=ticks > 1)
        cores.append(sample.core_percents)
    assert cores == [None, None, [100, 0], [100, 0]]
    assert sample.cpu_count == 2
    assert sample.cpu_percent == 50.0


def test_network_rates_and_errors_are_told_by_interface(machine: FakeMachine) -> None:
    clock = Clock()
    probe = machine.probe(clock)
    machine.network(lo=(5, 5, 0), eth0=(1000, 2000, 3), ib0=(900, 900, 0), veth12=(7, 7, 0))
    assert probe.sample(1, {}, []).network_receive_bytes_per_s == {}
    clock.now += 2
    machine.network(lo=(9, 9, 0), eth0=(5000, 2500, 4), ib0=(10, 10, 0), eth1=(70, 70, 0), veth12=(9, 9, 0))
    second = probe.sample(2, {}, [])
    # ib0 was made anew and eth1 has just come: neither has a rate yet; the loopback and containers' cables never do.
    assert second.network_receive_bytes_per_s == {"eth0": 2000.0}
    assert second.network_transmit_bytes_per_s == {"eth0": 250.0}
    assert second.network_errors == {"eth0": 5, "ib0": 1, "eth1": 1}
    clock.now += 1
    machine.network(eth0=(5000, 2500, 4), ib0=(210, 10, 0), eth1=(70, 70, 0))
    third = probe.sample(3, {}, [])
    assert third.network_receive_bytes_per_s == {"eth0": 0.0, "ib0": 200.0, "eth1": 0.0}


def test_disk_rates_count_sectors_of_disks_and_not_of_their_parts(machine: FakeMachine) -> None:
    for name in ("nvme0n1", "dm-0"):
        (machine.sys / "block" / name).mkdir()
    (machine.sys / "block/nvme0n1/device").mkdir()
    clock = Clock()
    probe = machine.probe(clock)
    machine.disks(nvme0n1=(10, 20, 100), nvme0n1p1=(10, 20, 100), **{"dm-0": (1, 1, 1)})
    assert probe.sample(1, {}, []).disks == []
    clock.now += 2
    machine.disks(nvme0n1=(30, 60, 1100), nvme0n1p1=(30, 60, 1100), **{"dm-0": (9, 9, 9)})
    assert probe.sample(2, {}, []).disks == [DeviceRate("nvme0n1", 5120, 10240, busy_percent=50.0)]


def test_rdma_ports_are_counted_in_words_of_four_bytes(machine: FakeMachine) -> None:
    counters = "sys/class/infiniband/mlx5_0/ports/1/counters"

    def write(received: int, sent: int) -> None:
        machine.write(f"{counters}/port_rcv_data", f"{received}\n")
        machine.write(f"{counters}/port_xmit_data", f"{sent}\n")
        machine.write(f"{counters}/symbol_error", "2\n")
        machine.write(f"{counters}/link_downed", "1\n")

    clock = Clock()
    probe = machine.probe(clock)
    write(100, 200)
    assert probe.sample(1, {}, []).rdma is None
    clock.now += 1
    write(1100, 200)
    assert probe.sample(2, {}, []).rdma == [DeviceRate("mlx5_0/1", 4000, 0, errors=3)]


def test_file_systems_behind_a_network_are_left_out_and_none_is_told_twice(machine: FakeMachine) -> None:
    here = machine.proc
    machine.write(
        "proc/self/mountinfo",
        "1 0 0:30 / / rw shared:1 - overlay overlay rw\n"
        f"2 1 8:1 / {here} rw - ext4 /dev/sda1 rw\n"
        f"3 1 8:1 /x {machine.sys} rw - ext4 /dev/sda1 rw\n"
        f"4 1 0:44 / {machine.sys} rw - nfs4 server:/home rw\n"
        "5 1 0:5 / /proc rw - proc proc rw\n",
    )
    sample = machine.probe(Clock()).sample(1, {}, [])
    assert sample.file_systems is not None
    assert [item.mount for item in sample.file_systems] == ["/", str(here)]


def test_a_kernel_that_tells_nothing_gives_a_sample_of_nothing(tmp_path: Path) -> None:
    sample = HostReader(tmp_path / "none", proc=tmp_path / "proc", sys=tmp_path / "sys").sample(1, {}, [])
    assert (sample.cpu_percent, sample.memory_total_mib, sample.disk_free_mib) == (None, None, None)
    assert (sample.disks, sample.rdma, sample.file_systems, sample.network_errors) == (None, None, None, None)
    assert sample.network_receive_bytes_per_s == {}


def test_the_loopback_is_left_out_whatever_passes_over_it(tmp_path: Path) -> None:
    probe = HostReader(tmp_path)
    probe.sample(1, {}, [])
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.sendall(b"x" * 10000)
        sample = probe.sample(2, {}, [])
    assert "lo" not in sample.network_receive_bytes_per_s
    assert set(sample.network_receive_bytes_per_s) == set(sample.network_transmit_bytes_per_s)


def test_kills_for_want_of_memory_are_counted_where_the_kernel_counts_them(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    assert machine.probe(Clock()).sample(1, {}, []).oom_kills is None
    machine.write("proc/vmstat", "nr_free_pages 12\noom_kill_disable 9\noom_kill 3\nthp_fault 1\n")
    probe = machine.probe(Clock())
    assert probe.sample(1, {}, []).oom_kills == 3
    machine.write("proc/vmstat", "nr_free_pages 12\noom_kill_disable 9\noom_kill 4\nthp_fault 1\n")
    assert probe.sample(2, {}, []).oom_kills == 4


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
        probe, wanted = HostReader(tmp_path), {"job": {3: RankProcess(process.pid)}}
        (first,) = probe.sample(1, wanted, []).ranks["job"]
        # Its child is ready, and itself it may just be about to sleep.
        rank = sample_until(probe, wanted, lambda rank: rank.state == "sleeping")
    assert first.cpu_percent is None
    assert (rank.rank, rank.pid, rank.threads) == (3, process.pid, 3)
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
        probe = HostReader(tmp_path)
        wanted = {"job": {0: RankProcess(process.pid)}}
        probe.sample(1, wanted, [])
        sample_until(probe, wanted, lambda rank: (rank.cpu_percent or 0) > 20 and rank.state == "sleeping")


def test_ranks_come_in_order_and_by_job(tmp_path: Path) -> None:
    me, parent = os.getpid(), os.getppid()
    wanted: RankProcesses = {"b": {5: RankProcess(me), 2: RankProcess(parent)}, "a": {0: RankProcess(me)}, "none": {}}
    sample = HostReader(tmp_path).sample(1, wanted, [])
    assert {job: [(rank.rank, rank.pid) for rank in ranks] for job, ranks in sample.ranks.items()} == {
        "b": [(2, parent), (5, me)],
        "a": [(0, me)],
        "none": [],
    }


def test_a_process_that_is_gone_is_left_out(tmp_path: Path) -> None:
    probe = HostReader(tmp_path)
    with python("print('ready', flush=True); import time; time.sleep(600)") as process:
        wanted = {"job": {0: RankProcess(os.getpid()), 1: RankProcess(process.pid)}}
        assert [rank.rank for rank in probe.sample(1, wanted, []).ranks["job"]] == [0, 1]
    assert [rank.rank for rank in probe.sample(2, wanted, []).ranks["job"]] == [0]


def test_another_process_with_the_same_pid_is_left_out(tmp_path: Path) -> None:
    identity = processes.identify(os.getpid())
    assert identity is not None
    probe = HostReader(tmp_path)

    def ranks(start_time: int | None) -> list[RankSample]:
        sample: HostSample = probe.sample(1, {"job": {0: RankProcess(identity.pid, start_time)}}, [])
        return sample.ranks["job"]

    assert len(ranks(identity.start_time)) == 1
    assert len(ranks(None)) == 1
    assert ranks(identity.start_time + 1) == []


def test_a_zombie_says_that_it_is_one(tmp_path: Path) -> None:
    with python("print('ready', flush=True)") as process:
        # Waits for the end without reaping.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        (rank,) = HostReader(tmp_path).sample(1, {"job": {0: RankProcess(process.pid)}}, []).ranks["job"]
    assert (rank.state, rank.memory_used_mib) == ("zombie", 0)


def test_a_command_name_with_parentheses_and_spaces_is_read_right(tmp_path: Path) -> None:
    program = tmp_path / "a ) (b) c"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "600"])
    try:
        (rank,) = HostReader(tmp_path).sample(1, {"job": {0: RankProcess(process.pid)}}, []).ranks["job"]
    finally:
        process.kill()
        process.wait(timeout=120)
    assert (rank.pid, rank.threads) == (process.pid, 1)
