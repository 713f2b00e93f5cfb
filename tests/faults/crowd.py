"""A job on many made-up agents over real sockets, one of which may be bad: what it costs the others, and us."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from dtagent.protocol.attempt_key import AttemptKey

from dttui import jobs
from dttui.engine.attempt import LEAST_LOG_SHARE
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_record import Shared
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.watch import GangWatch
from dttui.errors import BrokenProtocolError, HostError
from dttui.inventory.models import Environment
from dttui.jobs.event_log import EventLog
from dttui.planning.models import Bindings, BoundPlan, Plan
from dttui.transport.base import Connection, Nobody, Prompter, RemoteCommand
from tests.unit.jobs.test_follow import plan_for

AGENT = Path(__file__).with_name("crowd_agent.py")
HONEST = "honest"
LIES = (
    "unknown ids",
    "unknown ids of 4 MiB",
    "texts of 4 MiB",
    "values of 4 MiB",
    "deep nesting",
    "changing reasons",
    "flapping states",
    "a line without end",
    "endless log",
    "slow drip",
    "telemetry flood",
)
"""What `crowd_agent.py` does besides."""
TICK_S = 0.01


@dataclass(frozen=True)
class Cost:
    """What a job took."""

    others_s: float
    """Until all honest nodes had ended, with all of their logs here."""
    whole_s: float
    """Until nothing was looked at any more."""
    cpu_s: float
    """Of this process, in that time."""
    lag_s: float
    """How late a key would have been answered: the hundredth of the ticks that came latest, at least so late."""
    event_bytes: int
    """Of events.jsonl."""
    bad_links: int
    """How often the bad host was connected to."""
    longest_text_bytes: int
    """Of the messages and data of all events."""
    ended_by: str | None
    """Why the first link to the bad host that was not let go of was ended, where it said what no agent may."""


class _Stream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        with contextlib.suppress(ConnectionError):
            return await self._reader.read(64 * 1024)
        return b""

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def write_eof(self) -> None:
        self._writer.write_eof()

    async def wait(self) -> tuple[int | None, bytes]:
        return 0, b""

    async def close(self) -> None:
        self._writer.close()


class _Link:
    address = "127.0.0.1"

    def __init__(self, environment: Environment, path: Path) -> None:
        self.environment = environment
        self._path = path

    async def run(self, _command: RemoteCommand) -> _Stream:
        return _Stream(*await asyncio.open_unix_connection(self._path, limit=1 << 17))

    async def close(self) -> None:
        pass


class _Transport:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.connections: dict[str, int] = {}

    async def connect(self, environment: Environment, _prompter: Prompter, _timeout_s: float) -> Connection:
        self.connections[environment.name] = self.connections.get(environment.name, 0) + 1
        return _Link(environment, self._folder / environment.name)

    async def close(self) -> None:
        pass


async def cost_of(lie: str, folder: Path, count: int = 50, seconds: float = 8.0, *, awaits_break: bool = False) -> Cost:
    """Run a job of so many nodes and seconds, of which the last lies; return what it took.

    Args:
        lie: one of `LIES`, or `HONEST`.
        folder: for sockets, empty and with a short path.
        count: nodes.
        seconds: how long the ranks run.
        awaits_break: whether the liar's link is waited for to be ended for what it says: on a busy machine it may begin
            later than the others end.
    """
    names = [f"h{index}" for index in range(count)]
    plan = plan_for(*names)
    directory = jobs.create("crowd")
    transport, changed = _Transport(folder), asyncio.Event()
    nodes = [
        NodeRun(
            Environment(name=planned.name, host=planned.name),
            planned,
            AttemptKey(directory.job_id, 0),
            directory,
            transport,
            Nobody(),
            changed.set,
            Shared(world_size=count, log_share=max(LEAST_LOG_SHARE, 0.5 / count)),
        )
        for planned in plan.nodes
    ]
    broken: list[str] = []
    _listen_for_breaks(nodes[-1], broken)
    log = EventLog(directory.events)
    watch = GangWatch(directory, AttemptLog(log, 0), nodes, changed, ())
    async with _agents(folder, names, lie, seconds):
        ticks: list[float] = []
        ticking = asyncio.create_task(_tick(ticks))
        began, cpu = time.monotonic(), time.process_time()
        watching = asyncio.create_task(watch.run(_bound(plan, directory.job_id)))
        try:
            while not all(_has_ended_with_its_logs(node, directory, seconds) for node in nodes[:-1]):
                await asyncio.sleep(0.05)
                assert time.monotonic() - began < 10 * seconds
            others_s, cpu_s = time.monotonic() - began, time.process_time() - cpu
            while awaits_break and not broken:
                await asyncio.sleep(0.05)
                assert time.monotonic() - began < 20 * seconds
            whole_s = time.monotonic() - began
        finally:
            for task in (ticking, watching):
                task.cancel()
            await asyncio.gather(ticking, watching, return_exceptions=True)
            await asyncio.gather(*(node.close() for node in nodes))
    lags = sorted(ticks)
    texts = [text for event in directory.read_events() for text in (event.message, *_texts(event.data))]
    return Cost(
        others_s,
        whole_s,
        cpu_s,
        lags[len(lags) * 99 // 100],
        directory.events.stat().st_size,
        transport.connections.get(names[-1], 0),
        max(len(text.encode()) for text in texts),
        next(iter(broken), None),
    )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(item)


def _listen_for_breaks(node: NodeRun, broken: list[str]) -> None:
    lose = node.lose_link

    async def listen(error: HostError) -> None:
        if isinstance(error, BrokenProtocolError):
            broken.append(error.message)
        await lose(error)

    node.lose_link = listen  # type: ignore[method-assign]  # it hears why links end


def _bound(plan: Plan, job_id: str) -> BoundPlan:
    return BoundPlan(plan=plan, bindings=Bindings(job_id=job_id, attempt=0, master_port=1, nodes={}))


def _has_ended_with_its_logs(node: NodeRun, directory: jobs.JobDirectory, seconds: float) -> bool:
    path = directory.logs(0, node.name) / f"{node.planned.ranks[0]}.out"
    return node.is_over and path.exists() and path.stat().st_size >= 14 * int(seconds)


async def _tick(lags: list[float]) -> None:
    while True:
        due = time.monotonic() + TICK_S
        await asyncio.sleep(TICK_S)
        lags.append(time.monotonic() - due)


@contextlib.asynccontextmanager
async def _agents(folder: Path, names: list[str], lie: str, seconds: float) -> AsyncIterator[None]:
    """Run the agents: the last in a process of its own, so that it delays no other by what it does."""
    places, listeners = [], []
    for rank, name in enumerate(names):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(folder / name))
        listener.listen(64)
        listeners.append(listener)
        places.append(f"{lie if name == names[-1] else HONEST}:{rank}:{listener.fileno()}")
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(AGENT),
            str(seconds),
            *part,
            pass_fds=[item.fileno() for item in listeners],
        )
        for part in (places[:-1], places[-1:])
    ]
    for listener in listeners:
        listener.close()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            await process.wait()
