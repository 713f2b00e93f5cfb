"""`stacks`: where the ranks of a running job stand, grouped by that."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from dtagent.protocol.rpc import to_wire
from dtagent.protocol.stacks import ProcessStacks, RankStacks

from dttui import jobs
from dttui.app import App
from dttui.cli.printing import one_line, print_document
from dttui.cli.prompting import TerminalPrompter
from dttui.diagnosis.stack_report import NodeStacks, summary, to_data
from dttui.diagnosis.standing import groups_of, in_job, is_launcher
from dttui.errors import ExitCode, UsageError
from dttui.i18n import _


async def stacks(options: Namespace) -> int:
    """Print where ranks stand: a line for each group, and below it the stack of each rank."""
    directory = jobs.find_open(options.job, "stacks")
    if directory.is_over():
        raise UsageError(
            _("job {id} is over: none of its ranks runs").format(id=directory.job_id),
            _("`dttui diagnose {id}` tells more.").format(id=directory.job_id),
        )
    found = await App().stacks(directory, options.rank, TerminalPrompter())
    told = {rank.rank for node in found for rank in node.ranks}
    if options.rank and (missing := sorted(set(options.rank) - told)) and not any(node.error for node in found):
        raise UsageError(_("job {id} has no rank {rank}").format(id=directory.job_id, rank=missing[0]))
    if options.output != "human":
        ranks = [(node.node, rank) for node in found for rank in node.ranks]
        body = {
            "job_id": directory.job_id,
            "summary": [str(line) for line in summary(found)],
            "groups": [to_wire(group) for group in groups_of(ranks)],
            "nodes": to_data(found),
        }
        print_document(body, options.output)
    else:
        for line in summary(found):
            print(one_line(line))
        if not options.short:
            for line in _lines(found):
                print(one_line(line))
    return ExitCode.UNREACHABLE if found and all(node.error for node in found) else ExitCode.OK


def _lines(found: Sequence[NodeStacks]) -> Iterator[str]:
    """Yield each stack once, after the ranks that have it."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for node in found:
        for rank in node.ranks:
            stack: list[str] = []
            for process in (rank.process, *rank.children):
                if process is not None and process.threads:
                    stack += _stack(process, is_below=process is not rank.process)
            if stack:
                alike.setdefault(tuple(stack), []).append(_head(node.node, rank))
    for lines, heads in alike.items():
        yield from ("", *(f"── {head}" for head in heads), *lines)


def _head(node: str, rank: RankStacks) -> str:
    own = rank.process
    head = _("rank {rank} on {host}").format(rank=rank.rank, host=node)
    return head if own is None else f"{head}  pid {own.pid} ({own.state})  {own.source}"


def _stack(process: ProcessStacks, *, is_below: bool) -> Iterator[str]:
    if is_below:
        yield "  " + _("a process below it: {command}").format(command=process.command) + f" ({process.state})"
    for thread in process.threads:
        frames = [frame for frame in thread.frames if not is_launcher(frame)]
        if frames:
            yield "  " + (_("main thread") if thread.is_main else _("thread {name}").format(name=thread.name))
        yield from (f"    {frame.name}  {in_job(frame.file)}:{frame.line or '?'}" for frame in frames)
