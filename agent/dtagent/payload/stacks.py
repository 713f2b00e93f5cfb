"""Lets a rank be asked where it stands: by torch's own server on a Unix socket, by a signal, and by a tracer.

What goes wrong here is kept from the script: then the rank can be asked in one way less.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
from _signal import SIG_DFL, SIG_IGN, SIGRTMAX, getsignal, signal  # type: ignore[import-not-found]  # before the script
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIGNAL = SIGRTMAX - 3
"""Has a process write its stacks: hardly a script uses it, and from one that does we keep away."""
RECORDED = "2000"
"""Collectives that torch keeps in mind of each rank, where nothing else was asked for."""
LAST_ANSWER_S = 2.0
"""How long the end of a rank waits for who is being answered."""
_PR_SET_PTRACER = 0x59616D61
_ANY = -1
_WARNINGS = b"WorkerServer.cpp"
"""In the line that torch's server prints as it starts."""


def prepare(folder: str, rank: str, start_time: int) -> dict[str, Callable[[Any], None]]:
    """Make this process one that can be asked; return module → what is to be called with it once it was imported.

    Args:
        folder: of the attempt's ranks, for this user alone; made where it is not there.
        rank: whose files these are.
        start_time: of this process, in clock ticks since boot.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", RECORDED)
    record: dict[str, Any] = {"pid": os.getpid(), "start_time": start_time}
    path = os.path.join(folder, f"{rank}.json")
    with contextlib.suppress(Exception):
        _allow_tracer()
    with contextlib.suppress(Exception):
        _register(os.path.join(folder, f"{rank}.dump"))
        record["signal"] = int(SIGNAL)
    _write(path, record)

    def serve(_module: Any) -> None:
        if os.getpid() == record["pid"]:
            # Never let go of: its end would print lines, and wait for who is just being answered.
            _keep_for_ever(_server(folder, f"{rank}.sock", record["pid"]))

    def keep_away(module: Any) -> None:
        _yield_signal(module, path, record)

    return {"torch.distributed.distributed_c10d": serve, "signal": keep_away}


def _keep_for_ever(value: Any) -> None:
    import ctypes  # Which torch has imported.

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _allow_tracer() -> None:
    """Let another process of this user look at this one, where the kernel's Yama lets only ancestors."""
    if not os.path.exists("/proc/sys/kernel/yama/ptrace_scope"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_long(_ANY), 0, 0, 0)


def _register(dump: str) -> None:
    """Have stacks written to a file upon the signal."""
    if getsignal(SIGNAL) is not SIG_DFL:
        raise ValueError("the signal is taken")
    stream = os.open(dump, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    # What it has again once Python ends: one that comes just then must not end the rank.
    signal(SIGNAL, SIG_IGN)
    faulthandler.register(SIGNAL, file=stream, all_threads=True, chain=False)


def _yield_signal(module: Any, path: str, record: dict[str, Any]) -> None:
    """Have the script take the signal for itself where it wants it: then nobody is told of it any more."""
    plain = module.signal

    def taking(number: Any, handler: Any) -> Any:
        if int(number) == SIGNAL:
            record.pop("signal", None)
            try:
                _write(path, record)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(path)
            faulthandler.unregister(SIGNAL)
        return plain(number, handler)

    module.signal = taking


def _server(folder: str, name: str, pid: int) -> Any:
    """Start torch's server; it answers on a thread of its own, also while all of Python waits."""
    import atexit

    from torch._C._distributed_c10d import _WorkerServer

    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place)
        with _without_its_line():
            # By the descriptor, since paths of sockets have a limit of 107 bytes. The port says that it is no address.
            address = f"/proc/self/fd/{place}/{name}"
            server = _WorkerServer(address, -1)
            atexit.register(_end_answers, os.path.join(folder, name), address, pid)
            return server
    finally:
        os.close(place)


def _end_answers(path: str, address: str, pid: int) -> None:
    """Have nobody answered any more once Python ends: a thread of the server's would die at its lock, and the rank too.

    Not by the server's own end, which waits for that thread with the lock held.
    """
    import socket
    import time

    if os.getpid() != pid:
        return
    with contextlib.suppress(OSError):
        os.unlink(path)
    deadline = time.monotonic() + LAST_ANSWER_S
    while connections := _connections(address):
        if time.monotonic() > deadline:
            for number in connections:
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
            return
        time.sleep(0.005)  # Which lets it have the lock.


def _connections(address: str) -> list[int]:
    """Return the descriptors of those that are being answered, or wait for it."""
    import select
    import socket

    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as own:
            if own.family == socket.AF_UNIX and own.getsockname() == address:
                is_listener = own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if not is_listener or select.select([own], [], [], 0)[0]:
                    found.append(number)
    return found


class _without_its_line:
    """Keeps one line of torch's out of the script's stderr, and nothing else."""

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._error = os.dup(2)
        self._held = os.memfd_create("stderr", os.MFD_CLOEXEC)
        os.dup2(self._held, 2)

    def __exit__(self, *_error: object) -> None:
        os.dup2(self._error, 2)
        os.lseek(self._held, 0, os.SEEK_SET)
        lines = os.read(self._held, 1 << 16).splitlines(keepends=True)
        os.write(2, b"".join(line for line in lines if _WARNINGS not in line))
        os.close(self._held)
        os.close(self._error)


def _write(path: str, body: object) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w") as stream:
        json.dump(body, stream)
    os.rename(temporary, path)
