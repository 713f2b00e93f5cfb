"""`agents`: brings the agent to hosts, says what is there, upgrades and removes it; one row a host."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dttui.app import AgentRemoval, AgentStatus, App, Caller, Deployment, outcome_notes, outcome_of
from dttui.cli.printing import Printer, one_line, print_hints, print_rows, table_text
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.sources import choose, read_inventory
from dttui.errors import CancelledError, ExitCode, HostError
from dttui.i18n import _, ngettext
from dttui.inventory import Environment
from dttui.sanitize import clean
from dttui.timestamps import elapsed_s
from dttui.words import age, agent_outcome_name, listed

MAX_NAMES = 8
"""Hosts that a line names; the others are counted."""


async def agents(options: Namespace) -> int:
    """Do what the action says on all hosts at once; print what became of each, and the sum."""
    environments = choose(read_inventory(options), options.name)
    prompter = TerminalPrompter()
    if options.action == "remove" and environments and not options.yes and not options.dry_run:
        await _confirm_removal(prompter, environments, options)
    results: Sequence[Deployment | AgentStatus | AgentRemoval | HostError]
    options.tells_late = True
    async with App(Caller(until=options.until)) as app:
        if options.action == "status":
            results = await app.agents.status(environments, prompter, Printer(options.output).waits)
        elif options.action == "remove":
            results = await app.agents.remove(
                environments,
                prompter,
                force=options.force,
                jobs=options.jobs,
                checkpoints=options.checkpoints,
                dry_run=options.dry_run,
                on_progress=_show_step,
            )
        else:
            results = await app.agents.deploy(
                environments,
                prompter,
                wheelhouse=Path(options.wheelhouse) if options.wheelhouse else None,
                tools=options.tools if options.action == "deploy" else (),
                only_upgrade=options.action == "upgrade",
                allow_downgrade=options.yes,
                dry_run=options.dry_run,
                on_progress=_show_step,
            )
    _print(environments, results, options)
    return _exit_code(results)


async def _confirm_removal(prompter: TerminalPrompter, environments: Sequence[Environment], options: Namespace) -> None:
    what = _("the agent")
    if options.jobs:
        what = _("the agent and what jobs left, but for checkpoints")
    if options.checkpoints:
        what = _("the agent and what jobs left, checkpoints too")
    hosts = listed([item.name for item in environments], MAX_NAMES)
    question = ngettext("Remove {what} from {count} host", "Remove {what} from {count} hosts", len(environments))
    told = f"{question.format(what=what, count=len(environments))}: {one_line(hosts)}"
    if options.force:
        told += "\n" + _("Jobs that run there are stopped first.")
    if not await prompter.confirm(told):
        raise CancelledError(_("nothing was removed"))


def _print(
    environments: Sequence[Environment],
    results: Sequence[Deployment | AgentStatus | AgentRemoval | HostError],
    options: Namespace,
) -> None:
    named = list(zip([item.name for item in environments], results, strict=True))
    if options.output != "human":
        dry = {"dry_run": True} if options.dry_run else {}
        print_rows([{**_document(name, item), **dry} for name, item in named], options.output)
        return
    if not named:
        sys.stderr.write(_("the inventory has no environments") + "\n")
        return
    rows = [[name, agent_outcome_name(outcome_of(item)), *_columns(item)] for name, item in named]
    if options.action == "status":
        header = [_("HOST"), _("STATE"), _("VERSION"), _("PYTHON"), _("DAEMON"), _("JOBS"), _("NOTE")]
    else:
        header = [_("HOST"), _("WOULD BE") if options.dry_run else _("OUTCOME"), _("VERSION"), _("NOTE")]
    # What went wrong is a note, whatever the columns are.
    whole = [[*row[:-1], *["–"] * (len(header) - len(row)), row[-1]] for row in rows]
    print(table_text(header, whole), end="")
    print_hints([(item.host, item.hint) for item in results if isinstance(item, HostError)])
    counts = Counter(agent_outcome_name(outcome_of(item)) for item in results)
    total = ngettext("{count} host", "{count} hosts", len(results)).format(count=len(results))
    print(f"{total}: " + " · ".join(f"{count} {name}" for name, count in counts.items()))
    if options.dry_run:
        print(_("Nothing was done: this is what would be."))


def _columns(item: Deployment | AgentStatus | AgentRemoval | HostError) -> list[str]:
    """Return the cells behind host and outcome; of an error and of a removal the note alone."""
    note = one_line(("; " if isinstance(item, (AgentRemoval, AgentStatus)) else ", ").join(outcome_notes(item)))
    if isinstance(item, Deployment):
        return [item.version, note]
    return _status_columns(item, note) if isinstance(item, AgentStatus) else [note]


def _status_columns(item: AgentStatus, note: str) -> list[str]:
    seen = item.seen
    protocols = "/".join(map(str, seen.protocols))
    version = clean(seen.probe.version or "–")
    if protocols:
        version += _(" (protocol {versions})").format(versions=protocols)
    return [version, clean(seen.agent_python or "–"), _daemon(item), _jobs(item), note]


def _daemon(item: AgentStatus) -> str:
    """Return for how long the daemon has run, as far as it tells."""
    daemon = item.seen.daemon
    if daemon is None:
        return "–"
    if daemon.since is None:
        return _("running")
    return _("for {time}").format(time=age(elapsed_s(daemon.since)))


def _jobs(item: AgentStatus) -> str:
    """Return how many attempts are in which state: `1 running, 3 over`."""
    seen = item.seen
    jobs = Counter(attempt.state for attempt in seen.attempts if attempt.is_busy)
    over = sum(not attempt.is_busy for attempt in seen.attempts)
    words = {
        "running": _("{count} running"),
        "prepared": _("{count} prepared"),
        "left": _("{count} without supervisor"),
    }
    told = [words.get(state, "{count}").format(count=count) for state, count in jobs.items()]
    told += [_("{count} over").format(count=over)] if over else []
    return ", ".join(told) or "–"


def _document(name: str, item: Deployment | AgentStatus | AgentRemoval | HostError) -> dict[str, Any]:
    if isinstance(item, AgentStatus):
        return {**item.document(), "host": name}
    if isinstance(item, HostError):
        return {"host": name, "outcome": outcome_of(item), "error": item.message, "hint": item.hint}
    return {**asdict(item), "outcome": outcome_of(item)}


def _exit_code(results: Sequence[object]) -> ExitCode:
    """Return 101 where the time was up, 4 where a host could not be used, 2 where one wants us to insist, else 0."""
    codes = {item.exit_code for item in results if isinstance(item, HostError)}
    return max(codes, default=ExitCode.OK)


def _show_step(host: str, step: str) -> None:
    sys.stderr.write(f"{host}: {one_line(step)}\n")
