"""The agents of hosts: how they are, bringing them there, and taking them away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dttui.app.caller import ForCaller, for_caller

if TYPE_CHECKING:
    from dttui.errors import HostError
    from dttui.fleet.deployment.outcomes import AgentRemoval, AgentStatus, Deployment
    from dttui.fleet.waiting import OnWait
    from dttui.inventory.models import Environment
    from dttui.transport.base import Prompter

    OnDone = Callable[[str, Deployment | AgentStatus | AgentRemoval | HostError], None]
    """Told a host's name and what came of it, as soon as that is known."""


def _nobody_waits(host: str, result: object) -> None:
    """Take note of nothing: all results come at the end."""


class Agents(ForCaller):
    """What is done about them for one caller. Each call tells `on_done` of a host as soon as that is done with."""

    @for_caller
    async def status(
        self,
        environments: Sequence[Environment],
        prompter: Prompter,
        on_wait: OnWait | None = None,
        on_done: OnDone = _nobody_waits,
    ) -> list[AgentStatus | HostError]:
        """Return how the agent is on each of the hosts; `on_wait` is told meanwhile who is waited for."""
        from dttui.fleet.deployment.status import status_all

        return await status_all(environments, self._ways.transport, prompter, on_wait=on_wait, on_done=on_done)

    @for_caller
    async def deploy(
        self,
        environments: Sequence[Environment],
        prompter: Prompter,
        *,
        wheelhouse: Path | None,
        tools: Sequence[str] = (),
        only_upgrade: bool,
        allow_downgrade: bool,
        dry_run: bool = False,
        on_progress: Callable[[str, str], None],
        on_done: OnDone = _nobody_waits,
    ) -> list[Deployment | HostError]:
        """Bring the agent to hosts, and return how each ended, or would with `dry_run`; see `deploy_all`.

        Raises:
            UsageError: one of the tools to be brought beside it is none that there is.
        """
        from dttui.fleet.deployment.deploy import deploy_all
        from dttui.fleet.deployment.tools import named
        from dttui.fleet.deployment.wheel_source import WheelSource

        return await deploy_all(
            environments,
            self._ways.transport,
            prompter,
            source=WheelSource(wheelhouse),
            tools=named(tools),
            only_upgrade=only_upgrade,
            allow_downgrade=allow_downgrade,
            dry_run=dry_run,
            on_progress=on_progress,
            on_done=on_done,
        )

    @for_caller
    async def remove(
        self,
        environments: Sequence[Environment],
        prompter: Prompter,
        *,
        force: bool,
        jobs: bool,
        checkpoints: bool,
        dry_run: bool = False,
        on_progress: Callable[[str, str], None],
        on_done: OnDone = _nobody_waits,
    ) -> list[AgentRemoval | HostError]:
        """Remove the agent from hosts; return what became of each, or would with `dry_run`; see `remove_all`."""
        from dttui.fleet.deployment.remove import remove_all

        return await remove_all(
            environments,
            self._ways.transport,
            prompter,
            force=force,
            jobs=jobs,
            checkpoints=checkpoints,
            dry_run=dry_run,
            on_progress=on_progress,
            on_done=on_done,
        )
