"""Finding processes of this machine by their command line, and ending those of the embedded cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

END_DEADLINE_S = 30.0


def processes_like(*parts: str) -> list[int]:
    """Return the processes that have, for each part, an argument or else a working directory that begins with it."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):  # Not by a glob, which a process that ends may break.
        path = Path("/proc", pid)
        try:
            arguments = [*os.fsdecode((path / "cmdline").read_bytes()).split("\0"), os.readlink(path / "cwd")]
        except OSError:
            continue
        if all(any(argument.startswith(part) for argument in arguments) for part in parts):
            found.append(int(pid))
    return found


def controller_of(directory: Path) -> int:
    """Return the process that leads a job: its children have its command line until they are another program."""
    found = processes_like("dttui.engine", str(directory))
    (controller,) = (pid for pid in found if parent_of(pid) not in {None, *found})
    return controller


def parent_of(pid: int) -> int | None:
    """Return the process that started one, `None` if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return None


def open_files(pid: int) -> list[str]:
    """Return what the descriptors of a process lead to, but for those that it closes at this moment."""
    found = []
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    return found


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal: it may still act for a moment after the signal was sent."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


@pytest.fixture(scope="module")
def demo_root() -> Iterator[Path]:
    """A root of the embedded cluster for the tests of a module, whose daemons end after the last of them."""
    root = tempfile.mkdtemp(prefix="dttui-")  # Short, as sockets are made below it.
    yield Path(root)
    end_daemons(root)
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(autouse=True)
def shared_agents(isolated_environment: None, demo_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the embedded cluster's daemons serve one test after the other: their start is most of a small job's time.

    For every test of a module that imports it, whose jobs have to be over when a test is; with `demo_root`.
    """
    monkeypatch.setenv("DTTUI_DEMO_ROOT", str(demo_root))


@pytest.fixture(autouse=True)
def ended_agents(isolated_environment: None) -> Iterator[None]:
    """End the embedded cluster's daemons after the test; on their own they would wait some minutes.

    For every test of a module that imports it.
    """
    root = os.environ["DTTUI_DEMO_ROOT"]
    yield
    end_daemons(root)


def end_daemons(root: str) -> None:
    """End the daemons of an embedded cluster."""
    for pid in processes_like("daemon", root):
        with contextlib.suppress(ProcessLookupError):  # What one has just forked looks like it until its exec.
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not processes_like("daemon", root), "the daemons to end", END_DEADLINE_S)
