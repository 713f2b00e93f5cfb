"""What the directory of a job that is over still lacks: lines that a full disk held back, logs of hosts that are done.

Not the logs of a host that was lost while its part ran: those are fetched by `lost_hosts` while the job goes on, and
by `leftovers` at the next `dttui attach` or `stop` where it is over. Only where another host is asked for its logs
here, lost ones are asked in the same look, which is `leftovers.clean_up_after_job`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dtagent.protocol.events import EventKind

from dttui.i18n import msg
from dttui.jobs import HEARTBEAT_S, JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.left_to_do import unfetched_nodes
from dttui.jobs.view import FILES_LATE

MOST_LOOKS = 8
"""At hosts that still have logs: over some twenty minutes in all."""
FIRST_PAUSE_S = 10.0
"""Between two looks; each further pause is twice as long."""


class Completion:
    """Stays with a job that is over until its directory has all that it is to have, or hosts were asked often enough.

    Args:
        directory: of the job.
        log: of its events.
        look: at the hosts of the job: it fetches the logs that are still there.
        wants_logs: whether logs are still to be fetched; a forced stop leaves them there.
        sleep: for so many seconds.
    """

    def __init__(
        self,
        directory: JobDirectory,
        log: EventLog,
        look: Callable[[], Awaitable[None]],
        wants_logs: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._directory = directory
        self._log = log
        self._look = look
        self._wants_logs = wants_logs
        self._sleep = sleep
        self._is_told = False

    async def complete(self) -> None:
        """Write what can be written and fetch what can be fetched."""
        await self._write_held_back()
        await self._fetch_logs()

    async def _write_held_back(self) -> None:
        """Wait until all is written that the disk had no room for."""
        while not self._log.flush():
            await self._wait_for_room()

    async def _fetch_logs(self) -> None:
        """Fetch logs of hosts that fell silent once their part had ended, or that found no room here then."""
        looks = 0
        while self._has_late_logs():
            while not self._directory.has_room():
                await self._wait_for_room()
            self._tell(msg("the job is over; logs that are missing in {path} are fetched once their hosts answer, "
                           "unless this controller ends before", path=str(self._directory.path)))  # fmt: skip
            await self._look()
            pause_s = FIRST_PAUSE_S * 2**looks
            looks += 1
            await self._write_held_back()
            if looks == MOST_LOOKS or not self._has_late_logs():
                return
            await self._sleep(pause_s)

    def _has_late_logs(self) -> bool:
        """Whether there are logs on hosts that the end would have waited for.

        A lost host alone is none of these: of its logs nothing is known.
        """
        return self._wants_logs() and bool(unfetched_nodes(self._directory.read_events(EventKind.FINDING)))

    async def _wait_for_room(self) -> None:
        self._tell(msg("the job is over; what is missing in {path} is written once there is room, unless this "
                       "controller ends before", path=str(self._directory.path)))  # fmt: skip
        await self._sleep(HEARTBEAT_S)

    def _tell(self, message: str) -> None:
        """Tell once why the controller stays, so that nobody who follows the job waits for that."""
        if not self._is_told:
            self._is_told = True
            self._log.add(EventKind.PROGRESS, message, data={FILES_LATE: True})
