"""The controller process: owns one job on the login node, from its directory alone."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dtagent.protocol.events import EventKind, JobState
from dtagent.protocol.facts import HostFacts

from dttui.engine.alerts.alert_watch import AlertWatch
from dttui.engine.alerts.event_watch import EventWatch, WatchedLog
from dttui.engine.awake import run_awake
from dttui.engine.clients import Clients
from dttui.engine.completion import Completion
from dttui.engine.context import JobContext
from dttui.engine.decision import decide
from dttui.engine.job_run import Decide, JobRun
from dttui.engine.learning import learn_from
from dttui.engine.leftovers import clean_up_after_job
from dttui.engine.recovered import RecoveredState, read_history
from dttui.errors import DttuiError, UsageError
from dttui.files import write_atomic
from dttui.fleet.known_hardware import known_hardware
from dttui.i18n import msg, speaking
from dttui.inventory.models import Inventory
from dttui.jobs import HEARTBEAT_S, JobDirectory
from dttui.jobs.aftermath import MESSAGE_ALONE, OUTCOME
from dttui.jobs.event_log import newest_event
from dttui.jobs.exit_codes import end_data, outcome_data, told_end
from dttui.jobs.launch_file import LaunchFile
from dttui.jobs.measured_speeds import measured_speeds
from dttui.jobs.outcome import AttemptOutcome, cause_of, failed
from dttui.launch.local_plan import make_local_plan
from dttui.launch.secrets_file import take_secrets
from dttui.launch.starting import SPARE, wait_for_job
from dttui.planning.cost.links import MeasuredLink
from dttui.planning.lineup import Lineup
from dttui.planning.models import Plan
from dttui.planning.recovery import RecoveryPolicy, policy_of
from dttui.planning.submission import Submission
from dttui.preflight.preflight import Replan
from dttui.redaction import Redaction
from dttui.spec import Loaded, parse_document
from dttui.spec.failure_causes import INTERNAL
from dttui.spec.findings import Severity
from dttui.spec.models import Job
from dttui.transport.routes import Transports, prepare_ssh
from dttui.variables import bringing, learn, variables

LOG = logging.getLogger("dttui.controller")
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
STOP, KILL = "stop", "kill"
Recover = Callable[[JobDirectory, LaunchFile], RecoveredState]


class Controller:
    """Runs the job, and looks at its hosts again once it is over; its clients may watch, answer, and have it stopped.

    Args:
        directory: of the job.
        expects_client: whether a client that can ask a person is about to attach.
        launches: whether the job is to be started; else another controller has had it, and nothing is started.
        seen_at: Unix time of that controller's last sign of life.
        policy: what the job allows where an attempt fails; as its plan says where it is not given.
        decide: what follows an attempt.
    """

    def __init__(
        self,
        directory: JobDirectory,
        *,
        expects_client: bool,
        launches: bool = False,
        seen_at: float = 0.0,
        policy: RecoveryPolicy | None = None,
        decide: Decide = decide,
    ) -> None:
        self._policy = policy
        self._decide = decide
        self._directory = directory
        self._log = WatchedLog(directory.events)
        self.clients = Clients(directory, self._log, self._stop, expects_one=expects_client)
        self._log.listeners.append(lambda _event: self.clients.tell_unwritten())
        self._watch: EventWatch | None = None
        self._recover: Recover = functools.partial(_left_behind, seen_at=seen_at)
        self._fail: Callable[[AttemptOutcome], Awaitable[None]] = self._leave
        self._forgiven: tuple[type[Exception], ...] = (DttuiError, OSError)
        """Errors of the job file that are put up with: whatever became of it, a job that runs must be followed."""
        if launches:
            self._recover, self._fail, self._forgiven = _nothing_yet, self._finish, ()
        self._transports = Transports()
        self._request_stop: Callable[[bool], None] | None = None
        self._secrets: dict[str, str] = {}
        """Name → value, as far as it is known by now."""
        self._secret_names: tuple[str, ...] = ()
        self._stop_asked: bool | None = None
        """Whether the stop that was asked for is a forced one."""
        if not directory.is_over():  # Else that stop is done, and says nothing of a look at what is left.
            with contextlib.suppress(OSError):
                self._stop_asked = directory.stop_request.read_text(encoding="utf-8") == KILL

    async def run(self) -> None:
        """Run the job to its end, in the language it was asked for in; write the outcome as the last event."""
        with speaking(self._language()):
            await self._serve()

    def _language(self) -> str | None:
        with contextlib.suppress(OSError, UsageError):  # Told where it is needed.
            return self._directory.read_launch().language
        return None

    async def _serve(self) -> None:
        server = await self.clients.serve()
        beating = asyncio.create_task(self._beat())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, False)
        try:
            if self._directory.is_over():
                await self._clean_up()
            else:
                await self._run_job()
        finally:
            beating.cancel()
            if self._watch is not None:
                await self._watch.close()
            server.close()
            with contextlib.suppress(OSError):
                self._directory.socket.unlink()

    async def _run_job(self) -> None:
        if self._has_ended_before():
            await self._complete_files()
            return
        try:
            outcome = await self._job()
        except Exception as error:  # The top of the process: whatever happened, it must be told.
            LOG.exception("the controller failed")
            await self._fail(_outcome_of(error, self._directory.controller_log))
        else:
            await self._finish(outcome)

    async def _finish(self, outcome: AttemptOutcome) -> None:
        self._tell_end(outcome)
        await self._complete_files()

    async def _leave(self, outcome: AttemptOutcome) -> None:
        """Tell what has failed; what is not known is not called a failure: the next controller may find out."""
        self._log.add(EventKind.PROGRESS, outcome.headline)

    def _tell_end(self, outcome: AttemptOutcome) -> None:
        now, message = self._log.clock.now(), outcome.headline
        if outcome.succeeded:
            # Of the events' own times, so that whoever takes one from the other comes to the same figure.
            took = msg("finished in {seconds} s", seconds=int(now - (self._log.began_at or now)))
            message = msg("{what}; {why}", what=took, why=message) if message else took
        data, kept = end_data(outcome), outcome_data(outcome, exclude={"message", "hint"})
        first = {"first_failure": outcome.first_failure.model_dump()} if outcome.first_failure is not None else {}
        alone = {MESSAGE_ALONE: outcome.message} if outcome.hint else {}
        self._log.add(EventKind.JOB_STATE, message, time=now, data={**data, **first, **alone, OUTCOME: kept})
        self._log.add(EventKind.OUTCOME, message, time=now, data=data)

    async def _complete_files(self) -> None:
        """Write and fetch what could not be written or had at the end."""
        await Completion(self._directory, self._log, self._clean_up, lambda: not self._stop_asked).complete()

    def _has_ended_before(self) -> bool:
        """Tell the outcome where another controller had found it out, and died before that was done; say whether so."""
        last = newest_event(self._directory.events, EventKind.JOB_STATE)
        state = JobState(last.data.get("state")) if last is not None else JobState.PENDING
        if last is None or not state.is_final:
            return False
        self._log.add(EventKind.OUTCOME, last.message, data=told_end(last.data))
        return True

    async def _beat(self) -> None:
        """Show that the controller is there, and runs."""
        while True:
            try:
                os.utime(self._directory.lock)
            except FileNotFoundError:
                os._exit(1)  # The job was removed: nobody can reach this process, nor can it write anything.
            except OSError as error:
                LOG.warning("cannot show a sign of life: %s", error)
            self._log.flush()
            await asyncio.sleep(HEARTBEAT_S)

    async def _job(self) -> AttemptOutcome:
        launch = self._directory.read_launch()
        recovered = self._recover(self._directory, launch)
        self._secret_names = recovered.plan.secrets
        unknown = self._look_for_secrets(launch.base)
        self._hide()
        self._tell_unknown(unknown)
        self.clients.take_secrets = self._take_secrets
        policy = self._policy or recovered.plan.recovery
        job = replace(self._context(launch), may_restart=policy.may_restart)
        run = JobRun(job, recovered, read_history(self._directory), policy, self._decide)
        self.clients.retry = run.retry_now
        self.clients.stacks = run.stacks
        self.take_stops(lambda force: run.request_stop(force=force))
        outcome = await run.run()
        trouble = await asyncio.to_thread(learn_from, self._directory, outcome, self._log.clock.now())
        if trouble is not None:
            self._log.add(EventKind.FINDING, trouble.message, data=trouble.event_data)
        return outcome

    def _context(self, launch: LaunchFile) -> JobContext:
        """Return what the attempts of the job need."""
        alerts, loaded = AlertWatch(), None
        with contextlib.suppress(*self._forgiven):
            loaded = self._read_document(launch)
            alerts = self._begin_watch(loaded.job, launch.base).alerts
        # Once: what becomes of its files later must not stop a restart.
        hardware = known_hardware(launch.inventory.environments, lenient=True)

        def replan_for(lineup: Lineup) -> Replan:
            def replan(known: Inventory, facts: dict[str, HostFacts], links: Sequence[MeasuredLink]) -> Plan:
                read = loaded or self._read_document(launch)
                text = self._directory.document.read_text(encoding="utf-8")
                job = lineup.apply(read.job, known)
                submission = Submission(
                    job,
                    known,
                    launch.base,
                    text,
                    launch.file,
                    read.notes,
                    source=read.source,
                    is_queued=launch.is_queued,
                )
                before = [JobDirectory(self._directory.path.parent / name) for name in dict.fromkeys(launch.earlier)]
                measured = measured_speeds(job.metrics for job in (*before, self._directory))
                made = make_local_plan(submission, facts, hardware.with_links(links), measured=measured)
                # Whoever takes part now, the job allows what it did.
                policy = policy_of(read.job.recovery, known, made.min_nodes)
                return made.model_copy(update={"recovery": policy})

            return replan

        return JobContext(
            self._directory,
            self._log,
            self._transports,
            self.clients,
            launch.inventory,
            replan_for(Lineup()),
            launch.base,
            self._secrets,
            frozenset(launch.ignored),
            launch.earlier,
            launch.asked_at,
            launch.is_queued,
            launch.for_s,
            lambda: self._look_for_secrets(launch.base),
            alerts,
            replan_for=replan_for,
            keeps=launch.keeps,
        )

    def _read_document(self, launch: LaunchFile) -> Loaded:
        """Read the job file. Raises OSError or DttuiError."""
        text = self._directory.document.read_text(encoding="utf-8")
        return parse_document(text, launch.file or str(self._directory.document))

    async def _clean_up(self) -> None:
        """End what is left on hosts that were lost when the job ended, and fetch the logs that were left there."""
        try:
            launch = self._directory.read_launch()
        except UsageError as error:
            self._log.add(EventKind.PROGRESS, _with_hint(error))
            return
        forced = asyncio.Event()
        self.take_stops(lambda force: forced.set() if force else None)
        await clean_up_after_job(
            self._directory, self._log, launch.inventory, self._transports, self.clients, forced=forced
        )

    def _look_for_secrets(self, base: Path) -> Sequence[str]:
        """Take the values of secrets that lie beside the job file; return the names of those that are not known."""
        unknown = take_secrets(base, self._secret_names)
        self._know_secrets()
        return unknown

    def _take_secrets(self, brought: Mapping[str, str]) -> None:
        """Take the values that a client brings of secrets that are not known."""
        for name in set(self._secret_names) - set(variables()):
            if name in brought and "\0" not in brought[name]:
                learn(name, brought[name])
        self._know_secrets()

    def _know_secrets(self) -> None:
        found = variables()  # Others learn of some meanwhile.
        known = {name: found[name] for name in self._secret_names if name in found}
        if known.keys() != self._secrets.keys():
            self._secrets.update(known)
            self._hide()

    def _hide(self) -> None:
        """Keep the values of secrets out of all that is written from now on."""
        self._log.redaction = Redaction.of_names(self._secret_names)
        for handler in logging.getLogger().handlers:
            handler.setFormatter(RedactingFormatter(self._log.redaction))

    def _tell_unknown(self, unknown: Sequence[str]) -> None:
        """Say of which values that cannot be done."""
        if unknown:
            data = {
                "code": "secret-unknown",
                "severity": Severity.WARNING.value,
                "subject": "run.secrets",
                "hint": msg("Export them before `dttui attach`, or keep them in secrets.env beside the job file."),
            }
            message = msg(
                "the values of {names} are not known here any more: logs and events may show them from now on",
                names=", ".join(unknown),
            )
            self._log.add(EventKind.FINDING, message, data=data)

    def _begin_watch(self, job: Job, base: Path) -> EventWatch:
        """Let alerts and the job's own program hear of what happens from now on."""
        names = job.run.secrets if job.run is not None else ()
        found = variables()
        secrets = [found[name] for name in names if name in found]
        self._watch = EventWatch(self._log, job, self._directory, base, secrets)
        return self._watch

    def take_stops(self, request_stop: Callable[[bool], None]) -> None:
        """Pass on what people ask for from now on, and what they asked for before."""
        self._request_stop = request_stop
        if self._stop_asked is not None:
            request_stop(self._stop_asked)

    def _stop(self, force: bool) -> None:
        self._stop_asked = force or bool(self._stop_asked)
        if not self._directory.is_over():
            with contextlib.suppress(OSError):  # A full disk must not keep the job from being stopped.
                write_atomic(self._directory.stop_request, KILL if self._stop_asked else STOP)
        if self._request_stop is not None:
            self._request_stop(force)


