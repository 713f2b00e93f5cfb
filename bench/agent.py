"""Times the agent on a stub of the NVIDIA driver: `python bench/agent.py`. Needs a C compiler.

Each figure is the median of alternating runs, beside what it is to be at most; with `--check` the exit status is 1
where one is above that. With `--nvitop` a temporary virtual environment gets nvitop from PyPI, and its collector reads
the same stub.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

from dtagent.protocol import rpc
from dtagent.protocol.columns import Picker, pack
from dtagent.protocol.telemetry import GpuSample, HostSample, TelemetryReply
from pydantic import TypeAdapter

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from dttui.rpc.sample_rows import WATCHED, Selection, decode_frame  # noqa: E402 - of this checkout
from tests.agent.conversation import Conversation  # noqa: E402 - likewise
from tests.agent.nvml_stub import CONTROL, change, child_environment, compile_stub  # noqa: E402 - likewise

GPUS = 8
TEN_FIELDS = (
    "utilization_percent", "memory_used_mib", "memory_total_mib", "temperature_c", "power_w", "power_limit_w",
    "sm_clock_mhz", "memory_clock_mhz", "throttle_reasons", "ecc_uncorrected",
)  # fmt: skip

OURS = """
import json, sys, time
from pathlib import Path
from dtagent.telemetry.host import HostReader
from dtagent.telemetry.nvml import Nvml
from dtagent.protocol.columns import pack
nvml, probe = Nvml(), HostReader(Path("/"))
def sample(seq):
    gpus = [nvml.read(index) for index in range(nvml.refresh())]
    json.dumps(pack(probe.sample(seq, {}, gpus)), separators=(",", ":"), allow_nan=False).encode()
"""
NVITOP = """
import json, sys, time
from nvitop import ResourceMetricCollector, Device
# With its usual interval it would answer from what it has, and read nothing.
collector = ResourceMetricCollector(Device.all(), interval=1e-9)
collector.activate("bench")
def sample(seq):
    json.dumps(collector.collect()).encode()
"""
LOOP = """
for seq in range(1, 20):
    sample(seq)
times = []
for seq in range(20, 20 + int(sys.argv[1])):
    began = time.process_time()
    sample(seq)
    times.append(time.process_time() - began)
