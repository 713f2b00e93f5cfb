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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from dtagent.protocol.facts import GpuFacts, HostFacts
from dtagent.protocol.telemetry import DeviceRate, DiskUse, GpuProcess, GpuSample, HostSample, MigInstance, RankSample
from dtagent.telemetry.prometheus import exposition
from dtagent.terminal.terminal_text import TerminalTraits, cells, printable
from dtagent.terminal.top_view import render, spoken

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


@dataclass
class FakeHost:
    """A host on which every process has the same command line."""

    command: Sequence[str] = ("python", "train.py")
    outside: str | None = "eth0"

    def command_of(self, pid: int) -> Sequence[str]:
        return self.command

    def interface(self) -> str | None:
        return self.outside


def shown(look: TerminalTraits, sample: HostSample = SAMPLE, host: FakeHost | None = None) -> list[str]:
    return render(sample, FACTS, "the daemon", look, host or FakeHost())


@pytest.mark.parametrize("width", [40, 80, 100, 120, 200])
@pytest.mark.parametrize("height", [5, 10, 24, 50])
def test_no_line_is_wider_than_the_terminal_and_none_too_many(width: int, height: int) -> None:
    gpus = [*SAMPLE.gpus, *(GpuSample(index) for index in range(2, 16))]
    many = HostSample(1, 1.0, gpus=gpus, ranks={"作业" * 9: SAMPLE.ranks["gpt-1"]})
    for sample in (SAMPLE, many, HostSample(1, 1.0)):
        lines = shown(TerminalTraits(width, height), sample, FakeHost(["python", "训练 " * 40]))
        assert len(lines) == height
        assert max(cells(line) for line in lines) <= width
        assert "quit" in lines[-1]


def test_what_matters_is_there_at_80_columns() -> None:
    text = "\n".join(shown(TerminalTraits(80, 24)))
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
    wanted += ("! GPU is lost", "4711", "li", "gpt-1", "train.py", "mlx5_0/1", "NVIDIA H100")
    for words in wanted:
        assert words in text


LONG_JOB = "llama-3-8b-continued-pretraining-0317-101112-a1b2"


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_each_rank_shows_its_number_both_memories_its_user_and_the_script(width: int) -> None:
    ranks = [RankSample(rank, 4711 + rank, 180.0, 2048, 30, "running") for rank in (64, 65)]
    gpus = [GpuSample(0, processes=[GpuProcess(4775, "li", 69_000)])]
    command = ["/opt/conda/envs/training/bin/python3.11", "-u", "-X", "dev", "/var/tmp/dtagent-1000/payload/rank.py"]
    command += ["/home/li/projects/llama/pretrain.py", "--steps", "100"]
    sample = HostSample(1, 1.0, gpus=gpus, ranks={LONG_JOB: ranks})
    job, title, first, second = shown(TerminalTraits(width), sample, FakeHost(command))[-4:]
    assert job.split() == ["job", LONG_JOB]
    assert title.split()[:9] == ["GPU", "rank", "PID", "user", "GPU", "mem", "host", "mem", "CPU"]
    assert first.split()[:9] == ["0", "64", "4775", "li", "67", "GiB", "2.0", "GiB", "180%"]
    assert second.split()[:6] == ["65", "4776", "li", "2.0", "GiB", "180%"]
    for line in (first, second):
        assert "pretrain.py --steps 100" in line


def test_ranks_of_several_jobs_name_theirs() -> None:
    jobs = {f"{LONG_JOB}-{number}": [RankSample(number, 50 + number)] for number in range(2)}
    for width in (80, 200):
        lines = shown(TerminalTraits(width), HostSample(1, 1.0, ranks=jobs))[-2:]
        assert all("llama-3" in line and "train.py" in line for line in lines)
        assert all(("…" in line) == (width == 80) for line in lines)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/usr/bin/python3 -u /home/li/train.py --lr 1", "train.py --lr 1"),
        ("python -m torch.distributed.run train.py", "torch.distributed.run train.py"),
        ("python3.12 -I /var/tmp/x/payload/rank.py -m pkg.train", "pkg.train"),
        ("python -c pass", "python -c pass"),
        ("python", "python"),
        ("/opt/bin/simulate --steps /data/x", "simulate --steps /data/x"),
        ("", ""),
    ],
)
def test_a_command_is_called_by_its_script(command: str, words: str) -> None:
    assert spoken(command.split()) == words


