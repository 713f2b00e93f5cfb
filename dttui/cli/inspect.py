"""`ps`, `status`, `logs`: looking at jobs, running or over, from any terminal."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from argparse import Namespace

from dtagent.protocol.events import JobState

from dttui.cli.printing import failure_text, job_document
from dttui.errors import ExitCode, UsageError
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.services import jobs
from dttui.services.follow import JobFollower, LogFollower

POLL_S = 0.2


def ps(options: Namespace) -> int:
    """List jobs."""
    found = [job for job in jobs.list_jobs() if options.all or not job.state.is_final]
    if options.output != "human":
        rows = [{**vars(job), "state": job.state.value} for job in found]
        print(json.dumps(rows, ensure_ascii=False) if options.output == "json" else "\n".join(map(json.dumps, rows)))
        return ExitCode.OK
    if not found:
        sys.stderr.write(_("no jobs are running; `dttui ps --all` shows the finished ones\n"))
    for job in found:
        lasted = (job.ended_at or time.time()) - job.started_at if job.started_at else 0.0
        size = _("{nodes} nodes, {ranks} ranks").format(nodes=job.nodes, ranks=job.world_size)
        print(clean(f"{job.job_id}  {job.state.value:<10} {_duration(lasted):>8}  {size}  {job.reason}"))
    return ExitCode.OK


def status(options: Namespace) -> int:
    """Show one job; return its outcome, or 101 while it runs."""
    directory = jobs.find(options.job)
    follower = JobFollower(directory)
    while follower.poll():
        pass
    view = follower.view
    if not follower.is_over and not directory.has_controller():
        view.state, view.reason = JobState.UNKNOWN, _("no controller watches this job")
    if options.output != "human":
        print(
            json.dumps(
                job_document(view, directory), ensure_ascii=False, indent=2 if options.output == "json" else None
            )
        )
    else:
        newest = view.newest_metric
        print(clean(f"{view.job_id}  {view.state.value}  {view.reason}"))
        for name, node in view.nodes.items():
            ranks = ",".join(map(str, node.plan.ranks))
            print(
                clean(f"  {'★' if node.plan.node_rank == 0 else ' '} {name}  [{ranks}]  {node.state}  {node.message}")
            )
        if newest is not None:
            print("  " + "  ".join(f"{key} {value:g}" for key, value in _numbers(newest).items()))
        if view.failures:
            print(failure_text(view), end="")
        print(f"  {directory.path}")
    return view.exit_code if view.exit_code is not None else ExitCode.NOT_FINISHED


async def logs(options: Namespace) -> int:
    """Print log lines, each with its rank where there are several files."""
    directory = jobs.find(options.job)
    follower = JobFollower(directory)
    while follower.poll():
        pass
    nodes = list(follower.view.nodes)
    if options.node is not None and options.node not in nodes:
        raise UsageError(
            _("job {id} has no node {node}").format(id=directory.job_id, node=options.node),
            _("Its nodes: {names}").format(names=", ".join(nodes)),
        )
    reader = LogFollower(directory, follower.view.attempt)
    while True:
        follower.poll()
        over = follower.is_over or not directory.has_controller()
        printed = _print_new(reader, [options.node] if options.node else nodes, options)
        if not printed and (over or not options.follow):
            return ExitCode.OK
        options.lines = None
        if not printed:
            await asyncio.sleep(POLL_S)


def _print_new(reader: LogFollower, nodes: list[str], options: Namespace) -> bool:
    found = reader.poll(nodes)
    for node, stream, lines in found:
        name, kind = stream.rsplit(".", 1)
        if options.rank is not None and name != str(options.rank):
            continue
        if options.stderr and kind != "err":
            continue
        wanted = lines[-options.lines :] if options.lines else lines
        for line in wanted:
            text = clean(line.decode(errors="replace"))
            if options.output == "human":
                print(text if options.rank is not None else f"[{node} {stream}] {text}")
            else:
                rank = int(name) if name.isdigit() else None
                print(json.dumps({"node": node, "rank": rank, "stream": kind, "line": text}, ensure_ascii=False))
    sys.stdout.flush()
    return bool(found)


def _numbers(metric: object) -> dict[str, float]:
    return {
        key: value
        for key, value in vars(metric).items()
        if isinstance(value, (int, float)) and key not in ("rank", "time")
    }


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
