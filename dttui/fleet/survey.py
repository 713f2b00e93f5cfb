"""One look at environments: each is asked until it is known to be well or not, or the time is up."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

from dttui.fleet.live import EnvironmentStatus, Fleet
from dttui.fleet.waiting import Asking, OnWait, saying
from dttui.inventory.models import Environment
from dttui.transport.base import Prompter, Transport
from dttui.transport.deadline import Deadline


async def survey(
    environments: Sequence[Environment],
    transport: Transport,
    prompter: Prompter,
    within_s: float,
    on_wait: OnWait | None = None,
) -> tuple[list[EnvironmentStatus], set[str]]:
    """Return how environments are, and the names of those that have neither answered nor refused in time.

    Args:
        environments: the hosts.
        transport: how they are reached.
        prompter: who is asked for what it takes to log in; the time that takes does not count.
        within_s: how long to wait.
        on_wait: told meanwhile who is waited for.
    """
    deadline = Deadline(within_s)
    asking = Asking(prompter, deadline)
    fleet = Fleet(environments, transport, asking)

    def look() -> tuple[list[str], float]:
        return [name for name in fleet.statuses if name in fleet.pending], deadline.left_s

    fleet.start()
    try:
        async with saying(on_wait, asking, look):
            with contextlib.suppress(TimeoutError):
                await deadline.run(fleet.settle(math.inf))
    finally:
        pending = set(fleet.pending)
        await fleet.close()
    return list(fleet.statuses.values()), pending
