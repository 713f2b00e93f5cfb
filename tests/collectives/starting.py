"""Ranks as processes, each of which tells in lines of JSON what became of it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import wait_until

WITHIN_S = 100.0
"""How long a line is waited for: a rank imports torch first, on a machine that may be busy."""


class RankProcess:
    """One rank.

    Args:
        argv: what it is started by.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    @property
    def pid(self) -> int:
        """Of what was started."""
        return self._process.pid

    def told(self) -> dict[str, Any]:
        """Return its next line."""
        line = self._lines.get(timeout=WITHIN_S)
        assert line, self._process.stderr.read() if self._process.stderr is not None else ""
        found: dict[str, Any] = json.loads(line)
        return found

    def go_on(self) -> None:
        """Let a rank that waits for a line have one."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait_for_state(self, letter: str) -> None:
        """Wait until the kernel says that it is in a state: T where it is stopped."""
        stat = Path(f"/proc/{self.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == letter, f"state {letter}", WITHIN_S)

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.wait(WITHIN_S)

    def end(self) -> None:
        """Kill it, and what it has started."""
        if self._process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def started(commands: Sequence[Sequence[str]]) -> Iterator[list[RankProcess]]:
    """Start ranks; none is left."""
    ranks = [RankProcess(argv) for argv in commands]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.end()


def python(module: str, *arguments: object) -> list[str]:
    """Return what starts a module with this interpreter."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def check_mistakes(told: Sequence[str], world_size: int) -> None:
    """Look at what a rank has heard of what cannot be done, as `gloo_ranks.said` tries it."""
    shape, op, dtype, root, text, no_tensor, long, compression, timeout, other, gradient, *means = told
    last = f"rank {world_size - 1}"
    assert "bring another shape" in shape
    assert f"{last}: there is no operation 'avg'" in op
    assert f"{last}: torch has no sum of torch.uint16 on cpu" in dtype
    assert f"there is no rank {world_size} for a root: ranks are 0 to {world_size - 1}" in root
    assert f"{last}: a root is the number of a rank, and not '0'" in text
    assert f"{last}: a collective is of tensors, and this is a list" in no_tensor
    assert f"{last}: there is no operation '平均平均" in long
    assert f"{last}: a compression is one of" in compression
    assert f"{last}: a time-out is a number of seconds, and not '3'" in timeout
    assert "call another collective than" in other
    assert "barrier" in other
    assert "all_reduce" in other
    assert "bring a tensor with another requires_grad" in gradient
    assert len(means) == 2
    assert all("mean" in mean and "torch.int64" in mean for mean in means), means


def printed(
    commands: Sequence[Sequence[str]], timeout_s: float, variables: Mapping[str, str] | None = None
) -> list[str]:
    """Run ranks to their ends, all of which have to be good; return what each has printed.

    Args:
        commands: of each rank, after the interpreter.
        timeout_s: for each.
        variables: of all, beside those of this process.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **(variables or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    try:
        said = [process.communicate(timeout=timeout_s) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return [out for out, _error in said]
