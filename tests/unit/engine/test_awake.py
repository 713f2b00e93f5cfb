"""A loop whose clock stands still while its process is stopped: nothing times out that nobody could hear."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

from dttui.engine import awake
from dttui.planning.recovery import LEAST_HEARTBEAT_S
from tests.processes import is_stopped
from tests.waiting import wait_until

PROGRAM = """
import asyncio, os, signal, sys
from dttui.engine import awake
awake.MOST_GAP_S = awake.LEAST_AWAY_S = awake.TICK_S = 0.3

async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    loop.call_soon(os.kill, os.getpid(), signal.SIGSTOP)  # Once it waits.
    line = await asyncio.wait_for(reader.readline(), 1.0)
    print(line.decode().strip(), awake.has_just_woken(), flush=True)

awake.run_awake(main())
"""


def test_an_answer_that_came_while_the_process_was_stopped_is_no_timeout() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        wait_until(lambda: is_stopped(process.pid), "it to stop itself", 60.0)
        slept_until = time.monotonic() + 1.5  # Longer than it waits for: this is what is tested.
        wait_until(lambda: time.monotonic() > slept_until, "the time to pass")
        process.stdin.write("answer\n")
        process.stdin.flush()
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.readline() == "answer True\n"
        assert process.wait(60) == 0


def test_no_process_stands_still_unseen_for_as_long_as_the_shortest_heartbeat() -> None:
    assert awake.MOST_GAP_S + awake.TICK_S <= LEAST_HEARTBEAT_S


def test_a_deadline_passes_as_ever_while_the_process_runs() -> None:
    async def main() -> bool:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.05)
        except asyncio.TimeoutError:
            return awake.has_just_woken()
        return True

    assert awake.run_awake(main()) is False