def _nothing_yet(directory: JobDirectory, launch: LaunchFile) -> RecoveredState:
    """Return where a job stands that is to be started."""
    return RecoveredState.new(directory.read_plan(), launch.first_attempt)


def _left_behind(directory: JobDirectory, launch: LaunchFile, *, seen_at: float) -> RecoveredState:
    """Return where a job stands that another controller has had."""
    return RecoveredState.read(directory, seen_at, launch.first_attempt, is_queued=launch.is_queued)


def _outcome_of(error: Exception, log: Path) -> AttemptOutcome:
    """Return the outcome of a job whose controller has failed; `log` has the traceback."""
    if isinstance(error, DttuiError):
        return failed(error.message, error.hint, cause_of(error))
    message = msg("internal error: {error}; see {path}", error=f"{type(error).__name__}: {error}", path=str(log))
    return failed(message, cause=INTERNAL)


class RedactingFormatter(logging.Formatter):
    """Writes records of the controller's own log without the values of secrets, in tracebacks too."""

    def __init__(self, redaction: Redaction) -> None:
        super().__init__(LOG_FORMAT)
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        return self._redaction.text(super().format(record))


def _with_hint(error: DttuiError) -> str:
    return msg("{message}. {hint}", message=error.message, hint=error.hint) if error.hint else error.message