def test_a_title_that_a_process_gave_itself_stays_whole() -> None:
    assert spoken(["nginx: worker /etc/x"]) == "nginx: worker /etc/x"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_warning_of_a_gpu_is_hidden_or_cut(width: int) -> None:
    reasons = ["power cap", "software thermal slowdown"]
    bad = GpuSample(3, 97, ecc_uncorrected=2, nvlinks=18, nvlinks_active=17, throttle_reasons=reasons)
    others = [GpuSample(index, 97, throttle_reasons=reasons[:1]) for index in (0, 1, 2, 5)]
    lines = shown(TerminalTraits(width), HostSample(1, 1.0, gpus=[*others, bad]))
    told = " ".join("\n".join(lines).split())
    for words in ("ECC 2", "NVLink 17/18", "software thermal slowdown", "power cap"):
        assert words in told
    if width == 80:
        assert " GPU 3: ECC 2, NVLink 17/18, power cap, software thermal slowdown" in lines
        assert sum(line.endswith("  power cap") for line in lines) == 4
    if width == 60:
        assert " GPUs 0-3, 5: power cap" in lines
    assert "H100" in told


def test_what_is_cut_has_a_mark() -> None:
    line = next(line for line in shown(TerminalTraits(80), host=FakeHost(["train", "x" * 99])) if " train" in line)
    assert cells(line) == 80
    assert line.endswith("…")
    source = "read here: no daemon runs in /a/long/path/that/somebody/has/chosen/for/it"
    assert render(SAMPLE, FACTS, source, TerminalTraits(80), FakeHost())[0].endswith("…")


def test_a_disk_is_as_full_as_df_says() -> None:
    reserved = [DiskUse("/", 130, 1000, 290), DiskUse("/old", 130, 1000)]
    (line,) = (
        line for line in shown(TerminalTraits(80), HostSample(1, 1.0, file_systems=reserved)) if " disk " in line
    )
    assert line.split() == ["disk", "/", "31%", "/old", "13%"]
    text = exposition(HostSample(1, 1.0, file_systems=reserved), FACTS, "1")
    assert 'dtagent_filesystem_avail_bytes{mountpoint="/"} 304087040' in text
    assert text.count("dtagent_filesystem_avail_bytes{") == 1


def network_line(rates: dict[str, float], host: FakeHost) -> str:
    sample = HostSample(1, 1.0, network_receive_bytes_per_s=rates)
    return next(line for line in shown(TerminalTraits(80), sample, host) if " net " in line)


def test_the_network_shown_is_the_one_that_leads_outside_however_busy_others_are() -> None:
    rates = {"docker0": 5e9, "eth0": 0.0, "ifb0": 3e6}
    assert network_line(rates, FakeHost()).split()[1] == "eth0"
    assert network_line({**rates, "ifb0": 0.0}, FakeHost()).split()[1] == "eth0"
    assert network_line(rates, FakeHost(outside=None)).split()[1] == "docker0"


def test_many_devices_are_one_sum_and_not_those_that_happen_to_be_busy() -> None:
    ports = [DeviceRate(f"mlx5_{index}/1", index * 10**9, 10**9) for index in range(8)]
    (line,) = (line for line in shown(TerminalTraits(80), HostSample(1, 1.0, rdma=ports)) if " net " in line)
    assert " ".join(line.split()) == "net 8 RDMA ports ↓ 28 GB/s ↑ 8.0 GB/s"