print(json.dumps(sorted(times)[len(times) // 2]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvitop", action="store_true", help="compare with nvitop, fetched from PyPI")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a figure is above what it may be")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the daemon is watched")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dtagent-bench-") as name:
        directory = Path(name)
        environment = stubbed(directory)
        collector(directory, environment, with_peer=options.nvitop)
        wire()
        daemon(directory / "root", environment, options.seconds)
    if missed:
        print(f"above what it may be: {'; '.join(missed)}", flush=True)
    sys.exit(1 if missed and options.check else 0)


def stubbed(directory: Path) -> dict[str, str]:
    """Return the environment of a host with eight busy GPUs."""
    compile_stub(directory)
    environment = child_environment(directory, directory / "nvml.conf")
    settings: dict[str, object] = {"gpus": GPUS, "nvlinks": 18, "recovery": 0}
    for index in range(GPUS):
        settings |= {
            f"utilization.{index}": 97 - index, f"memory_used_mib.{index}": 71_000 + index,
            f"temperature.{index}": 60 + index, f"power_mw.{index}": 402_000 + index, f"throttle.{index}": 4,
            f"processes.{index}": f"{os.getpid()}:70000",
        }  # fmt: skip
    counters = ("nvlink_sent_kib", "nvlink_received_kib", "pcie_sent_bytes", "pcie_received_bytes")
    change(environment, {**settings, **dict.fromkeys(counters, 12345)})
    return environment


missed: list[str] = []
"""What was above its target."""


def row(what: str, value: float, form: str, most: float | None = None) -> None:
    """Print a figure, and keep in mind whether it is what it may be."""
    print(f"{what:<64} {form.format(value):>12}" + (f"   (at most {form.format(most)})" if most else ""), flush=True)
    if most is not None and value > most:
        missed.append(what)


def collector(directory: Path, environment: dict[str, str], *, with_peer: bool) -> None:
    """Time a sample of the host and eight GPUs, encoded."""
    peer = None
    if with_peer:
        venv.create(directory / "venv", with_pip=True)
        peer = str(directory / "venv/bin/python")
        subprocess.run([peer, "-m", "pip", "install", "-q", "--disable-pip-version-check", "nvitop"], check=True)

    def run(python: str, code: str, count: int) -> float:
        command = [python, "-c", code + LOOP, str(count)]
        env = environment if python == sys.executable else {k: v for k, v in environment.items() if k != "PYTHONPATH"}
        return float(json.loads(subprocess.run(command, env=env, check=True, capture_output=True).stdout))

    ours, theirs = [], []
    for _ in range(5):
        ours.append(run(sys.executable, OURS, 300))
        if peer:
            theirs.append(run(peer, NVITOP, 50))
    mine = statistics.median(ours)
    row("a sample of 8 GPUs and the host, encoded: CPU", mine * 1e6, "{:.0f} us")
    if theirs:
        other = statistics.median(theirs)
        row("the same by nvitop's ResourceMetricCollector", other * 1e6, "{:.0f} us")
        row("ratio", mine / other, "{:.2f}", 0.5)


def wire() -> None:
    """Measure a reply with ten fields of eight GPUs, and what it costs the login node."""
    sample = HostSample(
        1_732_184_000_000, 1732184000.123,
        gpus=[
            GpuSample(
                index, 97 - index, 71234 + 11 * index, 81920, 64 + index, 402.1 + index, 700.0, 1410 + 15 * index,
                ["power cap"], 0, memory_clock_mhz=1593,
            )
            for index in range(GPUS)
        ],
    )  # fmt: skip
    selection = Selection((), TEN_FIELDS, ())
    chosen = Picker(selection.fields)(json.loads(json.dumps(pack(sample))))
    line = rpc.encode({"jsonrpc": "2.0", "id": 77, "result": rpc.to_wire(TelemetryReply([], 0, [chosen]))})
    adapter = TypeAdapter(selection.reply)
    row("ten fields of 8 GPUs on the wire", len(line), "{} B", 600)
    reply = adapter.validate_python(decode_frame(line)["result"])
    checked = median_us(lambda: adapter.validate_python(decode_frame(line)["result"]))
    row("decode and check on the login node", checked, "{:.1f} us", 10.0)
    row(
        "and make sample objects of it, where they are looked at",
        median_us(lambda: selection.samples(reply)),
        "{:.1f} us",
    )


def median_us(work: Callable[[], object], runs: int = 41, count: int = 500) -> float:
    times = []
    for _ in range(runs):
        began = time.process_time()  # Of a machine that does other things too.
        for _ in range(count):
            work()
        times.append((time.process_time() - began) / count)
    return statistics.median(times) * 1e6


def daemon(root: Path, environment: dict[str, str], seconds: float) -> None:
    """Watch the daemon at 1 Hz, and time `connect` against a bare interpreter."""
    clean = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    agent = [sys.executable, "-I", "-m", "dtagent"]
    inits = Path(environment[CONTROL] + ".inits")
    inits.unlink(missing_ok=True)
    served = subprocess.Popen([*agent, "daemon", "--root", str(root)], env=clean, stderr=subprocess.DEVNULL)
    try:
        while not (root / "agent.sock").exists():
            time.sleep(0.05)
        connect, bare = [], []
        for _ in range(40):
            bare.append(first_byte([sys.executable, "-I", "-c", "pass"], clean))
            connect.append(first_byte([*agent, "connect", "--root", str(root)], clean))
        time.sleep(5)
        share = cpu_share(served.pid, seconds)
        pss = next(
            int(line.split()[1])
            for line in Path(f"/proc/{served.pid}/smaps_rollup").read_text().splitlines()
            if line.startswith("Pss:")
        )
        row("the daemon at 1 Hz: share of one core", share, "{:.2%}", 0.002)
        row("the daemon: memory (PSS)", pss / 1024, "{:.1f} MiB", 24.0)
        row("the daemon: initialisations of the driver", len(inits.read_text()), "{}", 1)
        ratio = statistics.median(connect) / statistics.median(bare)
        row("bare python3 -I -c pass", statistics.median(bare) * 1e3, "{:.1f} ms")
        row("dtagent connect, exec to first byte", statistics.median(connect) * 1e3, "{:.1f} ms")
        row("ratio", ratio, "{:.2f}", 2.5)
        with followed_job(root, clean):
            time.sleep(5)
            row("the daemon with a silent job of 8 ranks and one who follows", cpu_share(served.pid, seconds), "{:.2%}")
    finally:
        served.terminate()
        served.wait()


@contextlib.contextmanager
def followed_job(root: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run eight ranks that print nothing, followed as a controller does: logs and status, and telemetry at 1 Hz."""
    key = {"job_id": "bench", "attempt": 0}
    over = threading.Event()

    def follow(agent: Conversation) -> None:
        stamp = ""
        offsets: dict[str, int] = {}
        inodes: dict[str, int] = {}
        while not over.is_set():
            cursor = {"stamp": stamp, "offsets": offsets, "inodes": inodes}
            reply = agent.call("follow", {"key": key, **cursor, "wait_s": 10})
            stamp = reply["stamp"]
            for chunk in reply["chunks"]:
                offsets[chunk["stream"]], inodes[chunk["stream"]] = chunk["offset"], chunk["inode"]

    def watch(agent: Conversation) -> None:
        after, select = None, rpc.to_wire(WATCHED.fields)
        while not over.is_set():
            rows = agent.call("telemetry", {"after_seq": after, "wait_s": 5, "select": select})["rows"]
            after = rows[-1][0] if rows else after

    with contextlib.ExitStack() as stack:
        agents = [stack.enter_context(Conversation(root, env=environment, keep_daemon=True)) for _ in range(3)]
        agents[0].prepare("bench")
        agents[0].start("bench", [["sleep", "3600"]] * GPUS)
        acts = (follow, watch)
        threads = [threading.Thread(target=act, args=[agent]) for act, agent in zip(acts, agents[1:], strict=True)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            agents[0].stop("bench", force=True)
            for thread in threads:
                thread.join()
            agents[0].end_of("bench")


def cpu_share(pid: int, seconds: float) -> float:
    """Return the share of one core that a process takes."""
    began, used = time.monotonic(), cpu_ns(pid)
    time.sleep(seconds)
    return (cpu_ns(pid) - used) / 1e9 / (time.monotonic() - began)


def first_byte(command: list[str], environment: dict[str, str]) -> float:
    """Return the seconds from exec to the first byte, or to the end where nothing is said."""
    began = time.perf_counter()
    child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdin is not None
    child.stdout.read(1)
    if child.poll() is None and "connect" not in command:
        child.wait()
    took = time.perf_counter() - began
    child.stdin.close()
    child.stdout.close()
    child.wait()
    return took


def cpu_ns(pid: int) -> int:
    """Return the CPU time of all threads of a process, to the nanosecond."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


if __name__ == "__main__":
    main()
