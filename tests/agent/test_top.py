"""`dtagent top` and `dtagent metrics`: what they show of a sample, and that they leave a terminal as they found it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from dtagent.prometheus import exposition
from dtagent.protocol.telemetry import (
    DeviceRate,
    DiskUse,
    GpuFacts,
    GpuProcess,
    GpuSample,
    HostFacts,
    HostSample,
    MigInstance,
    RankSample,
)
from dtagent.top_view import Look, cells, printable, render

from tests.agent.conversation import Conversation
from tests.agent.nvml_stub import CONTROL
from tests.waiting import wait_until

FACTS = HostFacts(
    "gpu1", "li", "Debian", "6.1", "x86_64", "boot", 1000.0, "EPYC", 64, 515_000,
    [GpuFacts(index, "NVIDIA H100", f"GPU-{index}", 81_559) for index in range(2)], "550.54",
)  # fmt: skip
SAMPLE = HostSample(
    7, 90_000.25, 47.5, 12.5, 200_000, 515_000, 0, 9_000, {"eth0": 1.2e9}, {"eth0": 3e6},
    [
        GpuSample(
            0, 97, 70_000, 81_559, 64, 402.4, 700.0, 1410, ["power cap"], 0, [GpuProcess(4711, "li", 69_000)],
            xid_count=0, memory_repair_pending=False, mig_enabled=True, mig_instances=[MigInstance("MIG-1", "x", 1, 2)],
        ),
        GpuSample(1, error="GPU is lost", xid_count=1, xid_last=79),
    ],
    {"gpt-1": [RankSample(0, 4711, 180.0, 2048, 30, "running"), RankSample(1, 4712, 90.0, 1024, 30, "running")]},
    cpu_count=64, load5=11.0, load15=9.8, swap_total_mib=1024, file_systems=[DiskUse("/", 61, 100)],
    disks=[DeviceRate("nvme0n1", 10**9, 3_000_000, busy_percent=80.0)], network_errors={"eth0": 2},
    rdma=[DeviceRate("mlx5_0/1", 4 * 10**9, 2 * 10**9, 3)],
)  # fmt: skip

_SAMPLE_LINE = re.compile(r'([a-z_:][a-z0-9_:]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.e+-]+)')


def shown(look: Look, sample: HostSample = SAMPLE, command: str = "python train.py") -> list[str]:
    return render(sample, FACTS, "the daemon", look, lambda _: command)


@pytest.mark.parametrize("width", [40, 80, 100, 120, 200])
@pytest.mark.parametrize("height", [5, 10, 24, 50])
def test_no_line_is_wider_than_the_terminal_and_none_too_many(width: int, height: int) -> None:
    gpus = [*SAMPLE.gpus, *(GpuSample(index) for index in range(2, 16))]
    many = HostSample(1, 1.0, gpus=gpus, ranks={"作业" * 9: SAMPLE.ranks["gpt-1"]})
    for sample in (SAMPLE, many, HostSample(1, 1.0)):
        lines = shown(Look(width, height), sample, "训练 " * 40)
        assert len(lines) == height
        assert max(cells(line) for line in lines) <= width
        assert "quit" in lines[-1]


def test_what_matters_is_there_at_80_columns() -> None:
    text = "\n".join(shown(Look(80, 24)))
    wanted: tuple[str, ...] = (
        "gpu1",
        "48% of 64 CPUs",
        "195/503 GiB",
        "97%",
        "68/80 GiB",
        "64°C",
        "402/700 W",
        "power cap",
        "/ 61%",
    )
    wanted += ("! GPU is lost", "4711", "li", "gpt-1 rank 0", "gpt-1 rank 1", "python train.py", "mlx5_0/1")
    for words in wanted:
        assert words in text


def test_processes_that_do_not_fit_are_counted() -> None:
    processes = [GpuProcess(pid, "li", 5) for pid in range(100, 150)]
    text = "\n".join(shown(Look(80, 24), HostSample(1, 1.0, gpus=[GpuSample(0, processes=processes)])))
    assert re.search(r"and \d+ more", text)


def test_colour_is_only_where_it_is_wanted_and_without_unicode_all_is_ascii() -> None:
    assert "\x1b" not in "".join(shown(Look(80, 24)))
    assert "\x1b[31m! GPU is lost" in "".join(shown(Look(80, 24, colour=True)))
    assert "".join(shown(Look(80, 24, unicode=False))).isascii()


def test_a_hostile_process_name_reaches_no_terminal() -> None:
    command = "x\x1b]52;c;aGk=\x07\x1b[2J\x9b1m\u202egnp.exe\u200b\ud800"
    text = "\n".join(shown(Look(120, 24), command=command))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u200b\ud800]", text)
    assert "gnp.exe" in text
    assert printable("tab\there") == "tabhere"


def test_metrics_are_prometheus_text_with_one_family_each() -> None:
    seen: dict[str, str] = {}
    rows: set[str] = set()
    family = ""
    hostile = HostSample(1, 1.5, gpus=[GpuSample(0, processes=[GpuProcess(1, 'q"\\\n\ud800', 5)])])
    for sample in (SAMPLE, hostile):
        seen.clear()
        rows.clear()
        text = exposition(sample, FACTS, "1.2")
        assert text.endswith("\n")
        text.encode()
        for line in text[:-1].split("\n"):
            if line.startswith("# HELP "):
                family = line.split()[2]
                assert family not in seen
            elif line.startswith("# TYPE "):
                assert line.split()[2] == family
                seen[family] = line.split()[3]
                assert (seen[family] == "counter") == family.endswith("_total")
            else:
                match = _SAMPLE_LINE.fullmatch(line)
                assert match, line
                assert match[1] == family
                assert f"{match[1]}{{{match[2]}" not in rows
                rows.add(f"{match[1]}{{{match[2]}")
                float(match[3])


def test_metrics_have_base_units_and_the_labels_that_join_them() -> None:
    lines = exposition(SAMPLE, FACTS, "1.2").splitlines()
    for line in (
        'dtagent_gpu_memory_used_bytes{gpu="0",uuid="GPU-0"} 73400320000',
        'dtagent_gpu_utilization_ratio{gpu="0",uuid="GPU-0"} 0.97',
        'dtagent_gpu_sm_clock_hertz{gpu="0",uuid="GPU-0"} 1410000000',
        'dtagent_gpu_up{gpu="1",uuid="GPU-1"} 0',
        'dtagent_gpu_xid_errors_total{gpu="1",uuid="GPU-1"} 1',
        'dtagent_rank_cpu_cores{job="gpt-1",rank="0"} 1.8',
        'dtagent_gpu_rank_info{job="gpt-1",rank="0",gpu="0",uuid="GPU-0"} 1',
        'dtagent_rdma_errors_total{device="mlx5_0",port="1"} 3',
    ):
        assert line in lines


def resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


@contextmanager
def in_terminal(environment: dict[str, str], root: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """Run `dtagent top` on a terminal of its own; yields the process and both ends."""
    ours, theirs = pty.openpty()
    resize(theirs, 24, 80)
    command = [sys.executable, "-m", "dtagent", "top", "--root", str(root)]
    env = {**environment, "TERM": "xterm", "LANG": "C.UTF-8"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
    os.set_blocking(ours, False)
    try:
        yield process, ours, theirs
    finally:
        process.kill()
        process.wait(10)
        os.close(ours)
        os.close(theirs)


def read_until(terminal: int, wanted: bytes) -> bytes:
    text = bytearray()

    def look() -> bool:
        with suppress(BlockingIOError):
            text.extend(os.read(terminal, 65536))
        return wanted in text

    wait_until(look, f"{wanted!r} on the terminal", 30)
    return bytes(text)


@pytest.mark.parametrize("way", ["q", "TERM"])
def test_the_terminal_is_given_back_as_it_was(
    nvml_stub: Callable[..., dict[str, str]], tmp_path: Path, way: str
) -> None:
    environment = nvml_stub(gpus=2, settings={"utilization": 97})
    with in_terminal(environment, tmp_path / "none") as (process, ours, theirs):
        before = termios.tcgetattr(theirs)
        text = read_until(ours, b"quit")
        assert text.startswith(b"\x1b[?1049h\x1b[?25l")
        assert b"97%" in text
        resize(theirs, 12, 60)
        process.send_signal(signal.SIGWINCH)
        read_until(ours, b"quit")
        if way == "q":
            os.write(ours, b"q")
        else:
            process.send_signal(signal.SIGTERM)
        assert read_until(ours, b"\x1b[?1049l").endswith(b"\x1b[?25h\x1b[?1049l")
        assert process.wait(10) == (0 if way == "q" else 128 + signal.SIGTERM)
        assert termios.tcgetattr(theirs) == before


def test_without_a_terminal_there_is_one_plain_snapshot(
    nvml_stub: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    environment = nvml_stub(gpus=2, settings={"utilization": 97})
    command = [sys.executable, "-m", "dtagent"]
    root = ["--root", str(tmp_path / "none")]
    top = subprocess.run([*command, "top", *root], env=environment, capture_output=True, timeout=60, check=True)
    assert b"\x1b" not in top.stdout
    assert top.stdout.count(b"97%") == 2
    metrics = subprocess.run([*command, "metrics", *root], env=environment, capture_output=True, timeout=60, check=True)
    assert metrics.stdout.count(b"\ndtagent_gpu_utilization_ratio{") == 2


def test_a_daemon_that_runs_is_asked_and_its_gpus_are_labelled(
    nvml_stub: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    environment = nvml_stub(gpus=2, settings={"utilization": 97, "nvlinks": 18})
    command = [sys.executable, "-m", "dtagent"]
    with Conversation(tmp_path / "root", env=environment) as agent:
        sample = wait_until(
            lambda: next((dict(each) for each in agent.call("telemetry")["samples"] if each.get("gpus")), None),
            "GPUs",
            20,
        )
        assert sample is not None
        assert sample["seq"] > 1_700_000_000
        root = ["--root", str(tmp_path / "root")]
        metrics = subprocess.run([*command, "metrics", *root], env=environment, capture_output=True, timeout=60)
        top = subprocess.run([*command, "top", *root], env=environment, capture_output=True, timeout=60)
    assert b'dtagent_gpu_up{gpu="1",uuid="GPU-00000000-0000-0000-0000-000000000001"} 1' in metrics.stdout
    assert b"the daemon" in top.stdout
    assert top.stdout.count(b"97%") == 2
    assert Path(environment[CONTROL] + ".inits").read_text() == "."
