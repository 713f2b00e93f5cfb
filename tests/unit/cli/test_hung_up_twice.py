"""A terminal that goes tells so twice, by the kernel and by who watches it: the second may come after the last word."""

from __future__ import annotations

import subprocess
import sys

TWICE = """
import asyncio, os, signal, sys
from types import SimpleNamespace
from dttui.cli.following import Interrupts

async def follow():
    interrupts = Interrupts(None, SimpleNamespace(decline=lambda: None), stops=False)
    interrupts.install()
    os.kill(os.getpid(), signal.SIGHUP)
    while not interrupts.left:
        await asyncio.sleep(0.01)

asyncio.run(follow())
os.kill(os.getpid(), signal.SIGHUP)
sys.exit(101)
"""


def test_the_second_does_not_end_what_is_leaving() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 101, done.stderr
