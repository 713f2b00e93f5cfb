"""Files of a job from its hosts: what there is, whether there is room for it here, and bringing it."""

from __future__ import annotations

import asyncio
import posixpath
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind
from dtagent.protocol.saved import MAX_ASKED

from dttui.errors import HostError, UsageError
from dttui.fetching.file_transfer import FileTransfer
from dttui.fetching.host_link import HOSTS_AT_ONCE, HostLink
from dttui.fetching.hosts_of_job import hosts_of
from dttui.fetching.listing import arranged, list_host
from dttui.fetching.models import (
    FetchedFile,
    FetchRequest,
    Listing,
    OnDone,
    OnListed,
    OnProgress,
    Progress,
    RemoteFile,
    Report,
)
from dttui.fetching.target import Target
from dttui.i18n import _
from dttui.inventory.models import Environment, Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.saved_text import saved_of
from dttui.sanitize import clean
from dttui.transport.base import Prompter, Transport
from dttui.words import listed, size_text

FILES_AT_ONCE = 8
"""Of one host: of small ones each waits for the way there and back."""
MOST_NAMES = 5


async def fetch_files(
    directory: JobDirectory,
    asked: FetchRequest,
    inventory: Inventory | None,
    transport: Transport,
    prompter: Prompter,
    *,
    on_listed: OnListed,
    on_progress: OnProgress,
    on_done: OnDone,
) -> Report:
    """Bring files that a job has left on its hosts, or only list them.

    Args:
        directory: of the job.
        asked: what, and where to.
        inventory: its hosts, where they are others than those of the launch.
        transport: how hosts are reached.
        prompter: who is asked for what it takes to log in.
        on_listed: hears what there is, before any of it comes.
        on_progress: hears how far it is.
        on_done: hears of each file once nothing more is done for it.

    Raises:
        UsageError: there is no such attempt or node, or nothing can be written where they are to go.
    """
    found = hosts_of(directory, asked, inventory)
    attempt = found.attempt
    fetch = Fetch(found.keys, transport, prompter)
    names = {environment.name: directory.logs(attempt, environment.name).name for environment, _key in found.keys}
    try:
        listed_here = await fetch.list(asked.paths, _told(directory, attempt))
        listings = arranged(listed_here, names, are_apart=found.nodes > 1)
        on_listed(listings)
        if asked.into is None or not any(listing.files for listing in listings):
            return Report(None, attempt, list(listings))
        report = await fetch.bring(
            listings, asked.into, replaces=asked.replaces, on_progress=on_progress, on_done=on_done
        )
        return replace(report, attempt=attempt)
    finally:
        await fetch.close()


class Fetch:
    """One fetch of a job's files.

    Args:
        keys: host → the attempt there.
        transport: how hosts are reached.
        prompter: who is asked for what it takes to log in.
    """

    def __init__(
        self, keys: Sequence[tuple[Environment, AttemptKey]], transport: Transport, prompter: Prompter
    ) -> None:
        self._links = {environment.name: HostLink(environment, transport, prompter) for environment, _key in keys}
        self._keys = {environment.name: key for environment, key in keys}

    async def close(self) -> None:
        """End all conversations."""
        await asyncio.gather(*(link.close() for link in self._links.values()))

    async def list(self, paths: Sequence[str], told: Mapping[str, Sequence[str]]) -> list[Listing]:
        """Return what each host has; see `list_host`, of whose `told` these are by host."""
        places = asyncio.Semaphore(HOSTS_AT_ONCE)

        async def ask(name: str, link: HostLink) -> Listing:
            async with places:
                return await list_host(link, self._keys[name], paths, told.get(name, ()))

        return await asyncio.gather(*(ask(name, link) for name, link in self._links.items()))

    async def bring(
        self,
        listings: Sequence[Listing],
        directory: Path,
        *,
        replaces: bool,
        on_progress: OnProgress,
        on_done: OnDone,
    ) -> Report:
        """Bring what is listed; what fails of one file or host keeps nobody from the others.

        Raises:
            UsageError: the directory cannot be written, has no room, or holds other files of these names.
        """
        target = Target(directory)
        report = Report(str(directory), listings=list(listings))
        files = [file for listing in listings for file in listing.files]
        await asyncio.to_thread(_check, target, files, replaces=replaces)
        total = sum(file.size_bytes for file in files)
        done_bytes = 0

        def on_bytes(file: RemoteFile, count: int) -> None:
            nonlocal done_bytes
            done_bytes += count
            on_progress(Progress(done_bytes, total, file))

        places = asyncio.Semaphore(HOSTS_AT_ONCE)

        async def bring(index: int, listing: Listing) -> None:
            async with places:
                link = self._links[listing.node]
                transfer = FileTransfer(link, target, replaces=replaces, on_bytes=on_bytes)
                try:
                    await _bring_all(transfer, listing.files, report.done, on_done)
                except HostError as error:
                    report.listings[index] = replace(listing, error=error.message, hint=error.hint)

        tasks = [asyncio.create_task(bring(*item)) for item in enumerate(listings) if item[1].files]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return report


