"""An agent that is killed by SIGKILL at a step of its own: `python -I dying_agent.py VERB …`, as `python -m dtagent`.

`DYING_DAEMON_AT=N` is the Nth time that the daemon is about to change something under `jobs/`, which `DYING_LOG` tells
one a line; `DYING_SUPERVISOR_AT=N` is the middle of the Nth record that a supervisor writes into its journal.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

_CHANGES = {"os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "subprocess.Popen"}


def main() -> int:
    """Run the verb until the moment comes."""
    arguments = sys.argv[1:]
    if arguments[:3] == ["-I", "-m", "dtagent"]:  # As the daemon calls its interpreter.
        arguments = arguments[3:]
    if arguments[0] == "supervise":
        _die_while_writing(int(os.environ.get("DYING_SUPERVISOR_AT", "0")))
    else:
        _die_before_changing(int(os.environ.get("DYING_DAEMON_AT", "0")))
        from dtagent.attempts import adoption

        setattr(adoption, "own_python", lambda: os.environ["DYING_INTERPRETER"])  # noqa: B010 - mypy: not its own name
    from dtagent.cli import main as run

    return run(arguments)


def _die_before_changing(step: int) -> None:
    log = os.open(os.environ["DYING_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    count = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open":
            is_change = isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
        else:
            is_change = event in _CHANGES
        if not is_change:
            return
        subject = str(arguments[1] if event == "subprocess.Popen" else arguments[0])
        if "/jobs/" not in subject and "supervise" not in subject:
            return
        count += 1
        os.write(log, f"{event} {subject.rpartition('/')[2]}\n".encode())
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def _die_while_writing(record: int) -> None:
    from dtagent.supervision import journal

    count = 0
    write = os.write

    def write_half(descriptor: int, data: bytes) -> int:
        nonlocal count
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("journal.jsonl"):
            count += 1
            if count == record:
                write(descriptor, data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
        return write(descriptor, data)

    journal.os.write = write_half  # type: ignore[attr-defined]  # the module's own view of os, in this process alone


if __name__ == "__main__":
    sys.exit(main())
