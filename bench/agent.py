"""Times the agent on a stub of the NVIDIA driver: `python bench/agent.py`. Needs a C compiler.

Each figure is the median of alternating runs, beside what issue 4 asks for. With `--nvitop` a temporary virtual
environment gets nvitop from PyPI, and its collector reads the same stub.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

from dtagent.protocol import rpc
from dtagent.protocol.columns import Picker, pack
from dtagent.protocol.telemetry import GpuSample, HostSample, TelemetryReply
from pydantic import TypeAdapter

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from dttui.services.telemetry import Selection, decode_frame  # noqa: E402 - of this checkout
from tests.agent.nvml_stub import CONTROL, change, child_environment, compile_stub  # noqa: E402 - likewise

GPUS = 8
TEN_FIELDS = (
    "utilization_percent", "memory_used_mib", "memory_total_mib", "temperature_c", "power_w", "power_limit_w",
    "sm_clock_mhz", "memory_clock_mhz", "throttle_reasons", "ecc_uncorrected",
)  # fmt: skip

OURS = """
import json, sys, time
from pathlib import Path
from dtagent.host import HostProbe
from dtagent.nvml import Nvml
from dtagent.protocol.columns import pack
nvml, probe = Nvml(), HostProbe(Path("/"))
def sample(seq):
    json.dumps(pack(probe.sample(seq, {}, nvml.sample())), separators=(",", ":"), allow_nan=False).encode()
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
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the daemon is watched")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dtagent-bench-") as name:
        directory = Path(name)
        environment = stubbed(directory)
        collector(directory, environment, with_peer=options.nvitop)
        wire()
        daemon(directory / "root", environment, options.seconds)


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


def row(what: str, value: str, target: str) -> None:
    print(f"{what:<64} {value:>12}   (at most {target})", flush=True)


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
    row("a sample of 8 GPUs and the host, encoded: CPU", f"{mine * 1e6:.0f} us", "-")
    if theirs:
        other = statistics.median(theirs)
        row("the same by nvitop's ResourceMetricCollector", f"{other * 1e6:.0f} us", "-")
        row("ratio", f"{mine / other:.2f}", "0.5")


def wire() -> None:
    """Measure a reply with ten fields of eight GPUs, and what it costs the login node."""
    sample = HostSample(
        1_732_184_000, 1732184000.123,
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
    row("ten fields of 8 GPUs on the wire", f"{len(line)} B", "600 B")
    reply = adapter.validate_python(decode_frame(line)["result"])
    checked = median_us(lambda: adapter.validate_python(decode_frame(line)["result"]))
    row("decode and check on the login node", f"{checked:.1f} us", "10 us")
    row(
        "and make sample objects of it, where they are looked at",
        f"{median_us(lambda: selection.samples(reply)):.1f} us",
        "-",
    )


def median_us(work: Callable[[], object], runs: int = 41, count: int = 500) -> float:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        for _ in range(count):
            work()
        times.append((time.perf_counter() - began) / count)
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
        began, used = time.monotonic(), cpu_ns(served.pid)
        time.sleep(seconds)
        share = (cpu_ns(served.pid) - used) / 1e9 / (time.monotonic() - began)
        pss = next(
            int(line.split()[1])
            for line in Path(f"/proc/{served.pid}/smaps_rollup").read_text().splitlines()
            if line.startswith("Pss:")
        )
        row("the daemon at 1 Hz: share of one core", f"{share:.2%}", "0.20%")
        row("the daemon: memory (PSS)", f"{pss / 1024:.1f} MiB", "24 MiB")
        row("the daemon: initialisations of the driver", str(len(inits.read_text())), "1")
        ratio = statistics.median(connect) / statistics.median(bare)
        row("bare python3 -I -c pass", f"{statistics.median(bare) * 1e3:.1f} ms", "-")
        row("dtagent connect, exec to first byte", f"{statistics.median(connect) * 1e3:.1f} ms", "-")
        row("ratio", f"{ratio:.2f}", "2.5")
    finally:
        served.terminate()
        served.wait()


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