def test_processes_that_do_not_fit_are_counted() -> None:
    processes = [GpuProcess(pid, "li", 5) for pid in range(100, 150)]
    text = "\n".join(shown(TerminalTraits(80, 24), HostSample(1, 1.0, gpus=[GpuSample(0, processes=processes)])))
    shown_rows = len(re.findall("^ +0 +1[0-9]{2} li", text, re.MULTILINE))
    assert f"  and {50 - shown_rows} more\n" in text
    assert shown_rows > 5


def test_colour_is_only_where_it_is_wanted_and_without_unicode_all_is_ascii() -> None:
    assert "\x1b" not in "".join(shown(TerminalTraits(80, 24)))
    assert "\x1b[31m! GPU is lost" in "".join(shown(TerminalTraits(80, 24, colour=True)))
    assert "".join(shown(TerminalTraits(80, 24, unicode=False))).isascii()


def test_a_hostile_process_name_reaches_no_terminal() -> None:
    command = "x\x1b]52;c;aGk=\x07\x1b[2J\x9b1m\u202egnp.exe\u200b\ud800"
    text = "\n".join(shown(TerminalTraits(120, 24), host=FakeHost([command])))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u200b\ud800]", text)
    assert "gnp.exe" in text
    assert printable("tab\there") == "tabhere"


def test_names_of_devices_and_mount_points_drive_no_terminal_from_the_metrics() -> None:
    name = "/mnt/x\x1b]52;c;aGk=\x07\x1b[2J\x9b1m\u202e\r"
    sample = HostSample(1, 1.0, disks=[DeviceRate(name, 1, 1)], network_errors={name: 1})
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", exposition(sample, FACTS, "1.2"))


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
def in_terminal(
    environment: dict[str, str], root: Path, term: str = "xterm"
) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """Run `dtagent top` on a terminal of its own; yields the process and both ends."""
    ours, theirs = pty.openpty()
    resize(theirs, 24, 80)
    command = [sys.executable, "-m", "dtagent", "top", "--root", str(root)]
    env = {**environment, "TERM": term, "LANG": "C.UTF-8"}
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


def test_top_goes_over_to_a_daemon_that_comes_and_back_when_it_goes(
    nvml_stub: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    environment = nvml_stub(gpus=1)
    root = tmp_path / "root"
    with in_terminal(environment, root) as (process, ours, _theirs):
        read_until(ours, b"read here: ")
        with Conversation(root, env=environment):
            read_until(ours, "· the daemon".encode())
            stop = [sys.executable, "-m", "dtagent", "stop", "--root", str(root)]
            subprocess.run(stop, env=environment, check=True, capture_output=True, timeout=60)
            text = read_until(ours, b"read here: ")
            assert b"Errno" not in text
            assert b"Broken pipe" not in text
        os.write(ours, b"q")
        assert process.wait(10) == 0


def test_a_terminal_that_cannot_draw_gets_one_plain_snapshot(
    nvml_stub: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    with in_terminal({**nvml_stub(gpus=1), "NO_COLOR": ""}, tmp_path / "none", "dumb") as (process, ours, _theirs):
        text = read_until(ours, b"no daemon runs")
        assert process.wait(20) == 0
        assert b"\x1b" not in text


def test_without_a_terminal_there_is_one_plain_snapshot(
    nvml_stub: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    environment = nvml_stub(gpus=2, settings={"utilization": 97})
    command = [sys.executable, "-m", "dtagent"]
    root = ["--root", str(tmp_path / "none")]
    top = subprocess.run([*command, "top", *root], env=environment, capture_output=True, timeout=60, check=True)
    assert b"\x1b" not in top.stdout
    gpus = [line for line in top.stdout.splitlines() if b"/80 GiB" in line]
    assert [b" 97% " in line for line in gpus] == [True, True]
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
    gpus = [line for line in top.stdout.splitlines() if b"/80 GiB" in line]
    assert [b" 97% " in line for line in gpus] == [True, True]
    assert Path(environment[CONTROL] + ".inits").read_text() == "."
