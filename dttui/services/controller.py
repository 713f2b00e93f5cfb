"""The controller process: owns one job on the login node, from its directory alone, and serves its clients' socket."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from dtagent.protocol import rpc
from dtagent.protocol.events import EventKind, JobState

from dttui.errors import CancelledError, DttuiError, ExitCode
from dttui.i18n import _, set_language
from dttui.inventory.models import Inventory
from dttui.planning.models import Plan
from dttui.services.gang import Gang
from dttui.services.jobs import EventLog, JobDirectory
from dttui.services.launch import Submission, make_local_plan
from dttui.spec import parse_job
from dttui.transport.base import Prompt
from dttui.transport.routes import Transports

LOG = logging.getLogger("dttui.controller")
CLIENT_WAIT_S = 15.0
"""How long a question waits for a client that was said to come."""


class Controller:
    """Serves the socket, passes questions to a client that can ask a person, and runs the gang."""

    def __init__(self, directory: JobDirectory, *, expects_client: bool) -> None:
        self._directory = directory
        self._log = EventLog(directory)
        self._prompting: list[asyncio.StreamWriter] = []
        self._came = asyncio.Event()
        self._expects_client = expects_client
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[str | None]] = {}
        self._gang: Gang | None = None
        self._stop_asked: bool | None = None

    async def run(self) -> None:
        """Run the job to its end; write the outcome as the last event."""
        server = await self._serve()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, False)
        try:
            state, message, code = await self._job()
        except Exception as error:  # The top of the process: whatever happened, the job must get an outcome.
            LOG.exception("the controller failed")
            state, code = JobState.FAILED, ExitCode.INTERNAL
            message = _("internal error: {error}; see {path}").format(
                error=f"{type(error).__name__}: {error}", path=self._directory.controller_log
            )
        self._log.add(EventKind.JOB_STATE, message, data={"state": state.value})
        self._log.add(EventKind.OUTCOME, message, data={"state": state.value, "exit_code": int(code)})
        server.close()
        with contextlib.suppress(FileNotFoundError):
            self._directory.socket.unlink()

    async def ask(self, prompt: Prompt) -> str | None:
        """Put a question to a client that can ask a person; `None` where there is none."""
        if not self._prompting and self._expects_client:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._came.wait(), CLIENT_WAIT_S)
        if not self._prompting:
            return None
        number = next(self._numbers)
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        writer = self._prompting[-1]
        message = {
            "method": "prompt",
            "id": number,
            "kind": prompt.kind.value,
            "host": prompt.host,
            "text": prompt.text,
            "secret": prompt.secret,
            "fingerprint": prompt.fingerprint,
        }
        try:
            writer.write(rpc.encode(message))
            await writer.drain()
            return await future
        except ConnectionError:
            return None
        finally:
            self._answers.pop(number, None)

    async def _job(self) -> tuple[JobState, str, ExitCode]:
        launch = json.loads(self._directory.launch.read_text(encoding="utf-8"))
        set_language(launch["language"])
        inventory = Inventory.model_validate(launch["inventory"])
        text = self._directory.document.read_text(encoding="utf-8")
        base = Path(launch["base"])
        job = parse_job(text, str(self._directory.document))
        plan = Plan.model_validate_json(self._directory.plan.read_bytes())
        try:
            self._gang = Gang(
                self._directory,
                self._log,
                Transports(),
                self,
                inventory=inventory,
                plan=plan,
                replan=lambda known, facts: make_local_plan(Submission(job, known, base), facts),
                base=base,
                secrets={name: os.environ[name] for name in plan.secrets},
            )
            if self._stop_asked is not None:
                self._gang.request_stop(force=self._stop_asked)
            started = time.time()
            await self._gang.run()
        except CancelledError as error:
            return JobState.CANCELLED, error.message, error.exit_code
        except DttuiError as error:
            message = f"{error.message}. {error.hint}" if error.hint else error.message
            return JobState.FAILED, message, error.exit_code
        return JobState.SUCCEEDED, _("finished in {seconds:.0f} s").format(seconds=time.time() - started), ExitCode.OK

    def _stop(self, force: bool) -> None:
        self._stop_asked = force
        if self._gang is not None:
            self._gang.request_stop(force=force)

    async def _serve(self) -> asyncio.Server:
        with contextlib.suppress(FileNotFoundError):
            self._directory.socket.unlink()
        descriptor = os.open(self._directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        mask = os.umask(0o177)
        try:
            # Through the descriptor, since the directory's path may be longer than a socket address allows.
            path = f"/proc/self/fd/{descriptor}/{self._directory.socket.name}"
            return await asyncio.start_unix_server(self._client, path, limit=rpc.MAX_FRAME_BYTES)
        finally:
            os.umask(mask)
            os.close(descriptor)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._take(rpc.decode(line), writer)
        except (rpc.FrameError, ConnectionError, ValueError, KeyError) as error:
            LOG.warning("client dropped: %s", error)
        except asyncio.CancelledError:
            pass  # The job is over and the loop is closing; there is nobody above to pass it on to.
        finally:
            if writer in self._prompting:
                self._prompting.remove(writer)
                if not self._prompting:
                    for future in self._answers.values():
                        if not future.done():
                            future.set_result(None)
            writer.close()

    def _take(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        method = message.get("method")
        if method == "attach" and message.get("prompts"):
            self._prompting.append(writer)
            self._came.set()
        elif method == "stop":
            self._stop(bool(message.get("force")))
        elif method == "answer":
            future = self._answers.get(message["id"])
            if future is not None and not future.done():
                future.set_result(message["value"])


def main(argv: list[str]) -> int:
    """Own the job whose directory is given; return 1 where another controller has it."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.WARNING)
    directory = JobDirectory(Path(argv[0]))
    lock = os.open(directory.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 1
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asyncio.run(Controller(directory, expects_client="--expects-client" in argv[1:]).run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