def main(argv: list[str]) -> int:
    """Own the job whose directory is given; return 1 where another controller has it.

    With `--launch` the job is started. Else another controller has had it, and nothing is started: the job is followed
    from where that one left it, and of a job that is over the lost hosts are looked at again. A spare one is told its
    job later.
    """
    if argv == [SPARE]:
        prepare_ssh()
        told_later = wait_for_job()
        if told_later is None:
            return 0
        argv = told_later
    os.umask(0o077)
    logging.basicConfig(format=LOG_FORMAT, level=logging.WARNING)
    parser = argparse.ArgumentParser(prog="dttui.engine")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--launch", action="store_true")
    parser.add_argument("--expects-client", action="store_true")
    parser.add_argument("--lock", type=int)
    parser.add_argument("--seen-at", type=float, default=0.0)
    options = parser.parse_args(argv)
    directory = JobDirectory(options.directory)
    os.chdir(directory.path)  # So that it can be told whose process this is.
    lock = options.lock if options.lock is not None else directory.claim()
    if lock is None:
        return 1
    os.set_inheritable(lock, False)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    controller = Controller(
        directory, expects_client=options.expects_client, launches=options.launch, seen_at=options.seen_at
    )
    with bringing(os.environ):  # A copy: what it learns of secrets stays out of this process's own.
        run_awake(controller.run())
    return 0
