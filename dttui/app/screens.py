"""What only screens ask for: all jobs look by look, what a dashboard shows, a shell, how a screen was left."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dttui.app.caller import Caller, ForCaller, Ways, for_caller

if TYPE_CHECKING:
    from dttui.jobs.briefs import JobBriefs
    from dttui.jobs.catalogue import JobCatalogue
    from dttui.jobs.curves import ChosenPlots, EarlierRun
    from dttui.jobs.directory import JobDirectory
    from dttui.transport.host_shell import HostShell


class ScreenCalls(ForCaller):
    """What is done for the screens of one caller."""

    def __init__(self, caller: Caller, ways: Ways) -> None:
        super().__init__(caller, ways)
        self._catalogue: JobCatalogue | None = None

    @for_caller
    def briefs(self) -> JobBriefs:
        """Return what tells, look by look, which jobs run and what has failed that nobody has seen."""
        from dttui.jobs.briefs import JobBriefs
        from dttui.jobs.following import JobFollower

        return JobBriefs(lambda directory: JobFollower(directory, reads_samples=False))

    @for_caller
    def catalogue(self) -> JobCatalogue:
        """Return what lists all jobs, again and again, without reading again what is known: always the same."""
        from dttui.jobs.catalogue import JobCatalogue

        self._catalogue = self._catalogue or JobCatalogue()
        return self._catalogue

    @for_caller
    def earlier_run(self, directory: JobDirectory) -> EarlierRun | None:
        """Return how the same job went the last time before that; `None` where it is not known."""
        from dttui.jobs.plot_sources import earlier_run

        return earlier_run(directory)

    @for_caller
    def chosen_plots(self, directory: JobDirectory) -> ChosenPlots:
        """Return which plots a job wants to be shown."""
        from dttui.jobs.plot_sources import chosen_plots

        return chosen_plots(directory)

    @for_caller
    def host_shell(self, directory: JobDirectory, node: str, known: str | None) -> HostShell:
        """Return what gives a person a shell on a host of a job; `known` is one of its paths there. See `host_shell`.

        Raises:
            UsageError: the job does not tell how the host is reached.
        """
        from dttui.errors import UsageError
        from dttui.i18n import _
        from dttui.transport.host_shell import host_shell

        environment = None
        with contextlib.suppress(OSError):
            environment = directory.read_launch().inventory.find(node)
        if environment is None:
            raise UsageError(_("the job does not tell how {host} is reached").format(host=node))
        return host_shell(environment, directory.job_id, known)

    @for_caller
    async def open_shell(self, shell: HostShell) -> int:
        """Have a person use a shell at this terminal; return its exit status. Raises HostUnreachableError."""
        from dttui.transport.host_shell import open_shell

        return await open_shell(shell)

    @for_caller
    def remembered(self, screen: str) -> dict[str, Any]:
        """Return how a person has left a screen the last time."""
        from dttui.app.remembered import remembered

        return remembered(screen)

    @for_caller
    def remember(self, screen: str, left: Mapping[str, Any]) -> None:
        """Keep how a person leaves a screen."""
        from dttui.app.remembered import remember

        remember(screen, left)
