"""What may end an attempt of which nothing has failed: ranks apart, a hang, a host that is unhealthy or too slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dtagent.protocol.events import Event

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.given_up import EndedFor
from dttui.engine.gpu_reader import ReadGpus
from dttui.engine.hang import HangWatch
from dttui.engine.health import HealthWatch
from dttui.engine.nodes.node_record import Steps
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.rendezvous.together import TogetherWatch
from dttui.engine.slow_link_watch import SlowLinkWatch
from dttui.engine.stragglers import StragglerWatch
from dttui.jobs import JobDirectory
from dttui.jobs.disturbances import APART, HANG
from dttui.planning.models import Plan
from dttui.redaction import Redaction
from dttui.spec.failure_causes import STRAGGLER, UNHEALTHY


class DisturbanceWatch:
    """Looks for each of them, and tells what it sees; what the job is not to be ended for is told alone.

    Args:
        plan: of the attempt.
        directory: of the job.
        log: of the attempt.
        members: returns the nodes whose ranks are to train together.
        read_gpus: returns what their GPUs did.
        steps: that ranks have reported.
        redaction: finds what no text of where ranks stand may hold.
        on_change: called when there may be something new.
        next_spare: returns who would take a place now, `None` where nobody would.
        told: what another controller has told of the attempt.
    """

    def __init__(
        self,
        plan: Plan,
        directory: JobDirectory,
        log: AttemptLog,
        members: Callable[[], Sequence[NodeRun]],
        read_gpus: ReadGpus,
        steps: Steps,
        redaction: Redaction,
        on_change: Callable[[], None],
        next_spare: Callable[[], str | None],
        told: Sequence[Event],
    ) -> None:
        self._members = members
        self._steps = steps
        self.together = TogetherWatch(plan, members, log)
        """Whether the ranks train together."""
        self._hang = HangWatch(plan.recovery, directory, log, members, read_gpus, redaction, on_change, told)
        self._health = HealthWatch(plan.health, log, told)
        self._stragglers = StragglerWatch(
            plan, directory, log, members, read_gpus, on_change, next_spare, told, steps.times
        )

        self._links = SlowLinkWatch(plan.recovery.straggler_s, log, members, on_change, told)

    @property
    def waits_s(self) -> list[float]:
        """After how long it wants to look again, each that does."""
        watches = self.together, self._hang, self._stragglers, self._links
        return [watch.wait_s for watch in watches if watch.wait_s is not None]

    def look(self, *, all_run: bool, goes_on: bool) -> EndedFor | None:
        """Return for what the attempt is to be ended, if it is.

        Args:
            all_run: whether all ranks run.
            goes_on: whether nothing ends it already.
        """
        found: EndedFor | None = None
        if all_run and (apart := self.together.look()) and self.together.is_required:
            found = EndedFor(APART, apart.message, apart.why)
        runs = all_run and goes_on and found is None
        if (hang := self._hang.look(self._steps, is_running=runs)) and hang.ends and runs:
            found = EndedFor(HANG, hang.message, hang.hint)
        if ill := self._health.look(self._members(), is_running=runs and found is None):
            found = found or EndedFor(UNHEALTHY, ill.message, ill.hint, ill.node)
        self._links.look(is_running=runs and found is None)
        # Over a slow link ranks come late to collectives for no fault of their own.
        trains = runs and found is None and not self._links.is_named
        if slow := self._stragglers.look(is_running=trains, may_tell=not self._links.is_suspected):
            found = found or EndedFor(STRAGGLER, slow.message, slow.hint, slow.node)
        return found

    async def close(self) -> None:
        """Ask no more."""
        await self._hang.close()
        await self._stragglers.close()
        await self._links.close()
