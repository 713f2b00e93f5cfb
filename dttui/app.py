"""The face: all that the clients, `cli` and `tui`, have done for a person. Values go in, and values come out.

Whatever acts is reached through `App`, and imported when it is asked for: a client that only looks at jobs pays for
none of it. What comes with a call instead of with the process, language and environment variables, is its `Caller`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast

from dttui import locations
from dttui.i18n import speaking
from dttui.lazy import first_use
from dttui.time_limits import ending
from dttui.variables import bringing

if TYPE_CHECKING:
    from dtagent.protocol.facts import HostFacts

    from dttui.compose.costs import AdviceAnswer, CostAnswer, CostQuestion
    from dttui.diagnosis.models import Diagnosis
    from dttui.diagnosis.stack_report import NodeStacks
    from dttui.doctor.models import Checkup as Checkup
    from dttui.doctor.models import Site as Site
    from dttui.doctor.models import Trouble as Trouble
    from dttui.errors import HostError, UsageError
    from dttui.export.rendered import Rendered
    from dttui.fleet.deployment.deploy import Deployment as Deployment
    from dttui.fleet.deployment.remove import AgentRemoval as AgentRemoval
    from dttui.fleet.deployment.status import AgentStatus as AgentStatus
    from dttui.fleet.live import EnvironmentStatus as EnvironmentStatus
    from dttui.fleet.live import Fleet as Fleet
    from dttui.fleet.states import EnvironmentState as EnvironmentState
    from dttui.fleet.states import environment_state_name as environment_state_name
    from dttui.fleet.waiting import OnWait as OnWait
    from dttui.inventory.models import Environment
    from dttui.jobs.board import Board, Changed
    from dttui.jobs.directory import JobDirectory
    from dttui.jobs.following import JobFollower
    from dttui.jobs.removal import RemovableJob as RemovableJob
    from dttui.jobs.view import JobView
    from dttui.launch.control import ControllerClient as ControllerClient
    from dttui.launch.starting import SpareController as SpareController
    from dttui.planning.models import Plan
    from dttui.planning.submission import Submission
    from dttui.spec.findings import Finding
    from dttui.transport.base import Prompt as Prompt
    from dttui.transport.base import Prompter as Prompter
    from dttui.transport.base import PromptKind as PromptKind
    from dttui.transport.base import Transport as Transport
    from dttui.transport.routes import Transports

__getattr__ = first_use(__name__)
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Caller:
    """Whom a call is for: what comes with it, and not with the process. Directories of dttui are the process's."""

    language: str | None = None
    """`en` or `zh`; `None` for that of the process."""
    variables: Mapping[str, str] | None = None
    """Environment variables, the secrets of jobs among them; `None` for those of the process."""

    until: float | None = None
    """By when all must be done, on the monotonic clock; `None` without a bound."""

    @contextlib.contextmanager
    def speaks(self) -> Iterator[None]:
        """Have language, variables and bound count inside; other tasks and threads keep their own."""
        with speaking(self.language), bringing(self.variables), ending(self.until):
            yield


class Submitted(NamedTuple):
    """What has become of a job that was handed over."""

    directory: JobDirectory
    was_running: bool
    """Whether the same job was running already, and no other one was started."""
    earlier: tuple[JobDirectory, list[str]] | None
    """Another job that runs from the same file, and the keys in which that was different then."""


class Exported(NamedTuple):
    """A job as files that run it without dttui."""

    plan: Plan
    """With errors, there are no files."""
    files: tuple[Rendered, ...] = ()
    is_taken: bool = False
    """Whether something is in the directory already."""
    replaced: tuple[str, ...] = ()
    """Which of the files are there."""
    foreign: tuple[str, ...] = ()
    """What is there and might be taken for a part of them."""


class LoginSession(NamedTuple):
    """What of this login session a job that goes on would miss."""

    logout_kills: bool
    """Whether the system ends what is left running at logout, controllers among them."""
    agent_is_forwarded: bool
    """Whether the ssh-agent is one that goes with the session."""


