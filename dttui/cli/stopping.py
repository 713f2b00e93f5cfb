"""`stop`: ending a job, and looking at what it may have left on hosts that were lost."""

from __future__ import annotations

import time
from argparse import Namespace

from dtagent.protocol.events import EventKind, NodeStanding

from dttui import jobs
from dttui.app import App, JobFollower
from dttui.cli.printing import Printer, one_line, print_document
from dttui.cli.showing import shown_to_the_end
from dttui.errors import ExitCode
from dttui.i18n import _
from dttui.jobs import JobView
from dttui.jobs.left_to_do import lost_nodes
from dttui.words import listed, state_name

MAX_NAMES = 5
LOOKS = 2
"""Times that a controller is asked to look at lost hosts."""


def stop(options: Namespace) -> int:
    """Stop a job and wait for its end."""
    directory = jobs.find_open(options.job, "stop")
    follower = App().follow(directory, reads_samples=False)
    follower.catch_up()
    printer = Printer(options.output)
    if options.dry_run:
        _tell_dry(follower, options)
        return ExitCode.OK
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
        options.unfinished = _("The job may not have been asked yet. Run the same command again.")
        _stop_to_the_end(follower, printer, options)
    printer.summary(follower.view, directory)
    return _tell_unstopped(follower.view, printer)


def _tell_dry(follower: JobFollower, options: Namespace) -> None:
    """Say whom the job would be stopped by, and where."""
    view = follower.view
    lost = lost_nodes(view.events)
    hosts = lost if follower.is_over else list(view.nodes)
    if options.output != "human":
        row = {"job_id": view.job_id, "state": view.state.value, "hosts": list(hosts), "force": options.force}
        print_document({"dry_run": True, **row}, options.output)
        return
    named = listed(list(hosts), MAX_NAMES)
    if follower.is_over and not lost:
        told = _("job {id} is over already: {state}").format(id=view.job_id, state=state_name(view.state))
    elif follower.is_over:
        told = _("would look at {hosts} again, where something of {id} may still run").format(
            hosts=named, id=view.job_id
        )
    elif options.force:
        told = _("would kill what runs of {id} on {hosts} at once").format(hosts=named, id=view.job_id)
    else:
        told = _("would stop {id} on {hosts}: gracefully first, and kill what is left").format(
            hosts=named, id=view.job_id
        )
    print(one_line(told))
    print(_("Nothing was done: this is what would be."))


def _stop_to_the_end(follower: JobFollower, printer: Printer, options: Namespace) -> None:
    """Have the job stopped, its lost hosts looked at again, and show that."""
    for _attempt in range(LOOKS):
        told = len(follower.view.events)
        App().stop(follower.directory, force=options.force)
        options.unfinished = _("It was asked to stop, and does: `dttui status {id}` tells when it has ended.").format(
            id=follower.directory.job_id
        )
        hangs = None
        for pause_s in shown_to_the_end(follower, printer):
            if hangs is None and pause_s and (hangs := App().hanging(follower.directory)) is not None:
                printer.note(f"⚠ {hangs.message}")
                printer.note(f"  → {hangs.hint}")
            time.sleep(pause_s)
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
