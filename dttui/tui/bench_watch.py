"""Benches of this app, followed to their ends whichever screen is shown, so that what they find is kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING

from dttui.app import App
from dttui.errors import DttuiError, UsageError
from dttui.i18n import _
from dttui.jobs import JobDirectory
from dttui.spec import Finding
from dttui.tui.attachments import Attachments

if TYPE_CHECKING:  # Else the first frame would wait for it.
    from dttui.app import BenchReport, KeptBench

LOOK_S = 0.5
ATTACH_S = 5.0


class BenchWatch:
    """One bench as it goes."""

    def __init__(self, directory: JobDirectory, face: App, attachments: Attachments) -> None:
        self.directory = directory
        self._face = face
        self._attachments = attachments
        self.follower = face.follow(directory, reads_samples=False)
        self.report: BenchReport | None = None
        """What it has found so far; `None` before the first look."""
        self.ended: tuple[KeptBench, Sequence[Finding]] | None = None
        """What it has come to; `None` while it goes, and where that could not be read."""
        self.is_over = False
        self.fault: DttuiError | None = None
        """Why it could not be read."""

    async def follow(self) -> None:
        """Follow it to its end, and keep what it has found; it is over, too, once its job can no longer be read."""
        listening = asyncio.create_task(self._listen())
        try:
            while not self.follower.is_over:
                self.follower.poll()
                report = await asyncio.to_thread(self._face.bench.so_far, self.directory)
                if report != self.report:  # Else who shows it would draw the same again.
                    self.report = report
                await asyncio.sleep(LOOK_S)
            self.ended = await asyncio.to_thread(self._face.bench.finish, self.directory, self.follower.view)
            self.report = self.ended[0].report
        except DttuiError as fault:
            self.fault = fault
        except (OSError, ValueError) as fault:
            reason = getattr(fault, "strerror", None) or str(fault).partition("\n")[0]
            message = _("{path} cannot be read: {reason}").format(path=self.directory.path, reason=reason)
            self.fault = UsageError(message, _("If the job still runs, `dttui ps` names it."))
        finally:
            listening.cancel()
            self.is_over = True

    async def stop(self) -> None:
        """Have it stopped. Raises NotFinishedError where no controller is there."""
        await self._attachments.stop(self.directory, force=False)

    async def _listen(self) -> None:
        """Be there for the questions of its controller, also of one that takes over."""
        is_attached = False
        while True:
            if not is_attached or not self.directory.has_controller():
                with contextlib.suppress(DttuiError, OSError, ValueError):
                    await self._attachments.attach(self.directory)
                    is_attached = True
            await asyncio.sleep(ATTACH_S)


class Benches:
    """The newest bench of each set of hosts."""

    def __init__(
        self, face: App, attachments: Attachments, run: Callable[[Coroutine[None, None, None]], object]
    ) -> None:
        """Follow benches by `run`, which lets something go on beside the screens."""
        self._face = face
        self._attachments = attachments
        self._run = run
        self._watches: dict[frozenset[str], BenchWatch] = {}

    def of_hosts(self, hosts: Sequence[str]) -> BenchWatch | None:
        """Return the bench of these hosts that this app has begun."""
        return self._watches.get(frozenset(hosts))

    def begin(self, hosts: Sequence[str], directory: JobDirectory) -> BenchWatch:
        """Follow a bench whose job was submitted."""
        watch = self._watches[frozenset(hosts)] = BenchWatch(directory, self._face, self._attachments)
        self._run(watch.follow())
        return watch
