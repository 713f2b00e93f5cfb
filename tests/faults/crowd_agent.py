"""Agents of a made-up job, many in one process, over sockets: `python -I crowd_agent.py SECONDS LIE:RANK:FD…`.

Each prints a line of log and takes a sample a second, and ends after so long. Where LIE is not `honest`, it does what a
bad host may do besides. Standard library only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import socket
import sys
import time
from typing import Any

MAGIC = b"dtagent-bridge 1\n"
BIG = 1_000_000
Frame = dict[str, Any]


class Agent:
    """One agent, for each connection that is made to it: what it tells goes on."""

    def __init__(self, lie: str, rank: int, began: float, seconds: float) -> None:
        self.lie = lie
        self._rank = rank
        self._began = began
        self._end = began + seconds
        self._seconds = seconds
        self._count = itertools.count()
        self._dripping = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what is asked, each call beside the others."""
        writer.write(MAGIC)
        tasks = [asyncio.create_task(self._flood(writer))]
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                tasks.append(asyncio.create_task(self._answer(writer, json.loads(line))))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, frame: Frame) -> None:
        result = await self._result(frame["method"], frame.get("params", {}))
        head = b'{"jsonrpc":"2.0","id":%d,"result":' % frame["id"]
        body = json.dumps(result).encode()
        with contextlib.suppress(ConnectionError):
            if self._lies("values of 4 MiB") and frame["method"] == "follow":
                body = body[:-1] + b',"x":[' + b"[]," * 1_350_000 + b"0]}"
            elif self._lies("texts of 4 MiB") and frame["method"] == "follow":
                body = body[:-1] + b',"x":"' + b"\\u00e9" * 660_000 + b'"}'
            elif self._lies("deep nesting") and frame["method"] == "follow":
                body = body[:-1] + b',"x":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
            if self._lies("slow drip"):
                async with self._dripping:
                    for byte in head + body + b"}\n":
                        writer.write(bytes([byte]))
                        await writer.drain()
                        await asyncio.sleep(0.0002)
            else:
                writer.write(head + body + b"}\n")
            if self._lies("unknown ids of 4 MiB"):
                for _ in range(4):
                    writer.write(b'{"jsonrpc":"2.0","id":%d,"result":"%s"}\n' % (10**9, b"x" * ((4 << 20) - 100)))
                    await writer.drain()
            await writer.drain()

    async def _flood(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await asyncio.sleep(0.05)
                if self._lies("unknown ids"):
                    writer.write(b'{"jsonrpc":"2.0","id":999999,"result":{}}\n' * 2000)
                elif self._lies("a line without end"):
                    writer.write(b"x" * 500_000)
                await writer.drain()

    def _lies(self, lie: str) -> bool:
        """Whether it lies by now: not before the job has begun."""
        return self.lie == lie and time.time() > self._began + 1.0

    async def _result(self, method: str, params: Frame) -> Any:
        if method == "hello":
            return {
                "version": 1, "agent_version": "0", "hostname": "h", "pid": 1, "boot_id": "b", "time": time.time(),
            }  # fmt: skip
        if method == "telemetry":
            return await self._telemetry(params)
        if method == "follow":
            return await self._follow(params)
        if method in ("status", "stop"):
            return self._status(params)
        return {}

    def _status(self, params: Frame) -> Frame:
        is_over = time.time() > self._end
        number = next(self._count)
        status: Frame = {
            "key": params.get("key", params),
            "node_rank": self._rank,
            "state": "ended" if is_over else "running",
            "started_at": self._began,
            "ranks_started": [self._rank],
            "exits": [{"name": str(self._rank), "ended_at": self._end, "exit_code": 0}] if is_over else [],
        }
        if not is_over and self._lies("changing reasons"):
            status["reason"] = f"{number} " + "reason " * (BIG // 7)
            status["warnings"] = [f"{number} warned"]
        if not is_over and self._lies("flapping states"):
            status["state"] = ("running", "stopping", "prepared")[number % 3]
            status["reason"] = f"flap {number}"
        return status

    async def _follow(self, params: Frame) -> Frame:
        lies = self.lie in ("changing reasons", "flapping states", "endless log") and self._lies(self.lie)
        had = params.get("offsets", {}).get(f"{self._rank}.out", 0)
        now = time.time()
        lines = self._lines(now)
        while not lies and len(lines) <= had and time.time() < self._end and params["wait_s"] > time.time() - now:
            await asyncio.sleep(0.1)
            lines = self._lines(time.time())
        status = self._status(params)  # Before the lines: of what has ended there are all.
        data = self._lines(time.time())[had:]
        if time.time() < self._end and self._lies("endless log"):
            data = b"x" * params["max_bytes"]
        chunk = {"stream": f"{self._rank}.out", "offset": had, "data": base64.b64encode(data).decode(), "inode": 1}
        return {
            "status": status,
            "stamp": f"{next(self._count)}" if lies else status["state"],
            "chunks": [chunk] if data else [],
            "more": lies and status["state"] != "ended",
        }

    def _lines(self, now: float) -> bytes:
        """Return what the rank has printed by then: a line a second, the last of them at its end."""
        count = int(self._seconds if now >= self._end else now - self._began)
        return b"".join(b"%08d step\n" % number for number in range(count))

    async def _telemetry(self, params: Frame) -> Frame:
        if self._lies("telemetry flood"):
            samples = [self._sample(next(self._count) + 10**6) for _ in range(3000)]
            return {"samples": samples}
        await asyncio.sleep(1.0)
        return {"samples": [self._sample(int(time.time()))]}

    def _sample(self, seq: int) -> Frame:
        return {"seq": seq, "time": time.time(), "cpu_percent": 3.0, "memory_used_mib": 1, "memory_total_mib": 2}


async def _serve(seconds: float, places: list[str]) -> None:
    began = time.time()
    farm = []
    for place in places:
        lie, rank, descriptor = place.split(":")
        listener = socket.socket(fileno=int(descriptor))
        agent = Agent(lie, int(rank), began, seconds)
        farm.append(await asyncio.start_unix_server(agent.serve, sock=listener, limit=1 << 24))
    await asyncio.gather(*(server.serve_forever() for server in farm))


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]), sys.argv[2:]))
