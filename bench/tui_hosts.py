"""What `bench/tui.py` shows, made in a process of its own: agents of many hosts, or the files of a job that runs.

`python bench/tui_hosts.py agents SOCKET HOSTS GPUS INTERVAL COUNT` answers on one socket for all hosts, in the wire
form of agents; each frame has a head of host and size before it. How many readings were told is in the file COUNT.
`job NODES RANKS` keeps writing what a controller would, and prints the job's id. Both say `ready` once all that there
is to be told at first is told.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dtagent.protocol.columns import Picker, pack
from dtagent.protocol.events import JobState, Metric
from dtagent.protocol.facts import GpuFacts, HostFacts, PythonFacts
from dtagent.protocol.first_line import MAGIC
from dtagent.protocol.greeting import HelloReply
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.telemetry import GpuHold, GpuSample, HostSample, TelemetrySelection

from bench.tui_subject import HEAD, Counter, environment, name_of
from dttui.files import append_line
from dttui.inventory.models import Inventory
from dttui.spec.models import Cluster, Job, Node, Run
from tests.tui.job_files import JobWriter

VARIANTS = 16
"""Different readings, of which each host takes one after the other."""
TURN_S = 0.02
BOOTED_S = 400_000.0
"""Before the start, of the first host."""


def facts_of(index: int, gpus: int) -> HostFacts:
    """Return what a host says of itself."""
    return HostFacts(
        hostname=name_of(index), user="li", os="Debian GNU/Linux 12", kernel="6.1.0", architecture="x86_64",
        boot_id="0", booted_at=time.time() - BOOTED_S - 3600 * index, cpu_model="AMD EPYC 7763", cpu_count=64,
        memory_total_mib=515_000, driver_version="550.54.15",
        gpus=[GpuFacts(gpu, "NVIDIA A100-SXM4-80GB", f"GPU-{index}-{gpu}", 81920) for gpu in range(gpus)],
        pythons=[PythonFacts("python3", "/usr/bin/python3", "3.11.2", {"torch": "2.13.0"})],
    )  # fmt: skip


def sample_of(variant: int, gpus: int, *, busy: bool) -> HostSample:
    """Return one reading of a host, whose GPUs somebody has or nobody."""
    load = 90 + variant % 10 if busy else variant % 3
    readings = [
        GpuSample(
            gpu, utilization_percent=load - gpu % 4 if busy else load, memory_used_mib=70_000 + 64 * variant + gpu,
            memory_total_mib=81920, temperature_c=55 + variant % 9, power_w=390.5 + variant, power_limit_w=400.0,
            sm_clock_mhz=1410, throttle_reasons=[], ecc_uncorrected=0, memory_utilization_percent=load // 2 + 1,
            pcie_receive_bytes_per_s=1_000_000 + 1000 * variant, pcie_transmit_bytes_per_s=900_000 + 1000 * variant,
            nvlink_receive_bytes_per_s=40_000_000 + variant, nvlink_transmit_bytes_per_s=40_000_000 + variant,
            nvlinks_active=12, nvlinks=12, mig_enabled=False, xid_count=0,
        )
        for gpu in range(gpus)
    ]  # fmt: skip
    return HostSample(
        0, 0.0, cpu_percent=12.5 + variant, load1=4.5 + variant / 10, memory_used_mib=90_000 + 100 * variant,
        memory_total_mib=515_000, swap_used_mib=0, disk_free_mib=800_000 - variant, cpu_count=64,
        network_receive_bytes_per_s={"eth0": 1e6 + 1000 * variant}, network_transmit_bytes_per_s={"eth0": 9e5},
        gpus=readings, network_errors={"eth0": 0}, oom_kills=0,
        holds=[GpuHold("li", "bert-large-7", [0, 1], since=-3600.0)] if busy else [],
    )  # fmt: skip


class Agents:
    """Answers for all hosts: each has a reading as often as it is told, one a little after the other."""

    def __init__(self, connection: socket.socket, hosts: int, gpus: int, interval_s: float, count: Path) -> None:
        self._connection = connection
        self._hosts, self._gpus, self._interval_s = hosts, gpus, interval_s
        self._out = bytearray()
        self._in = bytearray()
        self._waiting: dict[int, int] = {}
        """Host → the request that waits for its next reading."""
        self._began = time.time()
        self._due = 0
        self._told: set[int] = set()
        self._bodies: dict[tuple[int, bool], str] = {}
        self._count = Counter(count)

    def serve(self) -> None:
        """Answer until the other side hangs up."""
        self._connection.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            while True:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
                selector.modify(self._connection, events)
                for _key, ready in selector.select(TURN_S):
                    if ready & selectors.EVENT_READ and not self._receive():
                        return
                    if ready & selectors.EVENT_WRITE:
                        del self._out[: self._connection.send(self._out)]
                self._tick()

    def _receive(self) -> bool:
        data = self._connection.recv(1 << 20)
        self._in += data
        while len(self._in) >= HEAD.size:
            host, size = HEAD.unpack_from(self._in)
            if len(self._in) < HEAD.size + size:
                break
            line = bytes(self._in[HEAD.size : HEAD.size + size])
            del self._in[: HEAD.size + size]
            if line:
                self._answer(host, json.loads(line))
            else:
                self._send(host, MAGIC)
        return bool(data)

    def _answer(self, host: int, request: dict[str, Any]) -> None:
        method, number, params = request["method"], request["id"], request["params"]
        if method == "hello":
            self._reply(host, number, to_wire(HelloReply(1, "0.1.0", name_of(host), 1, "0", time.time())))
        elif method == "facts":
            self._reply(host, number, to_wire(facts_of(host, self._gpus)))
        elif method == "telemetry":
            if not self._bodies:
                self._make_bodies(TelemetrySelection(**params["select"]))
            after = params.get("after_seq")
            if after is None or after < self._newest(host):
                self._tell(host, number)
            else:
                self._waiting[host] = number
        else:
            self._reply(host, number, {})

    def _make_bodies(self, selection: TelemetrySelection) -> None:
        pick = Picker(selection)
        for variant in range(VARIANTS):
            for busy in (True, False):
                row = to_wire(pick(pack(sample_of(variant, self._gpus, busy=busy))))
                self._bodies[variant, busy] = json.dumps(row[2:], separators=(",", ":"))[1:]

    def _newest(self, host: int) -> int:
        return 1 + max(0, int((time.time() - self._began) / self._interval_s - host / self._hosts))

    def _tick(self) -> None:
        """Answer those whose time has come."""
        due = int((time.time() - self._began) / self._interval_s * self._hosts)
        for number in range(max(self._due, due - self._hosts), due):
            host = number % self._hosts
            if host in self._waiting:
                self._tell(host, self._waiting.pop(host))
        self._due = due

    def _tell(self, host: int, number: int) -> None:
        seq = self._newest(host)
        body = self._bodies[(seq + host) % VARIANTS, host % 3 == 0]
        row = f"[{seq},{time.time():.3f},{body}"
        self._send(host, f'{{"jsonrpc":"2.0","id":{number},"result":{{"missed":0,"rows":[{row}]}}}}\n'.encode())
        self._count.add(1)
        if len(self._told) < self._hosts:
            self._told.add(host)
            if len(self._told) == self._hosts:
                print("ready", flush=True)

    def _reply(self, host: int, number: int, result: object) -> None:
        self._send(host, json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode() + b"\n")

    def _send(self, host: int, data: bytes) -> None:
        self._out += HEAD.pack(host, len(data)) + data


def serve_agents(path: str, hosts: int, gpus: int, interval_s: float, count: Path) -> None:
    """Answer one screen."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("listening", flush=True)
        Agents(listener.accept()[0], hosts, gpus, interval_s, count).serve()


