"""Following a job at a terminal, from its controller to the one that takes over when that dies, and what a key does."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from dtagent.protocol.events import JobState

from dttui.app import App, JobFollower, PromptKind
from dttui.cli.printing import Printer
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.showing import ended_first, show_new
from dttui.errors import NotFinishedError
from dttui.i18n import _
from dttui.jobs import JobDirectory

if TYPE_CHECKING:
    from dttui.app import ControllerClient

MOST_DEATHS = 3
"""Controllers of one job that may die while it is followed."""
STARTED = (JobState.RENDEZVOUS, JobState.RUNNING, JobState.STOPPING)
"""States in which processes of the job are there."""


class Interrupts:
    """What the person pressed, from before the job exists: once is a graceful stop, twice forces it.

    Args:
        printer: says what a key has done.
        prompter: whose open question a key declines.
        stops: whether an interrupt stops the job; else it leaves it.
    """

    def __init__(self, printer: Printer, prompter: TerminalPrompter, *, stops: bool = True) -> None:
        self.prompter = prompter
        self.left = False
        """Whether the terminal is gone, or this process was asked to go."""
        self._printer = printer
        self._stops = stops
        self._client: ControllerClient | None = None
        self._count = 0
        self._sending: set[asyncio.Task[None]] = set()
        self._told = ""

    def install(self) -> None:
        """Take over this process's signals."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt if self._stops else self._leave)
        loop.add_signal_handler(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGHUP, lambda *_: self._hang_up(loop))

    def attach(self, client: ControllerClient) -> None:
        """Send what was pressed so far, and from now on each as it comes."""
        self._client = client
        if self._count:
            self._send()

    async def finish(self) -> None:
        """Wait until everything is sent."""
        await asyncio.gather(*self._sending)

    def look_at(self, directory: JobDirectory) -> None:
        """Say of a controller that gives no sign of life what to do, once somebody wants the job's end, or to leave."""
        if (self._count or self.left) and not self._told and (hangs := App().hanging(directory)) is not None:
            self._tell(hangs)

    def _interrupt(self) -> None:
        self._count += 1
        self._printer.note(
            _("forcing the end")
            if self._count > 1
            else _("stopping gracefully, so that ranks can write a checkpoint; press Ctrl-C again to force it")
        )
        if self._client is not None:
            self._send()
        self.prompter.decline()

    def _leave(self) -> None:
        self.left = True
        self.prompter.decline()

    def _hang_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Leave; the signal comes once more, of who watches the terminal, at any time until this process ends."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with contextlib.suppress(RuntimeError):  # It is closed: how this process ends is settled.
            loop.call_soon_threadsafe(self._leave)

    def _send(self) -> None:
        if self._client is not None:
            task = asyncio.ensure_future(self._ask(self._client, force=self._count > 1))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _ask(self, client: ControllerClient, *, force: bool) -> None:
        """Ask for a stop; say of a controller that does not answer what to do."""
        if not await client.stop(force=force) and (vain := await client.unanswered()) is not None:
            self._tell(vain)

    def _tell(self, hangs: NotFinishedError) -> None:
        if hangs.message != self._told:
            self._told = hangs.message
            self._printer.note(f"⚠ {hangs.message}")
            self._printer.note(f"  → {hangs.hint}")


async def follow_job(
    follower: JobFollower, printer: Printer, interrupts: Interrupts, *, until: Callable[[], bool] = lambda: False
) -> None:
    """Show the job until it is over, `until` says so, or the person has left.

    Where its controller dies meanwhile, another one takes over.

    Raises:
        NotFinishedError: there is none, and none lives.
    """
    directory = follower.directory
    for death in range(MOST_DEATHS + 1):
        if death:
            printer.note(_("the controller of {id} has died; another one takes over").format(id=directory.job_id))
        App().revive(directory, expects_client=True)
        if await _follow_controller(follower, printer, interrupts, until):
            break
    else:
        raise ended_first(directory)
    if interrupts.left and not follower.is_over:
        printer.note(_("leaving; the job goes on. `dttui stop {id}` ends it").format(id=directory.job_id))


async def tell_detached(directory: JobDirectory, printer: Printer) -> None:
    """Say what of a job that is left to its controller ends with this login session."""
    typed: tuple[str, ...] = ()
    with contextlib.suppress(NotFinishedError):
        client = await App().attach(directory)
        typed = await client.typed_kinds()
        await client.close()
    attach = _("the job goes on, unknown until the next `dttui attach {id}`").format(id=directory.job_id)
    session = App().login_session()
    if session.logout_kills:
        text = _("⚠ systemd ends the controller of this job when you log out (KillUserProcesses): {then}")
        printer.note(text.format(then=attach))
        printer.note(_("  → `loginctl enable-linger` lets the controllers of your jobs stay"))
    if session.agent_is_forwarded and _reaches_by_ssh(directory):
        text = _(
            "⚠ the ssh-agent is forwarded and goes with this session: the controller keeps the connections it has; "
            "where one breaks that took a key of the agent, {then}"
        )
        printer.note(text.format(then=attach))
    if {PromptKind.PASSWORD.value, PromptKind.ONE_TIME_CODE.value} & set(typed):
        text = _(
            "⚠ a password or code was typed for this job: the controller keeps the connections it has; "
            "where one breaks, {then}"
        )
        printer.note(text.format(then=attach))
    if PromptKind.PASSPHRASE.value in typed:
        text = _(
            "· the controller of this job holds the key whose passphrase was typed; should it die, the next one asks"
        )
        printer.note(text)


async def _follow_controller(
    follower: JobFollower, printer: Printer, interrupts: Interrupts, until: Callable[[], bool]
) -> bool:
    """Show what one controller does; return whether there is nothing more to show."""
    try:
        client = await App().attach(follower.directory, interrupts.prompter)
    except NotFinishedError:
        while await _show(follower, printer, lambda: False) and not follower.is_over:
            pass
        return follower.is_over
    interrupts.attach(client)
    try:
        while await _show(follower, printer, until):
            if follower.is_over:
                return True
            interrupts.look_at(follower.directory)
            if interrupts.left or until():
                await interrupts.finish()
                return True
        return follower.is_over
    finally:
        with contextlib.suppress(OSError):
            await client.close()
        await interrupts.finish()


async def _show(follower: JobFollower, printer: Printer, until: Callable[[], bool]) -> bool:
    """Print what is new; return whether there may be more."""
    pause_s = show_new(follower, printer)
    if until() or follower.is_over:
        return True
    if pause_s is None:
        return False
    await asyncio.sleep(pause_s)
    return True


def _reaches_by_ssh(directory: JobDirectory) -> bool:
    from dttui.inventory import Reach  # With the models, for which nobody waits who only follows.

    return any(item.reach is Reach.SSH for item in directory.read_launch().inventory.environments)
