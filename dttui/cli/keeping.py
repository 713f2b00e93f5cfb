"""`keep`: what a job has left on its hosts stays there, or goes when its time has come."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import asdict

from dttui import jobs
from dttui.app import App
from dttui.cli.printing import one_line, print_document
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.sources import read_inventory
from dttui.errors import ExitCode
from dttui.i18n import _


async def keep(options: Namespace) -> int:
    """Tell the hosts of a job; return 4 where one of them could not be told."""
    directory = jobs.find(options.job)
    inventory = read_inventory(options) if options.inventory or options.demo else None
    async with App() as app:
        hosts = await app.keep(directory, TerminalPrompter(), inventory, keeps=not options.off)
    if options.output != "human":
        body = {"job_id": directory.job_id, "keeps": not options.off, "hosts": [asdict(host) for host in hosts]}
        print_document(body, options.output)
    for host in hosts:
        if host.error:
            sys.stderr.write(one_line(f"✗ {host.error}") + "\n")
            if host.hint:
                sys.stderr.write(one_line(f"  → {host.hint}") + "\n")
        elif options.output == "human":
            told = _("{host}: kept: {paths}") if not options.off else _("{host}: goes when its time has come: {paths}")
            nothing = _("{host}: has nothing of this job any more")
            paths = ", ".join(host.directories)
            print(one_line((told if paths else nothing).format(host=host.node, paths=paths)))
    return ExitCode.UNREACHABLE if any(host.error for host in hosts) else ExitCode.OK
