"""What is done for one caller: each call imports what does it, so that who only looks at jobs pays for none of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dttui import locations
from dttui.app.agents import Agents
from dttui.app.bench import BenchCalls
from dttui.app.caller import Caller, ForCaller, Ways, for_caller
from dttui.app.drafts import Drafts
from dttui.app.screens import ScreenCalls
from dttui.variables import are_brought

if TYPE_CHECKING:
    from dtagent.protocol.facts import HostFacts

    from dttui.diagnosis.models import Diagnosis
    from dttui.diagnosis.stack_report import NodeStacks
    from dttui.doctor.models import Checkup
    from dttui.errors import NotFinishedError, UsageError
    from dttui.export.rendered import Rendered
    from dttui.fetching.host_retention import HostRetention
    from dttui.fetching.models import OnDone, OnListed, OnProgress, Report
    from dttui.fleet.live import EnvironmentStatus, Fleet
    from dttui.fleet.waiting import OnWait
    from dttui.inventory.models import Environment, Inventory
    from dttui.jobs.board import Board, Changed
    from dttui.jobs.directory import JobDirectory
    from dttui.jobs.following import JobFollower
    from dttui.jobs.removal import RemovableJob
    from dttui.jobs.view import JobView
    from dttui.launch.control import ControllerClient
    from dttui.launch.starting import SpareController
    from dttui.planning.models import Plan
    from dttui.planning.submission import Submission
    from dttui.spec.findings import Finding
    from dttui.transport.base import Prompter, Transport


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


class App(ForCaller):
    """What is done for one caller. Its connections to hosts are kept until `close`.

    Args:
        caller: for whom.
        transport: how hosts are reached; as the inventory says, where none is given.
    """

    def __init__(self, caller: Caller | None = None, transport: Transport | None = None) -> None:
        super().__init__(caller or Caller(), Ways(transport))
        self.agents = Agents(self.caller, self._ways)
        self.bench = BenchCalls(self.caller, self._ways)
        self.drafts = Drafts(self.caller, self._ways)
        self.screens = ScreenCalls(self.caller, self._ways)

    async def __aenter__(self) -> App:
        return self

    async def __aexit__(self, *_fault: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to hosts."""
        await self._ways.close()

    # --- hosts --------------------------------------------------------------------------------------------------------

    @for_caller
    def watch(self, environments: Sequence[Environment], prompter: Prompter) -> Fleet:
        """Return what watches environments once it is started, until it is closed.

        What they say of themselves is kept for the next start.
        """
        from dttui.fleet.last_known import keep_last_known, read_last_known
        from dttui.fleet.live import Fleet

        return Fleet(environments, self._ways.transport, prompter, read_last_known(environments), keep_last_known)

    @for_caller
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

        return await survey(environments, self._ways.transport, prompter, within_s, on_wait)

    @for_caller
    async def trust(
        self, environment: Environment, prompter: Prompter, fingerprint: str | None, *, dry_run: bool = False
    ) -> str:
        """Take the key that a host shows, on a person's word, and return its fingerprint; see `trust_host`."""
        from dttui.fleet.trust import trust_host

        return await trust_host(environment, self._ways.routes, prompter, fingerprint, dry_run=dry_run)

    @for_caller
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

        return await check_up(
            environments, self._ways.routes, prompter, unread=unread, options=options, on_wait=on_wait
        )

    # --- before a job is there ----------------------------------------------------------------------------------------

    @for_caller
    def hardware_findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with the person's own types of GPUs, and what is kept of jobs.

        Raises:
            UsageError: links cannot be read.
        """
        files = locations.gpu_types_file(), locations.links_file(), locations.measured_runs_file()
        if not any(file.exists() for file in files):
            return ()
        from dttui.fleet.known_hardware import known_hardware

        return known_hardware(lenient=True).findings

    @for_caller
    def plan(self, submission: Submission, facts: dict[str, HostFacts] | None = None) -> Plan:
        """Return what would run, and all that can be said of it here; asks no host."""
        from dttui.launch.local_plan import make_local_plan

        return make_local_plan(submission, facts)

    @for_caller
    def unattended(self, submission: Submission, plan: Plan) -> tuple[Finding, ...]:
        """Return what would keep a job from going on without a person after a restart of this login node."""
        from dttui.launch.unattended import unattended_findings

        names = {node.name for node in plan.nodes} | set(plan.recovery.spares)
        environments = [item for item in submission.inventory.environments if item.name in names]
        return tuple(unattended_findings(environments, plan.secrets, submission.base))

    @for_caller
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
            self._ways.transport,
            prompter,
            measures_bandwidth=measures_bandwidth,
            begin=begin,
            on_change=on_change,
        )

    @for_caller
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

    @for_caller
    def write(self, target: Path, files: Sequence[Rendered]) -> None:
        """Write files into a directory. Raises UsageError where one cannot be written."""
        self.drafts.write(target, files)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    @for_caller
    def controller_ahead(self) -> AbstractContextManager[SpareController | None]:
        """Start a controller whose imports take as long as ours do; `None` where it is of no use, or cannot start."""
        from dttui.launch.starting import SpareController

        if are_brought():  # Another one is started for them; see `start_controller`.
            return contextlib.nullcontext()
        try:
            return SpareController()
        except OSError:
            return contextlib.nullcontext()

    @for_caller
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
            UsageError: the plan has errors, the job's directory cannot be written, or it measures hosts that another
                job measures at this moment.
        """
        from dttui.compose.link_bench import refuse_second_bench
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
            refuse_second_bench(submission)
            directory = submit(submission, plan, expects_client=True, spare=spare)
            return Submitted(directory, was_running=False, earlier=earlier)

    @for_caller
    def changed_files(self, directory: JobDirectory, attempt: int, upload: Path) -> list[str] | None:
        """Return the files that are not what a job runs with; `None` where that is not known."""
        from dttui.launch.same_job import changed_files

        return changed_files(directory, attempt, upload)

    @for_caller
    def resubmission(self, directory: JobDirectory, *, continues: bool) -> Submission:
        """Return a job as it was submitted, to be run once more; see `read_submission`. Raises UsageError."""
        from dttui.launch.resubmission import read_submission

        return read_submission(directory, continues=continues)

    @for_caller
    def changed_since(self, directory: JobDirectory, submission: Submission) -> list[str]:
        """Return the files of a working directory that are not what a job that is over ran with."""
        from dttui.launch.resubmission import changed_since

        return changed_since(directory, submission)

    @for_caller
    async def attach(self, directory: JobDirectory, prompter: Prompter | None = None) -> ControllerClient:
        """Talk with a job's controller. Raises NotFinishedError where there is none."""
        from dttui.launch.control import ControllerClient

        return await ControllerClient.connect(directory, prompter)

    @for_caller
    def revive(self, directory: JobDirectory, *, expects_client: bool = False, cleans_up: bool = False) -> bool:
        """Start a controller for a job whose own has died; return whether one was; see `ensure_controller`."""
        from dttui.launch.starting import ensure_controller

        return ensure_controller(directory, expects_client=expects_client, cleans_up=cleans_up)

    @for_caller
    def would_revive(self, directory: JobDirectory, *, cleans_up: bool = False) -> bool:
        """Whether `revive` would start a controller now; changes nothing."""
        from dttui.launch.starting import would_start_controller

        return would_start_controller(directory, cleans_up=cleans_up)

    @for_caller
    def stop(self, directory: JobDirectory, *, force: bool) -> None:
        """Have a job stopped; its events tell the rest; see `stop_job`."""
        from dttui.launch.stop_request import stop_job

        stop_job(directory, force=force)

    @for_caller
    def hanging(self, directory: JobDirectory) -> NotFinishedError | None:
        """Return what is to be said of a job's controller that gives no sign of life; see `stop_request.hanging`."""
        from dttui.launch.stop_request import hanging

        return hanging(directory)

    @for_caller
    def follow(self, directory: JobDirectory, *, reads_samples: bool = True) -> JobFollower:
        """Return what reads a job's files into a view, live or after the end, in the caller's language.

        Without `reads_samples`, without what its hosts do now.
        """
        from dttui.jobs.following import JobFollower

        return JobFollower(directory, reads_samples=reads_samples)

    @for_caller
    async def stacks(
        self, directory: JobDirectory, ranks: Sequence[int] | None, prompter: Prompter | None = None
    ) -> tuple[NodeStacks, ...]:
        """Return where the ranks of a running job stand; see `job_stacks`."""
        from dttui.diagnosis.stack_report import of_data
        from dttui.launch.control import job_stacks

        return of_data(await job_stacks(directory, ranks, prompter))

    @for_caller
    async def fetch(
        self,
        directory: JobDirectory,
        prompter: Prompter,
        paths: Sequence[str] = (),
        inventory: Inventory | None = None,
        *,
        nodes: Sequence[str] = (),
        attempt: int | None = None,
        into: Path | None = None,
        replaces: bool = False,
        on_listed: OnListed,
        on_progress: OnProgress,
        on_done: OnDone,
    ) -> Report:
        """Bring files that a job has left on its hosts, or list them; see `FetchRequest` and `fetch_files`.

        The hosts are those of the job's own inventory where none is given.

        Raises:
            UsageError: there is no such attempt or node, or nothing can be written where they are to go.
        """
        from dttui.fetching.fetch import fetch_files
        from dttui.fetching.models import FetchRequest

        return await fetch_files(
            directory,
            FetchRequest(tuple(paths), tuple(nodes), attempt, into, replaces),
            inventory,
            self._ways.transport,
            prompter,
            on_listed=on_listed,
            on_progress=on_progress,
            on_done=on_done,
        )

    @for_caller
    async def keep(
        self, directory: JobDirectory, prompter: Prompter, inventory: Inventory | None = None, *, keeps: bool
    ) -> list[HostRetention]:
        """Have a job's hosts keep what it has left there, or let it go when its time has come; see `set_retention`."""
        from dttui.fetching.host_retention import set_retention

        return await set_retention(directory, inventory, self._ways.transport, prompter, keeps=keeps)

    @for_caller
    def diagnose(self, directory: JobDirectory, view: JobView) -> Diagnosis:
        """Return why a job failed, or how it stands where it has not."""
        from dttui.diagnosis.diagnose import diagnose
        from dttui.diagnosis.evidence import read_evidence

        return diagnose(read_evidence(directory, view))

    @for_caller
    def removable(
        self, names: Sequence[str] = (), *, force: bool = False, before: float | None = None, keep: int = 0
    ) -> list[RemovableJob]:
        """Return the jobs of these names, or those that are over; see `choose` and `choose_finished`.

        Raises:
            UsageError: there is none of a name, or one runs.
        """
        from dttui.jobs.removal import choose, choose_finished

        return choose(names, force=force) if names else choose_finished(before=before, keep=keep)

    @for_caller
    def remove(self, removal: RemovableJob) -> None:
        """Take a job that is over off this login node. Raises UsageError where that cannot be."""
        from dttui.jobs.removal import remove

        remove(removal)

    @for_caller
    def login_session(self) -> LoginSession:
        """Return what of this login session a job that goes on would miss."""
        from dttui.launch.login_session import agent_is_forwarded, logout_kills

        return LoginSession(logout_kills(), agent_is_forwarded())
