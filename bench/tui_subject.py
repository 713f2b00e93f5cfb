"""The screen that `bench/tui.py` measures: the dttui of PYTHONPATH, on hosts behind one socket, or on a job.

`python bench/tui_subject.py agents SOCKET HOSTS GPUS OWN` or `job ID`; with an empty SOCKET no host answers. What the
way to the hosts takes itself, in nanoseconds of CPU, is added up in the file OWN.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from dttui import jobs
from dttui.inventory.models import CpuResources, Environment, GpuResources, Inventory, Resources
from dttui.transport.base import Prompter, RemoteCommand
from dttui.tui.app import TuiOptions, run_app

HEAD = struct.Struct(">II")
"""Before each frame: of which host, and its size."""
COUNT = struct.Struct("Q")


class Counter:
    """A number that another process can read, at the start of a file."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as stream:
            self._bytes = mmap.mmap(stream.fileno(), COUNT.size)
        self._number = 0

    def add(self, more: int) -> None:
        """Count on."""
        self._number += more
        COUNT.pack_into(self._bytes, 0, self._number)


class OneSocket(asyncio.Protocol):
    """The way to all hosts: what comes is handed to whose it is, and what goes out in one turn goes out at once."""

    def __init__(self, path: str, own: Path) -> None:
        self._path = path
        self._own_ns = Counter(own)
        self._in = bytearray()
        self._out: list[bytes] = []
        self._streams: dict[int, OneStream] = {}
        self._connecting = asyncio.Lock()
        self._transport: asyncio.Transport | None = None

    async def connect(self, environment: Environment, prompter: Prompter, timeout_s: float) -> OneHost:
        """Return a connection to a host, which is there at once; where there is no socket, never."""
        if not self._path:
            await asyncio.Event().wait()
        async with self._connecting:
            if self._transport is None:
                loop = asyncio.get_running_loop()
                self._transport, _ = await loop.create_unix_connection(lambda: self, self._path)
        return OneHost(self, environment)

    def open(self, host: int) -> OneStream:
        """Return a stream to a host's agent."""
        self._streams[host] = OneStream(self, host)
        self.send(host, b"")
        return self._streams[host]

    def send(self, host: int, data: bytes) -> None:
        """Send with the rest of this turn of the loop."""
        began = time.thread_time_ns()
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out += (HEAD.pack(host, len(data)), data)
        self._spend(began)

    def data_received(self, data: bytes) -> None:
        """Hand out what came."""
        began = time.thread_time_ns()
        self._in += data
        start, end = 0, len(self._in)
        while end - start >= HEAD.size:
            host, size = HEAD.unpack_from(self._in, start)
            if end - start < HEAD.size + size:
                break
            start += HEAD.size
            self._streams[host].take(bytes(self._in[start : start + size]))
            start += size
        del self._in[:start]
        self._spend(began)

    async def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        began = time.thread_time_ns()
        assert self._transport is not None
        self._transport.write(b"".join(self._out))
        self._out.clear()
        self._spend(began)

    def _spend(self, began: int) -> None:
        self._own_ns.add(time.thread_time_ns() - began)


class OneHost:
    """A connection."""

    def __init__(self, way: OneSocket, environment: Environment) -> None:
        self._way = way
        self.environment = environment
        self.address = "192.0.2.1"

    async def run(self, command: RemoteCommand) -> OneStream:
        """Reach the agent."""
        return self._way.open(int(self.environment.name[1:]))

    async def close(self) -> None:
        """Nothing is to be closed."""


class OneStream:
    """Bytes from and to one agent."""

    def __init__(self, way: OneSocket, host: int) -> None:
        self._way, self._host = way, host
        self._came: list[bytes] = []
        self._reader: asyncio.Future[None] | None = None

    def take(self, data: bytes) -> None:
        """Keep what came, and wake who waits for it."""
        self._came.append(data)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def read(self) -> bytes:
        """Return what came."""
        if not self._came:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        data = self._came[0] if len(self._came) == 1 else b"".join(self._came)
        self._came.clear()
        return data

    async def write(self, data: bytes) -> None:
        """Send."""
        self._way.send(self._host, data)

    async def write_eof(self) -> None:
        """Nothing is to be ended."""

    async def wait(self) -> tuple[int | None, bytes]:
        """It does not end."""
        await asyncio.Event().wait()
        return None, b""

    async def close(self) -> None:
        """Nothing is to be closed."""


def name_of(index: int) -> str:
    """Return the name of a host: the only letter `n` before a digit that a row has."""
    return f"n{index:04}"


def environment(index: int, gpus: int) -> Environment:
    """Return a host as an inventory has it."""
    resources = Resources(gpu=GpuResources(count=gpus, type="A100", memory=80 * 10**9), cpu=CpuResources(cores=64))
    host, zone = f"{name_of(index)}.example.org", f"zone-{index % 4}"
    return Environment(name=name_of(index), host=host, zone=zone, kind="custom", image="pytorch", resources=resources)


def main() -> None:
    if sys.argv[1] == "job":
        run_app(TuiOptions(Inventory(), None, attach=jobs.find(sys.argv[2])))
        return
    path, hosts, gpus, own = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5])
    inventory = Inventory(environments=tuple(environment(index, gpus) for index in range(hosts)))
    run_app(TuiOptions(inventory, None, transport=OneSocket(path, own)))


if __name__ == "__main__":
    main()