def _for_caller(method: Callable[P, R]) -> Callable[P, R]:
    """Have a method of `App` run with what came with the call."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def wait(self: App, *arguments: Any, **named: Any) -> Any:
            with self.caller.speaks():
                return await method(self, *arguments, **named)  # type: ignore[arg-type]  # P begins with self

        return cast("Callable[P, R]", wait)

    @functools.wraps(method)
    def call(self: App, *arguments: Any, **named: Any) -> Any:
        with self.caller.speaks():
            return method(self, *arguments, **named)  # type: ignore[arg-type]  # P begins with self

    return cast("Callable[P, R]", call)


class App:
    """What is done for one caller. Its connections to hosts are kept until `close`.

    Args:
        caller: for whom.
        transport: how hosts are reached; as the inventory says, where none is given.
    """

    def __init__(self, caller: Caller | None = None, transport: Transport | None = None) -> None:
        self.caller = caller or Caller()
        self._transport = transport
        self._own: Transports | None = None

    async def __aenter__(self) -> App:
        return self

    async def __aexit__(self, *_fault: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to hosts."""
        if self._own is not None:
            await self._own.close()

    # --- hosts --------------------------------------------------------------------------------------------------------

    @_for_caller
    def watch(self, environments: Sequence[Environment], prompter: Prompter) -> Fleet:
        """Return what watches environments once it is started, until it is closed."""
        from dttui.fleet.last_known import read_last_known
        from dttui.fleet.live import Fleet

        return Fleet(environments, self._way, prompter, read_last_known(environments))

    @_for_caller
    async def unwatch(self, fleet: Fleet) -> None:
        """Close what watches environments, and keep what they have said of themselves for the next start."""
        from dttui.fleet.last_known import keep_last_known

        await fleet.close()
        keep_last_known([(fleet.statuses[name].environment, facts) for name, facts in fleet.heard.items()])

    @_for_caller
    async def survey(
        self,
        environments: Sequence[Environment],
        prompter: Prompter,
        within_s: float,
        on_wait: OnWait | None = None,
    ) -> tuple[list[EnvironmentStatus], set[str]]:
        """Return how environments are, and the names of those that have neither answered nor refused in time.

        The time that a person takes to answer a question does not count. `on_wait` is told meanwhile who is waited for.
        """
        from dttui.fleet.survey import survey

        return await survey(environments, self._way, prompter, within_s, on_wait)

    @_for_caller
    async def trust(
        self, environment: Environment, prompter: Prompter, fingerprint: str | None, *, dry_run: bool = False
    ) -> str:
        """Take the key that a host shows, on a person's word, and return its fingerprint; see `trust_host`."""
        from dttui.fleet.trust import trust_host

        return await trust_host(environment, self._routes, prompter, fingerprint, dry_run=dry_run)

    @_for_caller
    async def agents(
        self, environments: Sequence[Environment], prompter: Prompter, on_wait: OnWait | None = None
    ) -> list[AgentStatus | HostError]:
        """Return how the agent is on each of the hosts; `on_wait` is told meanwhile who is waited for."""
        from dttui.fleet.deployment.status import status_all

        return await status_all(environments, self._way, prompter, on_wait=on_wait)

    @_for_caller
    async def deploy_agents(
        self,
        environments: Sequence[Environment],
        prompter: Prompter,
        *,
        wheelhouse: Path | None,
        only_upgrade: bool,
        allow_downgrade: bool,
        dry_run: bool = False,
        on_progress: Callable[[str, str], None],
    ) -> list[Deployment | HostError]:
        """Bring the agent to hosts, and return how each ended, or would with `dry_run`; see `deploy_all`."""
        from dttui.fleet.deployment.deploy import deploy_all
        from dttui.fleet.deployment.wheel_source import WheelSource

        return await deploy_all(
            environments,
            self._way,
            prompter,
            source=WheelSource(wheelhouse),
            only_upgrade=only_upgrade,
            allow_downgrade=allow_downgrade,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    @_for_caller
    async def remove_agents(
        self,
        environments: Sequence[Environment],
        prompter: Prompter,
        *,
        force: bool,
        jobs: bool,
        checkpoints: bool,
        dry_run: bool = False,
        on_progress: Callable[[str, str], None],
    ) -> list[AgentRemoval | HostError]:
        """Remove the agent from hosts; return what became of each, or would with `dry_run`; see `remove_all`."""
        from dttui.fleet.deployment.remove import remove_all

        return await remove_all(
            environments,
            self._way,
            prompter,
            force=force,
            jobs=jobs,
            checkpoints=checkpoints,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    @_for_caller
    async def doctor(
        self,
        environments: Sequence[Environment],
        prompter: Prompter,
        *,
        unread: UsageError | None = None,
        options: Sequence[str] = (),
        on_wait: OnWait | None = None,
    ) -> Checkup:
        """Return what is wrong with the login node, hosts and what is between them; see `check_up`. Changes nothing."""
        from dttui.doctor.checkup import check_up

        return await check_up(environments, self._routes, prompter, unread=unread, options=options, on_wait=on_wait)

    # --- before a job is there ----------------------------------------------------------------------------------------

    @_for_caller
    def hardware_findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with the person's own types of GPUs. Raises UsageError where links cannot be read."""
        if not (locations.gpu_types_file().exists() or locations.links_file().exists()):
            return ()
        from dttui.fleet.known_hardware import known_hardware

        return known_hardware(lenient=True).findings

    @_for_caller
    def plan(self, submission: Submission, facts: dict[str, HostFacts] | None = None) -> Plan:
        """Return what would run, and all that can be said of it here; asks no host."""
        from dttui.launch.submit import make_local_plan

        return make_local_plan(submission, facts)

    @_for_caller
    def unattended(self, submission: Submission, plan: Plan) -> tuple[Finding, ...]:
        """Return what would keep a job from going on without a person after a restart of this login node."""
        from dttui.launch.unattended import unattended_findings

        names = {node.name for node in plan.nodes} | set(plan.recovery.spares)
        environments = [item for item in submission.inventory.environments if item.name in names]
        return tuple(unattended_findings(environments, plan.secrets, submission.base))

    @_for_caller
    def estimate(self, question: CostQuestion, submission: Submission | None) -> CostAnswer:
        """Return what training costs: of a job with what the question changes, or of the question alone."""
        from dttui.compose.costs import estimate

        return estimate(question, submission)

    @_for_caller
    def recommend(self, question: CostQuestion, submission: Submission | None) -> AdviceAnswer:
        """Return which layouts are fastest: for a job, or for what the question says alone."""
        from dttui.compose.costs import recommend

        return recommend(question, submission)

    @_for_caller
    async def check(
        self,
        submission: Submission,
        plan: Plan,
        prompter: Prompter,
        *,
        measures_bandwidth: bool = False,
        begin: Callable[[Board], None] | None = None,
        on_change: Changed | None = None,
    ) -> Board:
        """Check the hosts of a job and the network between them; start nothing; see `preflight.checking.check`."""
        from dttui.preflight.checking import check

        return await check(
            submission,
            plan,
            self._way,
            prompter,
            measures_bandwidth=measures_bandwidth,
            begin=begin,
            on_change=on_change,
        )

    @_for_caller
    def export(self, submission: Submission, kind: str, target: Path, image: str | None) -> Exported:
        """Return a job as files for `scripts`, `slurm` or `kubernetes`; writes nothing. Raises UsageError."""
        from dttui.export.contents import export_job, plan_to_export, told_of
        from dttui.export.targets import get_target
        from dttui.export.writing import foreign_files, is_taken, replaced_files

        made_for = get_target(kind)
        plan = plan_to_export(submission)
        if plan.errors:
            return Exported(plan)
        export = export_job(submission, plan, target, image)
        plan = told_of(submission, plan, made_for.check(export))
        if plan.errors:
            return Exported(plan)
        files = tuple(made_for.render(export))
        if not is_taken(target):
            return Exported(plan, files)
        return Exported(plan, files, True, tuple(replaced_files(target, files)), tuple(foreign_files(target, files)))

    @_for_caller
    def replaced_files(self, target: Path, files: Sequence[Rendered]) -> list[str]:
        """Return which of the files are in a directory already."""
        from dttui.export.writing import replaced_files

        return replaced_files(target, files)

    @_for_caller
    def write(self, target: Path, files: Sequence[Rendered]) -> None:
        """Write files into a directory. Raises UsageError where one cannot be written."""
        from dttui.export.writing import write

        write(target, files)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def controller_ahead(self) -> AbstractContextManager[SpareController | None]:
        """Start a controller whose imports take as long as ours do; `None` where this host starts no more processes."""
        from dttui.launch.starting import SpareController

        try:
            return SpareController()
        except OSError:
            return contextlib.nullcontext()

    @_for_caller
    def submit(
        self, submission: Submission, plan: Plan, *, starts_another: bool = False, spare: SpareController | None = None
    ) -> Submitted:
        """Hand a job to a controller of its own, unless the same one runs already.

        Args:
            submission: the job.
            plan: its plan, without errors.
            starts_another: also where the same job runs.
            spare: a controller that was started ahead.

        Raises:
            UsageError: the plan has errors, or the job's directory cannot be written.
        """
        from dttui.launch.same_job import find_earlier, one_submission_at_a_time
        from dttui.launch.submit import find_same, submit

        with one_submission_at_a_time():
            earlier = None
            if not starts_another:
                same = find_same(submission, plan)
                if same is not None:
                    return Submitted(same, was_running=True, earlier=None)
                if submission.file is not None:
                    earlier = find_earlier(submission.job, submission.base, submission.file)
            directory = submit(submission, plan, expects_client=True, spare=spare)
            return Submitted(directory, was_running=False, earlier=earlier)

    @_for_caller
    def changed_files(self, directory: JobDirectory, attempt: int, upload: Path) -> list[str] | None:
        """Return the files that are not what a job runs with; `None` where that is not known."""
        from dttui.launch.same_job import changed_files

        return changed_files(directory, attempt, upload)

    @_for_caller
    async def attach(self, directory: JobDirectory, prompter: Prompter | None = None) -> ControllerClient:
        """Talk with a job's controller. Raises NotFinishedError where there is none."""
        from dttui.launch.control import ControllerClient

        return await ControllerClient.connect(directory, prompter)

    @_for_caller
    def revive(self, directory: JobDirectory, *, expects_client: bool = False, looks_again: bool = False) -> bool:
        """Start a controller for a job whose own has died; return whether one was; see `ensure_controller`."""
        from dttui.launch.control import ensure_controller

        return ensure_controller(directory, expects_client=expects_client, looks_again=looks_again)

    @_for_caller
    async def stop(self, directory: JobDirectory, *, force: bool, prompter: Prompter | None = None) -> None:
        """Have a job stopped; its events tell the rest; see `stop_job`."""
        from dttui.launch.control import stop_job

        await stop_job(directory, force=force, prompter=prompter)

    @_for_caller
    def follow(self, directory: JobDirectory) -> JobFollower:
        """Return what reads a job's files into a view, live or after the end, in the caller's language."""
        from dttui.jobs.following import JobFollower

        return JobFollower(directory)

    async def stacks(
        self, directory: JobDirectory, ranks: Sequence[int] | None, prompter: Prompter | None = None
    ) -> tuple[NodeStacks, ...]:
        """Return where the ranks of a running job stand; see `job_stacks`."""
        from dttui.diagnosis.stack_report import of_data
        from dttui.launch.control import job_stacks

        return of_data(await job_stacks(directory, ranks, prompter))

    @_for_caller
    def diagnose(self, directory: JobDirectory, view: JobView) -> Diagnosis:
        """Return why a job failed, or how it stands where it has not."""
        from dttui.diagnosis.diagnose import diagnose
        from dttui.diagnosis.evidence import read_evidence

        return diagnose(read_evidence(directory, view))

    @_for_caller
    def remove(self, removal: RemovableJob) -> None:
        """Take a job that is over off this login node. Raises UsageError where that cannot be."""
        from dttui.jobs.removal import remove

        remove(removal)

    def login_session(self) -> LoginSession:
        """Return what of this login session a job that goes on would miss."""
        from dttui.launch.login_session import agent_is_forwarded, logout_kills

        return LoginSession(logout_kills(), agent_is_forwarded())

    @property
    def _routes(self) -> Transports:
        if self._own is None:
            from dttui.transport.routes import Transports

            self._own = Transports()
        return self._own

    @property
    def _way(self) -> Transport:
        return self._transport or self._routes
