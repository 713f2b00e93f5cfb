"""`queue`: who waits for environments, as their agents tell it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Coroutine, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from dttui.app import App, jobs_in_queue
from dttui.cli.environments import SETTLE_S
from dttui.cli.printing import Printer, print_rows, print_table
from dttui.cli.sources import choose, read_inventory
from dttui.errors import ExitCode
from dttui.i18n import _, ngettext
from dttui.words import listed, moment

if TYPE_CHECKING:
    from dttui.app import JobInQueue
    from dttui.inventory import Environment

MOST_HOSTS = 4


def queue(options: Namespace) -> Coroutine[object, object, int]:
    """List who waits for environments, the first one first."""
    return _list(choose(read_inventory(options), options.name), options)


async def _list(environments: Sequence[Environment], options: Namespace) -> int:
    from dttui.cli.prompting import TerminalPrompter

    async with App() as app:
        statuses, _pending = await app.survey(environments, TerminalPrompter(), SETTLE_S, Printer(options.output).waits)
    waiting = jobs_in_queue(statuses)
    if options.output != "human":
        print_rows([asdict(item) for item in waiting], options.output)
    else:
        _print(waiting, [status.environment.name for status in statuses if status.sample is None])
    return ExitCode.OK if all(status.sample for status in statuses) else ExitCode.UNREACHABLE


def _print(waiting: Sequence[JobInQueue], silent: Sequence[str]) -> None:
    if silent:
        told = _("not known of {hosts}, which do not answer").format(hosts=listed(silent, MOST_HOSTS))
        sys.stderr.write(f"⚠ {told}\n")
    if waiting:
        header = ("#", _("JOB"), _("USER"), _("SINCE"), _("WAITS FOR"))
        print_table(header, [_cells(item) for item in waiting])
    else:
        sys.stderr.write(_("nobody waits; `dttui apply JOB.YAML --queue` would") + "\n")


def _cells(item: JobInQueue) -> tuple[str, ...]:
    hosts = [
        ngettext("{count} GPU of {host}", "{count} GPUs of {host}", count).format(count=count, host=host)
        for host, count in item.gpus.items()
    ]
    wanted = listed(hosts, MOST_HOSTS)
    if item.is_simulated:
        wanted = _("{what}, simulated").format(what=wanted)
    if item.stands_aside:
        wanted = _("{what}; lets others by, since a host of it cannot be reached").format(what=wanted)
    return str(item.position), item.job, item.user, moment(item.asked_at), wanted
