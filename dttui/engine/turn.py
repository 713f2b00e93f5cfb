"""Has a job wait for its turn until it has run once: at the hosts that it names, or at all that do as well as those."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import replace

from dtagent.protocol.events import EventKind, JobState

from dttui.engine.context import JobContext
from dttui.engine.queue_places import RETRY_S, QueuePlaces
from dttui.engine.recovered import PROMISE, RecoveredState
from dttui.files import write_atomic
from dttui.i18n import msg
from dttui.jobs.outcome import UNFIT, AttemptOutcome
from dttui.planning.lineup import Lineup
from dttui.planning.models import Plan
from dttui.spec.failure_causes import PREFLIGHT
from dttui.spec.findings import Finding, warning
from dttui.words import listed

MOST_NAMES = 4


class Turn:
    """The turn of a job at its hosts.

    Args:
        job: that waits.
        plan_for: plans it with who takes part.
        tell: tells a finding between two attempts.
        stopping: set once the job is to stop.
    """

    def __init__(
        self,
        job: JobContext,
        plan_for: Callable[[Lineup], Plan],
        tell: Callable[[Finding], None],
        stopping: asyncio.Event,
    ) -> None:
        self._job = job
        self._plan_for = plan_for
        self._tell = tell
        self._stopping = stopping
        self._places: QueuePlaces | None = None
        """In the lines of the hosts, while it stands there."""
        self._named: Plan | None = None
        """With the hosts that the job names, where others do as well."""
        self._unfit: set[str] = set()
        """Of those others, such that cannot take part."""

    @property
    def others(self) -> tuple[str, ...]:
        """Hosts that do as well as those that the job names."""
        return self._named.candidates if self._named is not None else ()

    def retry_now(self) -> None:
        """Try at once to reach the hosts that are silent."""
        if self._places is not None:
            self._places.retry_now()

    async def come(self, following: RecoveredState) -> RecoveredState | None:
        """Wait for the turn; return what is to begin then, of whoever has room, `None` where a stop was asked for.

        Raises:
            LaunchError: a host that is named can give no place.
        """
        asked_at = self._job.asked_at
        if asked_at is None:
            return following
        while True:
            if self._places is not None and self._places.is_narrowed:
                await self.leave()  # It may begin on any again.
            if self._places is None:
                self._places = await self._line_up(following, asked_at)
            if not await self._places.wait(self._stopping):
                return None
            if self._named is None:
                return following
            if (seated := await self._take_seats(self._places, self._named, following)) is not None:
                return seated
            await self.leave()

    async def may_come_again(self, outcome: AttemptOutcome, proven: Collection[str]) -> bool:
        """Return whether to wait again, since the checks have refused only hosts that others can stand for.

        Args:
            outcome: of an attempt that the checks have ended.
            proven: hosts that have passed those of one before.
        """
        if self._places is None:
            return False
        others = [name for name in self.others if name in outcome.nodes]
        refused = {name: outcome.nodes[name] for name in others if outcome.nodes[name].is_refused}
        for name, node in refused.items():
            if node.why == UNFIT:
                self._pass_over(name, node.reason or outcome.message)
        if any(node.why != UNFIT for node in refused.values()):
            with contextlib.suppress(asyncio.TimeoutError):  # Its place may be free still: it is not tried at once.
                await asyncio.wait_for(self._stopping.wait(), RETRY_S)
        is_of_all = outcome.cause == PREFLIGHT and not any(node.is_refused for node in outcome.nodes.values())
        unlike = [name for name in others if is_of_all and name not in proven]
        for name in unlike:
            self._pass_over(name, outcome.message, outcome.hint)
        return bool(refused or unlike) or not self._places.have_room

    async def was_lost(self, outcome: AttemptOutcome, plan: Plan) -> bool:
        """Return whether somebody else has got GPUs for which an attempt had begun to prepare.

        What was prepared is given up, and the places were with it: as another attempt it stands in line again.
        """
        asked_at = self._job.asked_at
        if self._places is None or asked_at is None:
            return False
        if not all(node.is_known_clean for node in outcome.nodes.values()):
            return False
        await self.leave()
        self._places = QueuePlaces(self._job, plan, outcome.attempt + 1, asked_at)
        self._places.is_narrowed = bool(self.others)
        # Else it failed of something else, or is to go on no more.
        return not await self._places.look(self._stopping) and not self._stopping.is_set()

    def keep(self, plan: Plan, attempt: int, hosts: Collection[str]) -> None:
        """Stand at some hosts for another attempt, and wait for nothing: they keep its place for seconds alone."""
        if self._job.asked_at is not None and hosts:
            self._places = QueuePlaces(self._job, plan, attempt, self._job.asked_at, hosts)
            self._places.stand()

    async def give_up(self, plan: Plan, attempt: int, hosts: Collection[str]) -> None:
        """Give up places, also those that hosts keep by themselves for an attempt that has failed."""
        if self._job.asked_at is not None and hosts:
            if self._places is not None:
                await self._places.leave(hosts)
            await QueuePlaces(self._job, plan, attempt, self._job.asked_at, hosts).give_up()

    async def leave(self) -> None:
        """Give all places up where the job has not got its GPUs."""
        if self._places is not None:
            places, self._places = self._places, None
            await places.leave()

    async def _line_up(self, following: RecoveredState, asked_at: float) -> QueuePlaces:
        """Return the places of a job at all hosts that it may begin on."""
        plan = following.plan
        if seats := following.promise.lineup.seats.values():
            named = await asyncio.to_thread(self._plan_for, Lineup())
            # A spare was not chosen among hosts that do as well: it was promised a place.
            chosen = set(named.candidates) - set(named.recovery.spares)
            if all(seat is not None and seat.environment in chosen for seat in seats):
                plan = named
        self._named = plan if plan.candidates else None
        others = [name for name in plan.candidates if name not in self._unfit]
        return QueuePlaces(self._job, plan, following.attempt, asked_at, others=others, pass_over=self._pass_over)

    async def _take_seats(self, places: QueuePlaces, named: Plan, following: RecoveredState) -> RecoveredState | None:
        """Have those hosts take part whose turn it is; return what is to begin, `None` where they cannot.

        Args:
            places: at all hosts that do.
            named: the plan with those that the job names.
            following: what is to begin.
        """
        choice = places.choice()
        lineup = Lineup.chosen(choice, named)
        plan = await asyncio.to_thread(self._plan_for, lineup) if choice else named
        if choice and plan.errors:
            unfit = {item.subject: item for item in plan.errors if item.subject in choice.values()}
            if not unfit and not named.errors:  # It is how they differ from the rest.
                unfit = dict.fromkeys(choice.values(), plan.errors[0])
            for name, finding in unfit.items():
                self._pass_over(name, finding.message, finding.hint)
            if unfit:
                return None
        await places.narrow([node.name for node in plan.nodes])
        if lineup == following.promise.lineup:
            return following
        promise = following.promise.model_copy(update={"lineup": lineup})
        pairs = [msg("{other} for {host}", other=other, host=name) for name, other in choice.items()]
        message = msg("its turn has come on the hosts that it names")
        if pairs:
            message = msg("its turn has come: {hosts}", hosts=listed(pairs, MOST_NAMES))
        data = {"state": JobState.PENDING.value, PROMISE: promise.model_dump(mode="json", exclude_defaults=True)}
        self._job.log.add(EventKind.JOB_STATE, message, data=data)
        with contextlib.suppress(OSError):  # For who follows the job; the attempt itself writes it again.
            write_atomic(self._job.directory.plan, plan.model_dump_json(indent=2))
        return replace(following, plan=plan, promise=promise)

    def _pass_over(self, name: str, why: str, hint: str = "") -> None:
        """Wait no more for a host that only does as well as those that the job names."""
        self._unfit.add(name)
        message = msg("{host} cannot take part, and is not waited for any more: {reason}", host=name, reason=why)
        self._tell(warning("candidate-unfit", name, message, hint))
