"""`stop`: ending a job, and looking at what it may have left on hosts that were lost."""

from __future__ import annotations

from argparse import Namespace

from dtagent.protocol.events import EventKind, NodeStanding

from dttui import jobs
from dttui.app import App
from dttui.cli.following import show_to_the_end
from dttui.cli.printing import Printer
from dttui.cli.prompting import TerminalPrompter
from dttui.errors import ExitCode
from dttui.i18n import _
from dttui.jobs import JobFollower, JobView
from dttui.jobs.lost_nodes import lost_nodes
from dttui.words import listed, state_name

MAX_NAMES = 5
LOOKS = 2
"""Times that a controller is asked to look at lost hosts."""


async def stop(options: Namespace) -> int:
    """Stop a job and wait for its end."""
    directory = jobs.find_open(options.job, "stop")
    follower = JobFollower(directory, reads_samples=False)
    follower.catch_up()
    printer = Printer(options.output)
    if follower.is_over:
        printer.note(
            _("job {id} is over already: {state}").format(id=directory.job_id, state=state_name(follower.view.state))
        )
        if not lost_nodes(follower.view.events):
            printer.event(follower.view.events[-1])
    else:
        printer.note(_("stopping {id}").format(id=directory.job_id))
    if not follower.is_over or lost_nodes(follower.view.events):
        options.interrupted = _("interrupted; whether it is stopped tells `dttui status {id}`").format(
            id=directory.job_id
        )
        await _stop_to_the_end(follower, printer, force=options.force)
    printer.summary(follower.view, directory)
    return _tell_unstopped(follower.view, printer)


async def _stop_to_the_end(follower: JobFollower, printer: Printer, *, force: bool) -> None:
    """Have the job stopped, its lost hosts looked at again, and show that."""
    for _attempt in range(LOOKS):
        told = len(follower.view.events)
        await App().stop(follower.directory, force=force, prompter=TerminalPrompter())
        await show_to_the_end(follower, printer)
        # A controller that was about to go took the request, and has not looked.
        if len(follower.view.events) > told or not lost_nodes(follower.view.events):
            return


def _tell_unstopped(view: JobView, printer: Printer) -> int:
    """Name the hosts where something of the job may be running still; return the exit code that says so."""
    lost = lost_nodes(view.events)
    # One that was replaced since is no node of the job any more.
    told_last = {event.node: event for event in view.events if event.kind is EventKind.NODE_STATE}
    gone = [name for name in lost if told_last[name].data.get("agent_gone")]
    unkillable = [name for name, node in view.nodes.items() if node.state is NodeStanding.UNKILLABLE]
    told = {
        _("not known to be stopped on {hosts}, which could not be reached"): [
            name for name in lost if name not in gone
        ],
        _("not known to be stopped on {hosts}: the agent is gone there"): gone,
        _("processes on {hosts} cannot be ended"): unkillable,
    }
    for message, hosts in told.items():
        if hosts:
            printer.note("✗ " + message.format(hosts=listed(hosts, MAX_NAMES)))
    if not any(told.values()):
        return ExitCode.OK
    if gone:
        printer.note("  → " + _("`dttui agents deploy {hosts}` brings it back.").format(hosts=" ".join(gone)))
    printer.note("  → " + _("`dttui stop {id}` looks there again.").format(id=view.job_id))
    return ExitCode.UNREACHABLE
