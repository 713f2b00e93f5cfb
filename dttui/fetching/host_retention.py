"""Has the hosts of a job keep what it has left there beyond its time, or let it go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from dtagent.protocol.saved import KeepReply, KeepRequest

from dttui.errors import HostError, UsageError
from dttui.fetching.host_link import HOSTS_AT_ONCE, HostLink
from dttui.fetching.hosts_of_job import all_hosts_of
from dttui.files import write_atomic
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.keep_requests import KeepRequests
from dttui.transport.base import Prompter, Transport


@dataclass(frozen=True)
class HostRetention:
    """One host, and what it keeps now."""

    node: str
    directories: tuple[str, ...] = ()
    """Of the job's attempts there; none where it has nothing of the job any more."""
    error: str = ""
    """Why it has not been told."""
    hint: str = ""


async def set_retention(
    directory: JobDirectory, inventory: Inventory | None, transport: Transport, prompter: Prompter, *, keeps: bool
) -> list[HostRetention]:
    """Tell every host of a job, and note here which of them were told; attempts that follow are told the same.

    Raises:
        UsageError: the job has started nowhere, or that cannot be noted.
    """
    hosts = all_hosts_of(directory, inventory)

    places = asyncio.Semaphore(HOSTS_AT_ONCE)

    async def tell(name: str) -> HostRetention:
        environment, job_ids = hosts[name]
        link = HostLink(environment, transport, prompter)
        async with places:
            try:
                replies = [await link.call("keep", KeepRequest(job_id, keeps), KeepReply) for job_id in job_ids]
            except HostError as error:
                return HostRetention(name, error=error.message, hint=error.hint)
            finally:
                await link.close()
        return HostRetention(name, tuple(path for reply in replies for path in reply.directories))

    found = await asyncio.gather(*map(tell, hosts))
    before = directory.keep_requests()
    told = {item.node: keeps for item in found if not item.error}
    word = KeepRequests(keeps, {**(before.hosts if before is not None else {}), **told})
    try:
        write_atomic(directory.kept, word.as_text())
    except OSError as error:
        message = _("{path} cannot be written: {reason}").format(path=directory.kept, reason=error.strerror)
        raise UsageError(message) from error
    return found
