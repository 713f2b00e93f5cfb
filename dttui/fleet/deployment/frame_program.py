"""What all programs have that dttui pushes to a host: the request is read, the answer told, other programs are run.

The input is one line of JSON, the request, and what the program itself takes after it. The output is lines of JSON
behind `MARK`: `{"step": …}` on the way, then `{"result": …}` or `{"refusal": code, …}`. Here, as in whatever is pushed,
the standard library of Python 3.10 has to do.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dtagent.protocol.places import find_root, new_root, usual_root

from dttui.fleet.deployment.root_program import Refusal, by_name

Action = Callable[[Path, dict[str, Any], BinaryIO], dict[str, Any]]
"""What is done for a request with the agent's root, by its name; more of the input may belong to it."""
MARK = b"dttui-deploy: "
LISTENS_EVERY_S = 0.5
"""How often it is looked whether anybody is there, while another program runs."""


def main(source: io.FileIO, actions: Mapping[str, Action]) -> int:
    """Read the request, do what it names, and say how it ended; return the exit status."""
    os.umask(0o077)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stop)
    # A login shell may have printed something without a line end.
    os.write(1, b"\n")
    try:
        say(**answer(io.BufferedReader(source), actions))
    except BrokenPipeError:
        return 1
    return 0


def answer(stream: BinaryIO, actions: Mapping[str, Action]) -> dict[str, Any]:
    """Do what a request asks for; return the result, or a refusal with its code."""
    root = Path(usual_root())
    try:
        request = json.loads(stream.readline())
        root = Path(request["root"] or find_root() or new_root())
        return {"result": actions[request["action"]](root, request, stream)}
    except Refusal as refusal:
        details = {name: by_name(item) if isinstance(item, str) else item for name, item in refusal.details.items()}
        return {"refusal": refusal.code, **details}
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return {"refusal": "disk-full", "path": str(root)}
        if error.errno == errno.EROFS:
            return {"refusal": "root-read-only", "path": str(root)}
        path = by_name(str(error.filename))
        reason = error.strerror or str(error)
        return {"refusal": "system", "path": path if path.startswith("/") else str(root), "reason": reason}


def _stop(number: int, _frame: object) -> None:
    # An exception, so that what is half made is removed on the way out, which a second signal must not interrupt.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def say(**message: object) -> None:
    """Write one line of the answer."""
    line = MARK + json.dumps(message).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


def receive(directory: Path, files: list[dict[str, Any]], stream: BinaryIO) -> Path:
    """Make a directory with the files that come by `stream`, in their order. Raises Refusal where one has changed."""
    directory.mkdir(parents=True)
    for file in files:
        content = stream.read(file["size"])
        if hashlib.sha256(content).hexdigest() != file["sha256"]:
            raise Refusal("corrupt", name=file["name"], received=len(content), size=file["size"])
        (directory / file["name"]).write_bytes(content)
    return directory


def run_tool(code: str, argv: list[str], timeout_s: float, **extra: str) -> str:
    """Run a program without what the user's environment says to Python and pip; return what it printed.

    Raises:
        Refusal: it fails, or takes longer than `timeout_s`; with `code`.
        BrokenPipeError: nobody listens any more, however long it would still take.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "VIRTUAL_ENV"))
    }
    environment.update(extra, PIP_CONFIG_FILE=os.devnull)
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            close_fds=False,  # The root, through which it is named, is the one that is not closed by itself.
        )
    except OSError as error:
        raise Refusal(code, output=str(error)) from error
    with process:
        try:
            printed = _printed(process, code, timeout_s)
        except BaseException:
            process.kill()
            raise
    output = printed.decode(errors="replace")
    if process.returncode:
        if os.strerror(errno.ENOSPC) in output or os.strerror(errno.EDQUOT) in output:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise Refusal(code, output=output[-4000:] or f"exit status {process.returncode}")
    return output


def _printed(process: subprocess.Popen[bytes], code: str, timeout_s: float) -> bytes:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return process.communicate(timeout=LISTENS_EVERY_S)[0]
        except subprocess.TimeoutExpired as error:
            if not _is_heard():
                raise BrokenPipeError from error
            if time.monotonic() > deadline:
                raise Refusal(code, output=f"not done after {timeout_s:g} s") from error


def _is_heard() -> bool:
    """Whether anybody is still there to read what is said."""
    poll = select.poll()
    poll.register(1, 0)
    return not any(events & (select.POLLERR | select.POLLHUP) for _file, events in poll.poll(0))
