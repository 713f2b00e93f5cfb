"""Whether a job's spares could take a node's place now: each is checked as if it had, and nothing waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace

from dtagent.protocol.facts import HostFacts

from dttui.errors import DttuiError, HostError
from dttui.i18n import _
from dttui.inventory.models import Environment, Inventory
from dttui.planning.lineup import Lineup
from dttui.planning.models import Finding, Plan, PlannedNode
from dttui.preflight.nodes import CheckedHost
from dttui.preflight.occupation import MERELY_BUSY
from dttui.preflight.preflight import Preflight, Replan
from dttui.preflight.software import differences, drift_findings
from dttui.spec.findings import Severity, warning
from dttui.transport.base import Prompter, Transport
from dttui.transport.deadline import Deadline, within

SPARE_S = 60.0
"""For all checks of one spare, once it is reached."""
CLOSE_S = 5.0
PLANS_AT_ONCE = 2
"""All at once, the plans of many spares would leave no thread to anybody else."""


@dataclass(frozen=True)
class SpareChecks:
    """Checks the spares of a plan, all at once."""

    plan: Plan
    inventory: Inventory
    replan_for: Callable[[Lineup], Replan]
    """Plans the job with who takes part."""
    transport: Transport
    prompter: Prompter
    """Who is asked for what it takes to log in."""
    ignored: frozenset[str] = frozenset()
    """Codes of errors that a person wants ignored."""
    lineup: Lineup = field(default_factory=Lineup)
    """Who stands in the plan for those that the job's file names."""
    plans: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PLANS_AT_ONCE))

    @property
    def names(self) -> tuple[str, ...]:
        """Those that may take a place, and have none."""
        taken = {node.name for node in self.plan.nodes}
        return tuple(name for name in self.plan.recovery.usable_spares if name not in taken)

    async def run(self, own: Preflight, tell: Callable[[Finding], None]) -> None:
        """Tell, as a warning each, what would keep a spare from a place, and what is other there than on the hosts.

        No spare is asked before the job's hosts were: what a person is asked for is for those first, and so is the way
        by a jump host, where whoever comes first answers for all.

        Args:
            own: the preflight of the job's own hosts.
            tell: called with each finding.
        """
        await own.over.wait()
        await asyncio.gather(*(self._check(item, own, tell) for item in map(self.inventory.find, self.names) if item))

    async def _check(self, spare: Environment, own: Preflight, tell: Callable[[Finding], None]) -> None:
        name, place = spare.name, self._place_for(spare)
        host, deadline = CheckedHost(spare, place, self.transport, self.prompter), Deadline(SPARE_S)
        try:
            await host.connect()  # Planning is for those that answer; a person may take his time to let us in.
            found, plan, facts = await deadline.run(self._ask(host, deadline))
            found = [*found, *_differences(name, plan, {**own.facts, **facts})]
        except TimeoutError:
            message = _("{host}: no answer within {seconds:g} s").format(host=name, seconds=SPARE_S)
            found = [_refusal(name, "unchecked", message)]
        except HostError as failure:
            found = [_refusal(name, "unreachable", failure.message, failure.hint)]
        except DttuiError as failure:
            found = [_refusal(name, "spare-unfit", failure.message, failure.hint)]
        except (OSError, ValueError) as error:  # Of a file that planning reads: no other spare is worse off for it.
            reason = f"{type(error).__name__}: {error}"
            message = _("the spare {name} could not be checked: {reason}").format(name=name, reason=reason)
            found = [warning("spare-unchecked", name, message)]
        finally:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(host.close(), CLOSE_S)
        for finding in found:
            tell(
                finding
                if finding.severity is Severity.WARNING
                else _refusal(name, finding.code, finding.message, finding.hint)
            )

    async def _ask(self, host: CheckedHost, deadline: Deadline) -> tuple[list[Finding], Plan, dict[str, HostFacts]]:
        """Return what its checks have found, the job's plan with it beside all hosts, and what it says of itself.

        Raises:
            DttuiError: it cannot be had, or not be planned for.
        """
        spare, place = host.environment, host.planned

        @contextlib.asynccontextmanager
        async def planning() -> AsyncIterator[None]:
            with deadline.paused():
                await self.plans.acquire()
            try:
                yield
            finally:
                self.plans.release()

        async with planning():
            replan = self.replan_for(self.lineup.changed({place.name: spare.name}, self.plan))
            plan = await asyncio.to_thread(replan, self.inventory, {}, ())
        planned = next((node for node in plan.nodes if node.name == spare.name), None)
        if plan.errors or planned is None:
            return list(plan.errors), plan, {}
        host.planned = planned
        checks = Preflight([host], plan, self.inventory, replan, ignored=self.ignored, planning=planning)
        board = await checks.run()
        if spare.name in board.unreachable:
            raise board.unreachable[spare.name]
        told = [item for item in board.findings if item.subject == spare.name]
        worth = [item for item in told if item.severity is not Severity.INFO and item.code != MERELY_BUSY]
        return worth, plan.model_copy(update={"nodes": (*self.plan.nodes, planned)}), checks.facts

    def _place_for(self, spare: Environment) -> PlannedNode:
        """Return the largest place that it has GPUs enough for, the last one of such; the smallest where none fits."""
        gpu = spare.resources.gpu
        room = gpu.count if gpu is not None else 0
        fitting = [node for node in self.plan.nodes if node.slots <= room or not (node.simulated or node.cuda_slots)]
        ordered = sorted(fitting or self.plan.nodes, key=lambda node: node.slots)
        return ordered[-1] if fitting else ordered[0]


def _differences(name: str, plan: Plan, facts: Mapping[str, HostFacts]) -> list[Finding]:
    """Return what is other on a spare than on most hosts."""
    drift = [
        replace(item, others={value: (name,)})
        for item in differences(plan, facts)
        for value, names in item.others.items()
        if name in names
    ]
    return drift_findings(tuple(drift))


def _refusal(name: str, code: str, message: str, hint: str = "") -> Finding:
    """Return a warning of what would be an error of a host."""
    told = _("the spare {name} would be refused now: {reason}").format(name=name, reason=message)
    return warning(code, name, told, hint)
