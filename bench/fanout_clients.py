"""What `bench/fanout.py` measures, each in a process of its own: `python fanout_clients.py KIND SETTINGS [WORD…]`.

A word is a method of a client. Those of the command line are done at once; without any, each line of stdin has one, and
a line of JSON with its CPU and wall seconds answers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

TIMEOUT_S = 120.0
AT_ONCE = 32
"""How many connect at once to stay, as dttui's fleet does."""


class Dttui:
    """SshTransport as dttui uses it, with a constant command that the bench names."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from dtagent.protocol.facts import FactsRequest, HostFacts

        from dttui.inventory.models import Environment
        from dttui.rpc.client import AgentClient
        from dttui.transport.base import Nobody, RemoteCommand
        from dttui.transport.remote_commands import COMMANDS
        from dttui.transport.ssh.transport import SshTransport

        COMMANDS[RemoteCommand.AGENT] = settings["command"]
        self._command = RemoteCommand.AGENT
        self._environments = [Environment(name=f"h{n}", host=host) for n, host in enumerate(settings["hosts"])]
        self._make = lambda: SshTransport(Path(settings["config"]))
        self._nobody = Nobody()
        self._reach = AgentClient.connect
        self._facts = (FactsRequest(["python3"]), HostFacts)
        self._transport: Any = None
        self._standing: list[Any] = []
        self._clients: list[Any] = []
        self._lines = 0
        self._readers: list[asyncio.Task[None]] = []

    async def fan(self) -> None:
        """Connect to all, run the command and let go of each: what pdsh does. Nothing is known from before."""
        await self._all(self._environments)

    async def one(self) -> None:
        """The same for one host, where configuration, keys and known hosts have been read."""
        self._transport = self._transport or self._make()
        connection = await self._connect(self._environments[0])
        await self._run(connection)
        await connection.close()

    async def one_anew(self) -> None:
        """And where nothing has been read yet."""
        await self._all(self._environments[:1])

    async def stand(self) -> None:
        """Connect to all and stay."""
        self._transport = self._make()
        gate = asyncio.Semaphore(AT_ONCE)

        async def enter(environment: Any) -> Any:
            async with gate:
                return await self._connect(environment)

        self._standing = await asyncio.gather(*map(enter, self._environments))

    async def warm(self) -> None:
        """Run the command on all connections that stand."""
        await asyncio.gather(*map(self._run, self._standing))

    async def hold(self) -> None:
        """Start the command on all that stand, and count the lines they send from now on."""

        async def read(connection: Any) -> None:
            stream = await connection.run(self._command)
            while data := await stream.read():
                self._lines += data.count(b"\n")

        self._readers = [asyncio.create_task(read(connection)) for connection in self._standing]

    async def greet(self) -> None:
        """Connect to all, reach the agent, and ask for the facts."""
        self._transport = self._make()
        gate = asyncio.Semaphore(AT_ONCE)

        async def greet(environment: Any) -> Any:
            async with gate:
                client = await self._reach(environment, self._transport, self._nobody, TIMEOUT_S)
                await client.call("facts", *self._facts, timeout_s=TIMEOUT_S)
                return client

        self._clients = await asyncio.gather(*map(greet, self._environments))

    async def ping(self) -> None:
        """Ask the agents that were greeted for a sign of life."""
        await asyncio.gather(*(client.call("ping", None, dict) for client in self._clients))

    async def leave(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients))
        if self._transport is not None:
            await self._transport.close()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def lines(self) -> int:
        return self._lines

    async def _all(self, environments: list[Any]) -> None:
        self._transport = self._make()

        async def visit(environment: Any) -> None:
            connection = await self._connect(environment)
            await self._run(connection)
            await connection.close()

        await asyncio.gather(*map(visit, environments))
        await self._transport.close()

    async def _connect(self, environment: Any) -> Any:
        return await self._transport.connect(environment, self._nobody, TIMEOUT_S)

    async def _run(self, connection: Any) -> None:
        stream = await connection.run(self._command)
        while await stream.read():
            pass
        status, _stderr = await stream.wait()
        if status != 0:
            raise SystemExit(f"{connection.environment.host}: exit status {status}")
        await stream.close()


class AsyncSsh:
    """A loop over asyncssh: keys and known hosts read once, the algorithms that cost least."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import asyncssh  # type: ignore[import-not-found, unused-ignore]  # in an environment that the bench makes

        self._hosts = settings["hosts"]
        self._connect = asyncssh.connect
        self._parse = lambda: {
            "port": settings["port"],
            "username": settings["user"],
            "client_keys": [asyncssh.read_private_key(settings["key"])],
            "known_hosts": asyncssh.read_known_hosts(settings["known_hosts"]),
            "config": None,
            "agent_path": None,
            "kex_algs": ["curve25519-sha256"],
            "encryption_algs": ["aes128-gcm@openssh.com"],
            "server_host_key_algs": ["ssh-ed25519"],
            "connect_timeout": TIMEOUT_S,
        }

    async def fan(self) -> None:
        options = self._parse()

        async def visit(host: str) -> None:
            async with self._connect(host, **options) as connection:
                done = await connection.run("true")
                if done.exit_status != 0:
                    raise SystemExit(f"{host}: exit status {done.exit_status}")

        await asyncio.gather(*map(visit, self._hosts))


