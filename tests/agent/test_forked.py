"""What the supervisor makes of the end of a process that a stem forked, and of the stem's own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from dtagent.supervision import forked as forking
from dtagent.supervision.forked import ForkedProcess
from dtagent.supervision.forkserver_client import ForkServerClient
from dtagent.system import processes

Heard = list[tuple[int, dict[str, Any] | None]]


@pytest.fixture
def ends() -> Iterator[tuple[ForkServerClient, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ForkServerClient(ours), theirs


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_the_end_of_one_that_was_gone_before_anybody_could_look_is_heard(
    ends: tuple[ForkServerClient, socket.socket],
) -> None:
    stem, theirs = ends
    gone = subprocess.Popen(["true"])
    gone.wait()
    heard: Heard = []
    process = ForkedProcess(stem, gone.pid, pytest.fail, lambda *told: heard.append(told))
    assert process.id is None
    theirs.sendall(b'{"exit": 3, "usage": [1, 2, 2048]}\n{"usage": [1, 2, 2048]}\n')
    theirs.close()
    process.hear()
    assert heard == [(3, {"user_cpu_s": 1.0, "system_cpu_s": 2.0, "peak_memory_mib": 2})]
    assert process.awaited == []
    assert process.used_below.ru_utime == 1.0
    process.hear()
    process.terminate()
    assert len(heard) == 1


def test_the_process_of_a_stem_that_died_is_taken_for_killed_and_searched_for(
    ends: tuple[ForkServerClient, socket.socket], sleeper: subprocess.Popen[bytes]
) -> None:
    stem, theirs = ends
    heard: Heard = []
    warnings: list[str] = []
    process = ForkedProcess(stem, sleeper.pid, warnings.append, lambda *told: heard.append(told))
    theirs.sendall(b'{"note": "LD_PRELOAD is set"}\n')
    theirs.close()
    process.hear()
    assert heard == [(-signal.SIGKILL, None)]
    assert process.orphans == (processes.identify(sleeper.pid),)
    assert warnings == ["no warm start of some processes: LD_PRELOAD is set", "the process that had forked it died"]
    process.terminate()
    assert sleeper.wait(10) == -signal.SIGTERM


def test_a_stem_that_does_not_end_is_ended(
    ends: tuple[ForkServerClient, socket.socket], sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stem, theirs = ends
    stem.id = processes.identify(sleeper.pid)
    monkeypatch.setattr(forking, "END_S", 0.05)
    process = ForkedProcess(stem, os.getpid(), pytest.fail, lambda *_: None)
    theirs.sendall(b'{"exit": 0, "usage": [0, 0, 0]}\n')
    process.await_forkserver()
    assert sleeper.wait(10) == -signal.SIGKILL
