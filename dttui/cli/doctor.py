"""`doctor`: what is wrong with the login node, hosts and the network between them, and the commands that mend it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from dttui.app import App, Caller, Checkup, Site, Trouble
from dttui.cli.printing import MARKS, Printer, one_line, print_document
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.sources import choose, own_options, read_inventory
from dttui.errors import ExitCode, UsageError
from dttui.i18n import _, ngettext
from dttui.inventory import Inventory
from dttui.planning import without_node
from dttui.spec import Severity


async def doctor(options: Namespace) -> int:
    """Look at everything, change nothing, and print what is wrong; the exit code says how bad it is."""
    inventory, unread = Inventory(), None
    try:
        inventory = read_inventory(options)
    except UsageError as fault:
        unread = fault
    environments = choose(inventory, options.name) if unread is None else []
    options.tells_late = True
    async with App(Caller(until=options.until)) as app:
        found = await app.doctor(
            environments,
            TerminalPrompter(),
            unread=unread,
            options=own_options(options),
            on_wait=Printer(options.output).waits,
        )
    if options.output == "human":
        for line in _lines(found):
            print(one_line(line))
    elif options.output == "jsonl":
        for item in found.troubles:
            print_document(_as_data(item), "jsonl")
        print_document({"exit_code": int(exit_code_of(found)), "seconds": found.seconds}, "jsonl")
    else:
        print_document(_document(found), options.output)
    return exit_code_of(found)


def exit_code_of(found: Checkup) -> ExitCode:
    """Return 101 where the time was up, else 4 with a host out of reach, 3 with errors, 6 with warnings, or 0."""
    if found.is_cut_short:
        return ExitCode.NOT_FINISHED
    if found.unreachable:
        return ExitCode.UNREACHABLE
    if found.count(Severity.ERROR):
        return ExitCode.PREFLIGHT
    return ExitCode.WARNINGS if found.count(Severity.WARNING) else ExitCode.OK


def _lines(found: Checkup) -> Iterator[str]:
    yield from _place(_("login node"), found.of(Site.LOGIN))
    for host in found.hosts:
        yield from _place(host, found.of(Site.HOST, host))
    if len(found.hosts) > 1:
        yield from _place(_("between hosts"), found.of(Site.BETWEEN))
    errors, warnings = found.count(Severity.ERROR), found.count(Severity.WARNING)
    if not errors and not warnings:
        yield _("Nothing is wrong, in {seconds:.0f} s.").format(seconds=found.seconds)
        return
    told = [
        ngettext("{count} error", "{count} errors", errors).format(count=errors),
        ngettext("{count} warning", "{count} warnings", warnings).format(count=warnings),
    ]
    yield _("{what} in {seconds:.0f} s; nothing was changed.").format(what=" · ".join(told), seconds=found.seconds)


def _place(title: str, troubles: Sequence[Trouble]) -> Iterator[str]:
    is_well = all(item.finding.severity is Severity.INFO for item in troubles)
    yield f"✓ {title}" if is_well else title
    for item in troubles:
        finding = item.finding
        message = finding.message
        if item.place is Site.HOST:  # Its name stands above.
            message = without_node(message, finding.subject)
        yield f"  {MARKS[finding.severity.value]} {finding.code}: {message}"
        if finding.hint:
            yield f"      → {finding.hint}"
        for command in item.commands:
            yield f"      {command.host or ''}$ {command.line}"


def _document(found: Checkup) -> dict[str, object]:
    return {
        "login": [_as_data(item) for item in found.of(Site.LOGIN)],
        "hosts": {host: [_as_data(item) for item in found.of(Site.HOST, host)] for host in found.hosts},
        "between": [_as_data(item) for item in found.of(Site.BETWEEN)],
        "not_asked": found.unasked,
        "errors": found.count(Severity.ERROR),
        "warnings": found.count(Severity.WARNING),
        "seconds": found.seconds,
        "exit_code": int(exit_code_of(found)),
    }


def _as_data(item: Trouble) -> dict[str, object]:
    finding = item.finding
    return {
        "place": item.place.value,
        "subject": finding.subject,
        "severity": finding.severity.value,
        "code": finding.code,
        "message": finding.message,
        "hint": finding.hint,
        "commands": [{"run_on": command.host or "login", "command": command.line} for command in item.commands],
    }
