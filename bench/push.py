"""Times sending files to a host against `sftp`, `tar | ssh` and paramiko's SFTP: `python bench/push.py`.

The host is a real sshd on a loopback address with an agent that holds none of the files. Sides take turns; figures are
medians, from the first byte of the connection to the last file in its place, and the start of each program is left out
where it is Python's. CPU is the sender's, and the host's: sshd with what it runs, and the agent. The content is random,
and nothing gains by compressing it. Parts by name, less by options: `python bench/push.py large --megabytes 50`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from loopback_hosts import LoopbackHosts, loopback_hosts

PARTS = {"large": 1, "many": 2000}
"""Name → number of files."""
TIMEOUT_S = 120.0
TARGET = 0.7
"""Our throughput is to be at least so much of paramiko's SFTP."""


async def send_by_dttui(settings: dict[str, str]) -> None:
    """What a launch does: list and hash the files, ask what the host lacks, send that, have it laid out."""
    from dtagent.protocol.attempt_key import AttemptKey
    from dtagent.protocol.preparation import PrepareReply, PrepareRequest

    from dttui.inventory.models import Environment
    from dttui.rpc.client import AgentClient
    from dttui.transport.base import Nobody, RemoteCommand
    from dttui.transport.remote_commands import COMMANDS
    from dttui.transport.ssh.transport import SshTransport
    from dttui.workdir.selection import survey
    from dttui.workdir.upload import make_bundle, send

    COMMANDS[RemoteCommand.AGENT] = settings["agent"]
    with measured():
        transport = SshTransport(Path(settings["config"]))
        environment = Environment(name="h", host=settings["host"])
        client = await AgentClient.connect(environment, transport, Nobody(), TIMEOUT_S)
        key = AttemptKey("bench", 0)
        prepare = PrepareRequest(key, 0, "sh", "127.0.0.1", False, (29500, 29999), 0)
        await client.call("prepare", prepare, PrepareReply)
        await send(client, key, make_bundle(survey(Path(settings["source"])).files))
        await client.close()
        await transport.close()


def send_by_paramiko(settings: dict[str, str]) -> None:
    """One SFTP session, `put` file by file."""
    import paramiko

    with measured():
        link = socket.create_connection((settings["host"], int(settings["port"])))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # Else each answer waits for an acknowledgement.
        connection = paramiko.Transport(link)
        key = paramiko.Ed25519Key.from_private_key_file(settings["key"])
        connection.connect(username=settings["user"], pkey=key)
        session = paramiko.SFTPClient.from_transport(connection)
        assert session is not None
        session.mkdir(settings["target"])
        for path in Path(settings["source"]).iterdir():
            session.put(str(path), f"{settings['target']}/{path.name}")
        connection.close()


