"""`stacks`: where the ranks of a running job stand, grouped by that."""

from __future__ import annotations

from argparse import Namespace

from dttui import jobs
from dttui.app import App
from dttui.cli.printing import one_line, print_document
from dttui.cli.prompting import TerminalPrompter
from dttui.diagnosis.stack_report import groups_data, stack_lines, summary, to_data
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
        body = {
            "job_id": directory.job_id,
            "summary": [str(line) for line in summary(found)],
            "groups": groups_data(found),
            "nodes": to_data(found),
        }
        print_document(body, options.output)
    else:
        for line in summary(found):
            print(one_line(line))
        if not options.short:
            for line in stack_lines(found):
                print(one_line(line))
    return ExitCode.UNREACHABLE if found and all(node.error for node in found) else ExitCode.OK
