"""The ways to ask a process of Python's for its stacks: py-spy, torch's server in it, a signal that it is ready for."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

from dtagent.locations import own_python
from dtagent.protocol import sentences
from dtagent.protocol.said import Said
from dtagent.protocol.stacks import Thread
from dtagent.stacks import dumps
from dtagent.system import processes, untrusted_files

PY_SPY_S = 8.0
ANSWER_S = 4.0
"""For what torch's server says, which is ready within milliseconds."""
DUMP_S = 2.0
SETTLED_S = 0.1
"""A dump that has not grown for so long is at its end."""
MOST_ANSWER_BYTES = 8 << 20
MOST_DUMP_BYTES = 256 << 10
MOST_DETAIL = 180

_STACKS = threading.Lock()
"""One at a time: a thread that just begins to answer is one of those that another walks through, and Python crashes."""


class NoAnswerError(Exception):
    """It did not work.

    Args:
        said: why, which may have the words of what was tried.
    """

    def __init__(self, said: Said) -> None:
        super().__init__(said)
        self.said = said


def py_spies(pid: int, tools: Path) -> list[str]:
    """Return the py-spy programs that may be asked about a process: the agent's, that of its Python and the host's."""
    folders = [str(tools), os.path.dirname(own_python())]
    try:
        folders.append(os.path.dirname(os.readlink(f"/proc/{pid}/exe")))
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        folders += [os.path.dirname(os.fsdecode(command))] if command.startswith(b"/") else []
    except OSError:
        pass
    found = [shutil.which("py-spy", path=folder) for folder in folders if folder] + [shutil.which("py-spy")]
    return list(dict.fromkeys(path for path in found if path))


def ask_py_spy(program: str, pid: int, *, may_pause: bool) -> list[Thread]:
    """Have py-spy read a process from outside: without a pause first, which also works where it is stopped.

    Raises:
        NoAnswerError: it could not.
    """
    reason = ""
    for options in (["--nonblocking"], []) if may_pause else (["--nonblocking"],):
        try:
            done = subprocess.run(
                [program, "dump", "--json", *options, "-p", str(pid)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PY_SPY_S,
                cwd="/",
            )
            threads = dumps.of_pyspy(done.stdout[:MOST_ANSWER_BYTES].decode(errors="replace"), pid)
            if any(thread.frames for thread in threads):
                return threads
            reason = _last_line(done.stderr)
        except ValueError:  # Nothing on stdout: what is wrong it says on the other.
            reason = _last_line(done.stderr)
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = type(error).__name__
    raise NoAnswerError(sentences.STACK_TOOL_FAILED(tool="py-spy", reason=reason))


def _last_line(text: bytes) -> str:
    lines = [line.strip() for line in text[:MOST_DUMP_BYTES].decode(errors="replace").split("\n") if line.strip()]
    return next((line for line in lines if line.startswith("Error")), lines[-1] if lines else "")[:MOST_DETAIL]


def ask_server_for_stacks(path: Path) -> str:
    """Return what torch's server in a rank says of its threads.

    Raises:
        NoAnswerError: as of `ask_server`.
    """
    with _STACKS:
        return ask_server(path, "dump_traceback")


def ask_server(path: Path, handler: str) -> str:
    """Return what a handler of torch's server in a rank says; a byte now and then does not keep it waiting.

    Raises:
        NoAnswerError: there is no such server, or it does not answer in time or at too much length.
    """
    request = f"POST /handler/{handler} HTTP/1.1\r\nHost: rank\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    deadline = time.monotonic() + ANSWER_S
    answer = bytearray()
    try:
        with _connected(path) as connection:
            connection.sendall(request.encode())
            while (left_s := deadline - time.monotonic()) > 0 and len(answer) <= MOST_ANSWER_BYTES:
                connection.settimeout(left_s)
                part = connection.recv(1 << 16)
                if not part:
                    break
                answer += part
            else:
                raise NoAnswerError(sentences.STACK_WITHOUT_END(tool="torch"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise NoAnswerError(sentences.STACK_TOOL_FAILED(tool="torch", reason=reason)) from error
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        said = status[0][:20].decode(errors="replace") if status else "-"
        raise NoAnswerError(sentences.STACK_STATUS(tool="torch", status=said))
    return body.decode(errors="replace")


def _connected(path: Path) -> socket.socket:
    """Connect through the directory: paths of sockets have a limit of 107 bytes. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(ANSWER_S)
    place = -1
    try:
        place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        connection.connect(f"/proc/self/fd/{place}/{path.name}")
    except OSError:
        connection.close()
        raise
    finally:
        if place >= 0:
            os.close(place)
    return connection


def ask_by_signal(process: processes.ProcessId, number: int, dump: Path) -> str:
    """Return what a process writes upon a signal, which it catches: another would end it.

    Raises:
        NoAnswerError: it does not catch it, or writes nothing in time.
    """
    if not _catches(process.pid, number):
        raise NoAnswerError(sentences.STACK_SIGNAL_NOT_CAUGHT(number=number))
    try:
        with untrusted_files.opened(dump) as stream:
            before = stream.seek(0, os.SEEK_END)
            processes.send(process, number)
            deadline, grown_at, size = time.monotonic() + DUMP_S, time.monotonic(), before
            while time.monotonic() < deadline:
                time.sleep(0.01)
                now = os.fstat(stream.fileno()).st_size
                if now != size:
                    size, grown_at = now, time.monotonic()
                elif size > before and time.monotonic() - grown_at > SETTLED_S:
                    break
            stream.seek(before)
            text = stream.read(MOST_DUMP_BYTES).decode(errors="replace")
    except (OSError, ValueError) as error:
        raise NoAnswerError(sentences.STACK_SIGNAL_FAILED(number=number, reason=type(error).__name__)) from error
    if not text:
        raise NoAnswerError(sentences.STACK_SIGNAL_UNANSWERED(number=number, seconds=f"{DUMP_S:g}"))
    return text


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, and a thread that does not block it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().split("\n")
    except OSError:
        return False
    masks = {name: int(value, 16) for name, _, value in (line.partition(":\t") for line in lines) if name[:3] == "Sig"
             and name != "SigQ"}  # fmt: skip
    bit = 1 << (number - 1)
    return bool(masks.get("SigCgt", 0) & bit) and not masks.get("SigBlk", 0) & bit