async def _bring_all(
    transfer: FileTransfer, files: Sequence[RemoteFile], done: list[FetchedFile], on_done: OnDone
) -> None:
    """Bring files, a few at once. Raises HostError once the host has fallen silent."""
    waiting = iter(files)

    async def work() -> None:
        for file in waiting:
            fetched = await transfer.fetch(file)
            done.append(fetched)
            on_done(fetched)

    workers = [asyncio.create_task(work()) for _number in range(min(FILES_AT_ONCE, len(files)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def _told(directory: JobDirectory, attempt: int) -> dict[str, list[str]]:
    """Return what each host was said to have at the end of an attempt, by host."""
    found: dict[str, list[str]] = {}
    for event in directory.read_events(EventKind.SAVED):
        if event.attempt == attempt and event.node is not None:
            found[event.node] = [item.path for item in saved_of(event) if posixpath.isabs(item.path)][:MAX_ASKED]
    return found


def _check(target: Target, files: Sequence[RemoteFile], *, replaces: bool) -> None:
    """Refuse to begin what cannot end well. Raises UsageError."""
    _check_places(target, files, replaces=replaces)
    _check_room(target, files, replaces=replaces)


def _check_places(target: Target, files: Sequence[RemoteFile], *, replaces: bool) -> None:
    """Refuse to begin where something here has the place of a file and is surely another."""
    if replaces:
        return
    taken = []
    for file in files:
        try:
            found = target.status(file.target)
        except OSError:
            taken.append(file.target)
            continue
        if found is not None and not (stat.S_ISREG(found.st_mode) and found.st_size == file.size_bytes):
            taken.append(file.target)
    if taken:
        names = listed([clean(name) for name in taken], MOST_NAMES)
        raise UsageError(
            _("other files have these places in {path}: {names}").format(path=target.path, names=names),
            _("--force replaces them; -o DIR fetches to another directory. Nothing was fetched."),
        )


def _check_room(target: Target, files: Sequence[RemoteFile], *, replaces: bool) -> None:
    """Refuse to begin what has no room."""
    wanted = sum(_still_to_come(target, file, replaces=replaces) for file in files)
    free = target.free_bytes()
    if wanted > free:
        raise UsageError(
            _("{wanted} are to come, and {path} has room for {free}").format(
                wanted=size_text(wanted), path=target.path, free=size_text(free)
            ),
            _("Make room, choose another directory with -o DIR, or name what to fetch: --list shows what there is."),
        )


def _still_to_come(target: Target, file: RemoteFile, *, replaces: bool) -> int:
    """Return how many bytes may come of a file; where others are replaced, one of its size may be another."""
    try:
        found = target.status(file.target)
    except OSError:
        return 0
    is_alike = found is not None and stat.S_ISREG(found.st_mode) and found.st_size == file.size_bytes
    if is_alike and not replaces:
        return 0
    return max(0, file.size_bytes - target.part_size(file.target))
