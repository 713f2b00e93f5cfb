"""`dtagent status` and `dtagent stop`: the daemon of this host, for the person who is logged in there. Starts none."""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path

from dtagent.attempts.adoption import is_locked
from dtagent.attempts.census import Census
from dtagent.attempts.preparation import key_of
from dtagent.errors import DtagentError
from dtagent.names import ERROR_LOG
from dtagent.terminal.sample_source import DaemonCalls, NoDaemonError

NOT_RUNNING = 3
"""Exit status of `status` without a daemon, as of other services."""
END_S = 10.0


def status(root: Path) -> int:
    """Print whether a daemon runs, and the attempts that do; return 0 where a daemon does."""
    daemon: DaemonCalls | None = None
    try:
        daemon = DaemonCalls(root)
        print(f"dtagent {daemon.hello.agent_version} serves {root}, pid {daemon.hello.pid}")
        daemon.close()
    except NoDaemonError as error:
        print(error)
    for files in Census(root).running():
        key = key_of(files)
        print(f"job {key.job_id}, attempt {key.attempt} runs")
    if daemon is None:
        return NOT_RUNNING
    print(f"its log: {root / ERROR_LOG}")
    return 0


def stop(root: Path) -> int:
    """End the daemon; jobs go on, and the next client starts another.

    Raises:
        DtagentError: it does not end.
    """
    try:
        daemon = DaemonCalls(root)
    except NoDaemonError as error:
        print(error)
        return 0
    pid = daemon.hello.pid
    with contextlib.closing(daemon):
        try:
            process = os.pidfd_open(pid)  # Before it is told to end: later the pid may be another's.
        except ProcessLookupError as error:
            raise DtagentError(f"the daemon, pid {pid}, is not among the processes that can be seen here") from error
        try:
            daemon.call("shutdown", {})
            has_ended = bool(select.select([process], [], [], END_S)[0])
        finally:
            os.close(process)
    if not has_ended:
        raise DtagentError(f"the daemon, pid {pid}, has not ended within {END_S:g} s; see {root / ERROR_LOG}")
    print(f"the daemon, pid {pid}, has ended; {'another one serves by now' if is_locked(root) else 'jobs go on'}")
    return 0