@contextlib.contextmanager
def measured() -> Iterator[None]:
    """Print what the block costs this process."""
    began, before = time.perf_counter(), time.process_time()
    yield
    print(json.dumps({"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - before}))


def by_ourselves(side: str, settings: dict[str, str]) -> dict[str, float]:
    """Run one of the functions above in a process of its own."""
    argv = [sys.executable, __file__, "--side", side, json.dumps(settings)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side}: {done.stderr[-1000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def by_command(command: str) -> dict[str, float]:
    """Run a shell's command line; return what it costs with all it runs."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr[-1000:]}")
    return {"wall_s": wall_s, "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


@contextlib.contextmanager
def agent(root: Path) -> Iterator[int]:
    """Run a daemon that knows nothing yet; yield its process id."""
    argv = [sys.executable, "-I", "-m", "dtagent", "daemon", "--root", str(root)]
    daemon = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        while not (root / "agent.sock").exists():
            time.sleep(0.05)
        yield daemon.pid
    finally:
        daemon.terminate()
        daemon.wait()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    """One host, one directory to send, and the ways to send it."""

    def __init__(self, hosts: LoopbackHosts, source: Path) -> None:
        self.hosts = hosts
        self.source = source
        self.target = hosts.directory / "target"
        self.size = sum(path.stat().st_size for path in source.iterdir())
        self.settings = {
            "host": hosts.addresses[0],
            "port": str(hosts.port),
            "user": hosts.user,
            "key": str(hosts.key),
            "config": str(hosts.ssh_config("tuned")),
            "source": str(source),
            "target": str(self.target),
        }
        self.sides: dict[str, Callable[[], dict[str, float]]] = {
            "dttui": self.dttui,
            "paramiko": lambda: by_ourselves("paramiko", self.settings),
            "sftp": lambda: by_command(self.sftp()),
            "tar | ssh": lambda: by_command(self.tar()),
        }

    def run(self, rounds: int) -> dict[str, dict[str, float]]:
        """Return the medians of each side's figures."""
        results: dict[str, list[dict[str, float]]] = {name: [] for name in self.sides}
        for _ in range(rounds):
            for name, side in self.sides.items():
                before = self.hosts.cpu_s()
                figures = side()
                self.hosts.await_idle()
                figures["host_s"] = figures.get("host_s", 0.0) + self.hosts.cpu_s() - before
                results[name].append(figures)
                shutil.rmtree(self.target, ignore_errors=True)
        return {
            name: {key: statistics.median(item[key] for item in several) for key in several[0]}
            for name, several in results.items()
        }

    def dttui(self) -> dict[str, float]:
        root = self.target / "agent"
        root.parent.mkdir()
        with agent(root) as pid:
            command = shlex.join([sys.executable, "-I", "-m", "dtagent", "connect", "--root", str(root)])
            before = cpu_s(pid)
            figures = by_ourselves("dttui", {**self.settings, "agent": command})
            figures["host_s"] = cpu_s(pid) - before
        work = root / "jobs" / "bench" / "0" / "work"
        assert sum(path.stat().st_size for path in work.iterdir()) == self.size
        return figures

    def sftp(self) -> str:
        batch = self.hosts.directory / "batch"
        batch.write_text(f"put -r {shlex.quote(str(self.source))} {shlex.quote(str(self.target))}\n")
        return shlex.join(["sftp", "-q", "-F", self.settings["config"], "-b", str(batch), self.settings["host"]])

    def tar(self) -> str:
        target = shlex.quote(str(self.target))
        there = f"mkdir {target} && tar -C {target} -xf -"
        ssh = shlex.join(["ssh", "-F", self.settings["config"], self.settings["host"], there])
        return f"tar -C {shlex.quote(str(self.source))} -cf - . | {ssh}"


def show(results: dict[str, dict[str, float]], size: int) -> None:
    for name, item in results.items():
        print(
            f"  {name:<12} {item['wall_s']:7.2f} s  {size / 1e6 / item['wall_s']:7.0f} MB/s   "
            f"CPU {item['cpu_s']:6.2f} s here, {item['host_s']:6.2f} s on the host",
            flush=True,
        )
    ratio = results["paramiko"]["wall_s"] / results["dttui"]["wall_s"]
    print(f"  throughput, ratio to paramiko {ratio:.2f} (at least {TARGET:g})", flush=True)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that the server ends with it.
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all unless named")
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3, help="of each side")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        settings: dict[str, Any] = json.loads(options.side[1])
        asyncio.run(send_by_dttui(settings)) if options.side[0] == "dttui" else send_by_paramiko(settings)
        return
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="dttui-push-") as name, loopback_hosts(Path(name), 1) as hosts:
        for part in options.parts or PARTS:
            source = Path(name) / part
            source.mkdir()
            for number in range(PARTS[part]):
                (source / f"{number:04}.bin").write_bytes(os.urandom(options.megabytes * 1_000_000 // PARTS[part]))
            bench = Bench(hosts, source)
            load = os.getloadavg()[0]
            print(f"{bench.size / 1e6:.0f} MB in {PARTS[part]} files, load average {load:.1f}", flush=True)
            show(bench.run(options.rounds), bench.size)


if __name__ == "__main__":
    main()