class NaiveParamiko:
    """paramiko as its documentation shows it: an SSHClient a host, and a thread that reads from each channel."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import paramiko

        self._settings = settings
        self._paramiko = paramiko
        self._key = paramiko.Ed25519Key.from_private_key_file(settings["key"])
        self._clients: list[Any] = []
        self._counts = [0] * len(settings["hosts"])
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16_384)), hard))

    async def stand(self) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            self._clients = list(pool.map(self._open, self._settings["hosts"]))

    async def hold(self) -> None:
        for number, client in enumerate(self._clients):
            channel = client.get_transport().open_session()
            channel.exec_command(self._settings["command"])
            threading.Thread(target=self._read, args=(number, channel), daemon=True).start()

    async def leave(self) -> None:
        for client in self._clients:
            client.close()

    def lines(self) -> int:
        return sum(self._counts)

    def _open(self, host: str) -> Any:
        client = self._paramiko.SSHClient()
        client.set_missing_host_key_policy(self._paramiko.WarningPolicy())
        with contextlib.redirect_stderr(None):
            client.connect(
                host,
                self._settings["port"],
                self._settings["user"],
                pkey=self._key,
                allow_agent=False,
                look_for_keys=False,
                banner_timeout=TIMEOUT_S,
                auth_timeout=TIMEOUT_S,
            )
        return client

    def _read(self, number: int, channel: Any) -> None:
        while data := channel.recv(65536):
            self._counts[number] += data.count(b"\n")


KINDS: dict[str, type[Any]] = {"dttui": Dttui, "asyncssh": AsyncSsh, "paramiko": NaiveParamiko}


def cpu_s() -> float:
    """CPU time of this process and of the children it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def measured(work: Callable[[], Awaitable[None]]) -> dict[str, float]:
    cpu, wall = cpu_s(), time.perf_counter()
    await work()
    return {"cpu_s": cpu_s() - cpu, "wall_s": time.perf_counter() - wall}


async def watched(client: Any, seconds: float) -> dict[str, float]:
    """Measure a while of just holding on."""
    cpu, lines, began = cpu_s(), client.lines(), time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    status = process_status()
    return {
        "cores": (cpu_s() - cpu) / took,
        "lines_per_s": (client.lines() - lines) / took,
        "rss_mib": int(status["VmRSS"].split()[0]) / 1024,
        "threads": int(status["Threads"]),
    }


def process_status() -> dict[str, str]:
    return dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())


async def serve(client: Any) -> None:
    for word in sys.argv[3:]:
        await getattr(client, word)()
    if sys.argv[3:]:
        return
    print(json.dumps({}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        word, *arguments = line.split()
        if word == "watch":
            result = await watched(client, float(arguments[0]))
        else:
            result = await measured(getattr(client, word))
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    settings = json.loads(Path(sys.argv[2]).read_text())
    asyncio.run(serve(KINDS[sys.argv[1]](settings)))