def write_job(nodes: int, ranks: int) -> None:
    """Write a job that runs, each second a reading of each node and a report, until this process is ended."""
    hosts = tuple(environment(index, ranks) for index in range(nodes))
    cluster = Cluster(nodes=tuple(Node(id=item.name) for item in hosts))
    run = Run(script="/opt/train.py")
    job = Job(name="large", framework="pytorch-ddp", run=run, dataset="none", cluster=cluster)
    writer = JobWriter(job, Inventory(environments=hosts))
    writer.watch()
    writer.nodes("running")
    writer.state(JobState.RUNNING, "all ranks run")
    bodies = [reading_of(variant, ranks, writer.job_id) for variant in range(VARIANTS)]
    print(writer.job_id, flush=True)
    began, turn = time.time(), 0
    while True:
        due = int((time.time() - began) * nodes)
        for number in range(turn, due):
            second, index = divmod(number, nodes)
            text = bodies[(second + index) % VARIANTS](second, list(writer.plan.nodes[index].ranks))
            append_line(writer.directory.samples(writer.plan.nodes[index].name), text)
            if index == 0:
                loss, speed = 2.1 + 3 / (1 + second), 81_000.0 + second % 7 * 100
                writer.report(Metric(0, second, loss, tokens_per_s=speed, total_steps=100_000.0, time=time.time()))
        if turn < nodes <= due:
            print("ready", flush=True)
        turn = due
        time.sleep(TURN_S)


def reading_of(variant: int, ranks: int, job_id: str) -> Callable[[int, list[int]], str]:
    """Return what writes a reading of a second for a node with these ranks."""
    told = json.dumps(to_wire(sample_of(variant, ranks, busy=True)))
    begin = '"seq": 0, "time": 0.0,'
    assert begin in told
    rest = told[told.index(begin) + len(begin) : -1]

    def written(second: int, numbers: list[int]) -> str:
        processes = [
            {"rank": rank, "pid": 1000 + rank, "cpu_percent": 90.0 + variant, "memory_used_mib": 4200 + variant,
             "threads": 12, "state": "running", "local_rank": local}
            for local, rank in enumerate(numbers)
        ]  # fmt: skip
        there = json.dumps({job_id: processes})
        return f'{{"seq": {second}, "time": {time.time()},{rest}, "ranks": {there}}}'

    return written


if __name__ == "__main__":
    if sys.argv[1] == "agents":
        serve_agents(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), Path(sys.argv[6]))
    else:
        write_job(int(sys.argv[2]), int(sys.argv[3]))
