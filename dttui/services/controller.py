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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtagent.protocol import rpc
from dtagent.protocol.events import EventKind, JobState

from dttui.errors import CancelledError, DttuiError, ExitCode
from dttui.i18n import set_language, told
from dttui.inventory.models import Inventory
from dttui.planning.models import Plan
from dttui.services.gang import Gang
from dttui.services.jobs import EventLog, JobDirectory
from dttui.services.launch import Submission, make_local_plan
from dttui.services.orphan import Orphan
from dttui.spec import parse_document
from dttui.transport.base import Prompt
from dttui.transport.routes import Transports

LOG = logging.getLogger("dttui.controller")
CLIENT_WAIT_S = 15.0
"""How long a question waits for a client that was said to come."""


@dataclass
class _Question:
    message: dict[str, Any]
    answer: asyncio.Future[str | None]
    writer: asyncio.StreamWriter | None = None
    """The client it was put to."""


class Controller:
    """Serves the socket, passes questions to a client that can ask a person, and runs the gang or ends an orphan."""

    def __init__(self, directory: JobDirectory, *, expects_client: bool, stop_only: bool = False) -> None:
        self._directory = directory
        self._log = EventLog(directory)
        self._prompting: list[asyncio.StreamWriter] = []
        self._came = asyncio.Event()
        self._expects_client = expects_client
        self._numbers = itertools.count(1)
        self._questions: dict[int, _Question] = {}
        self._stop_only = stop_only
        self._request_stop: Callable[[bool], None] | None = None
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
            message = told(
                "internal error: {error}; see {path}",
                error=f"{type(error).__name__}: {error}",
                path=str(self._directory.controller_log),
            )
        now = time.time()
        if state is JobState.SUCCEEDED:
            # Of the events' own times, so that whoever takes one from the other comes to the same figure.
            message = told("finished in {seconds} s", seconds=int(now - (self._log.began_at or now)))
        self._log.add(EventKind.JOB_STATE, message, time=now, data={"state": state.value})
        self._log.add(EventKind.OUTCOME, message, time=now, data={"state": state.value, "exit_code": int(code)})
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
        message = {
            "method": "prompt",
            "id": number,
            "kind": prompt.kind.value,
            "host": prompt.host,
            "text": prompt.text,
            "secret": prompt.secret,
            "fingerprint": prompt.fingerprint,
        }
        question = _Question(message, asyncio.get_running_loop().create_future())
        self._questions[number] = question
        try:
            self._put(question)
            return await question.answer
        finally:
            del self._questions[number]

    def _put(self, question: _Question) -> None:
        """Put a question to the client that came last; without one there is no answer."""
        if not self._prompting:
            question.answer.set_result(None)
            return
        question.writer = self._prompting[-1]
        question.writer.write(rpc.encode(question.message))

    async def _job(self) -> tuple[JobState, str, ExitCode]:
        launch = json.loads(self._directory.launch.read_text(encoding="utf-8"))
        set_language(launch["language"])
        inventory = Inventory.model_validate(launch["inventory"])
        base = Path(launch["base"])
        try:
            if self._stop_only:
                orphan = Orphan(self._directory, self._log, Transports(), self, inventory)
                self._take_stops(orphan.request_stop)
                await orphan.end()
            text = self._directory.document.read_text(encoding="utf-8")
            file = launch.get("file")
            loaded = parse_document(text, file or str(self._directory.document))
            plan = Plan.model_validate_json(self._directory.plan.read_bytes())
            gang = Gang(
                self._directory,
                self._log,
                Transports(),
                self,
                inventory=inventory,
                plan=plan,
                replan=lambda known, facts: make_local_plan(
                    Submission(loaded.job, known, base, text, file, loaded.notes), facts
                ),
                base=base,
                secrets={name: os.environ[name] for name in plan.secrets},
            )
            self._take_stops(lambda force: gang.request_stop(force=force))
            await gang.run()
        except CancelledError as error:
            return JobState.CANCELLED, error.message, error.exit_code
        except DttuiError as error:
            message = told("{message}. {hint}", message=error.message, hint=error.hint) if error.hint else error.message
            return JobState.FAILED, message, error.exit_code
        return JobState.SUCCEEDED, "", ExitCode.OK

    def _take_stops(self, request_stop: Callable[[bool], None]) -> None:
        self._request_stop = request_stop
        if self._stop_asked is not None:
            request_stop(self._stop_asked)

    def _stop(self, force: bool) -> None:
        self._stop_asked = force or bool(self._stop_asked)
        if self._request_stop is not None:
            self._request_stop(force)

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
            self._forget(writer)
            writer.close()

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        """Put what a client that left was asked to another one."""
        self._prompting = [other for other in self._prompting if other is not writer]
        for question in self._questions.values():
            if question.writer is writer and not question.answer.done():
                self._put(question)

    def _take(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        method = message.get("method")
        if method == "attach" and message.get("prompts"):
            self._prompting.append(writer)
            self._came.set()
        elif method == "stop":
            self._stop(bool(message.get("force")))
        elif method == "answer":
            question = self._questions.get(message["id"])
            if question is not None and not question.answer.done():
                question.answer.set_result(message["value"])


def main(argv: list[str]) -> int:
    """Own the job whose directory is given; return 1 where another controller has it.

    `--stop-only` ends what a controller that died has left on the hosts, and starts nothing.
    """
    os.umask(0o077)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.WARNING)
    directory = JobDirectory(Path(argv[0]))
    lock = os.open(directory.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 1
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    options = argv[1:]
    if "--stop-only" in options and any(event.kind is EventKind.OUTCOME for event in directory.read_events()):
        return 0
    controller = Controller(directory, expects_client="--expects-client" in options, stop_only="--stop-only" in options)
    asyncio.run(controller.run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
