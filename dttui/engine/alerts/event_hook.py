"""`monitoring.on_event`: runs a program of the person's on the login node for each event, which it reads as JSON.

Whatever that program does, the job does not notice: it has a deadline, few run at a time, and its failure is told once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from dtagent.protocol.events import Event, EventKind
from dtagent.protocol.rpc import to_wire

from dttui.i18n import Message, msg
from dttui.redaction import redact
from dttui.transport.deadline import within
from dttui.variables import for_a_process

TIMEOUT_S = 30.0
END_S = 1.0
"""How long it takes to end what was not done in time."""
CONCURRENCY = 4
MAX_WAITING = 256
"""Events that wait for their turn; of more, the newest are left out."""
MAX_STDERR_BYTES = 4096
VARIABLES = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER", "XDG_RUNTIME_DIR")
"""What the program gets of the controller's environment, and `LC_*`: nothing that may hold a secret."""


class EventHook:
    """Runs the program for events as they happen, and never for those of before.

    Args:
        argv: program and arguments; a program with a `/` in its name is relative to `directory`.
        kinds: the events it is run for.
        directory: where it runs, that of the job file.
        job: what each event is accompanied by: `job_id`, `job_name`.
        add: writes an event, as EventLog.add does.
        secrets: values that it must not see.
        timeout_s: for each run.
    """

    def __init__(
        self,
        argv: Sequence[str],
        kinds: Collection[str],
        directory: Path,
        job: dict[str, str],
        add: Callable[..., object],
        secrets: Iterable[str] = (),
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._argv = list(argv)
        self._kinds = frozenset(kinds)
        self._directory = directory
        self._job = job
        self._add = add
        self._secrets = tuple(secrets)
        self._timeout_s = timeout_s
        self._waiting: deque[bytes] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._has_failed = False

    def see_event(self, event: Event) -> None:
        """Run the program for an event that has just happened, if it is for that kind. Returns at once."""
        if event.kind.value not in self._kinds:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._fail(msg("{count} events wait for it; later ones are left out", count=MAX_WAITING))
            return
        body = self._clean({**self._job, **to_wire(event)})
        body.pop("told", None)
        self._waiting.append(json.dumps(body, ensure_ascii=False).encode(errors="replace") + b"\n")
        if len(self._workers) < CONCURRENCY:
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def close(self) -> None:
        """Wait for what still runs, for as long as one run may take, and end the rest."""
        if self._workers:
            await asyncio.wait(self._workers, timeout=self._timeout_s + END_S)
        self._waiting.clear()
        for worker in list(self._workers):
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            reason = await self._run(self._waiting.popleft())
            if reason is not None:
                self._fail(reason)

    async def _run(self, line: bytes) -> Message | None:
        """Run the program once; return why it failed, or `None`."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._directory,
                env=self._environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return msg("it cannot be run: {reason}", reason=getattr(error, "strerror", None) or str(error))
        try:
            said = await within(_converse(process, line), self._timeout_s)
        except asyncio.TimeoutError:
            return msg("not done within {seconds:g} s", seconds=self._timeout_s)
        finally:
            _end_group(process)
            await process.wait()
        if process.returncode == 0:
            return None
        lines = self._clean(said.decode(errors="replace")).strip().splitlines()
        return msg("exit status {status}: {reason}", status=process.returncode, reason=lines[-1] if lines else "–")

    def _environment(self) -> dict[str, str]:
        known = {name: value for name, value in for_a_process().items() if name in VARIABLES or name.startswith("LC_")}
        return {**known, "DTTUI_JOB_ID": self._job["job_id"]}

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return redact(value, self._secrets)
        if isinstance(value, dict):
            return {name: self._clean(item) for name, item in value.items()}
        return [self._clean(item) for item in value] if isinstance(value, list) else value

    def _fail(self, reason: Message) -> None:
        """Tell the first failure; all others are like it, or at least not the job's business."""
        if not self._has_failed:
            self._has_failed = True
            message = msg("on_event: {program}: {reason}; later failures are not told", program=self._argv[0],
                           reason=reason)  # fmt: skip
            data = {"code": "on-event-failed", "severity": "warning", "subject": "monitoring.on_event", "hint": ""}
            self._add(EventKind.FINDING, message, data=data)


def _end_group(process: asyncio.subprocess.Process) -> None:
    """End the program and what it has started, but no group that has come to the same number since it ended."""
    if process.returncode is None or not os.path.exists(f"/proc/{process.pid}"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


async def _converse(process: asyncio.subprocess.Process, line: bytes) -> bytes:
    """Give the program its input, and wait for its end; return the end of what it said."""
    stdin, stderr = process.stdin, process.stderr
    if stdin is not None:
        with contextlib.suppress(ConnectionError):  # It need not read.
            stdin.write(line)
            await stdin.drain()
        stdin.close()
    said = b""
    while stderr is not None and (data := await stderr.read(MAX_STDERR_BYTES)):
        said = (said + data)[-MAX_STDERR_BYTES:]
    await process.wait()
    return said
