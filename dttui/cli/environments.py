"""`envs`: the environments of an inventory and their host keys."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dttui import inventory as inventories
from dttui.app import App, EnvironmentState, environment_state_name
from dttui.cli.printing import Printer, one_line, print_document, print_hints, print_rows
from dttui.cli.sources import choose, inventory_path, read_inventory
from dttui.errors import ExitCode, HostError, UsageError
from dttui.i18n import _, ngettext
from dttui.planning import Choice, gpu_text
from dttui.sanitize import clean
from dttui.timestamps import elapsed_s

if TYPE_CHECKING:
    from dttui.app import EnvironmentStatus, Occupant
    from dttui.inventory import Environment

SETTLE_S = 25.0
LIST, TRUST, IMPORT = "list", "trust", "import"


def envs(options: Namespace) -> int | Coroutine[object, object, int]:
    """List environments with their live state, trust a host's key, or import hosts."""
    if options.action == IMPORT:
        return _import(options)
    if options.action == TRUST:
        return _trust(options)
    names = options.name if options.action == LIST else [options.action, *options.name]
    is_known_empty = not (names or options.demo) and inventories.is_without_environments(inventory_path(options))
    environments = [] if is_known_empty else choose(read_inventory(options), names, actions=(LIST, TRUST, IMPORT))
    if environments:
        return _list(environments, options)
    sys.stderr.write(_("the inventory {path} has no environments").format(path=inventory_path(options)) + "\n")
    sys.stderr.write("  → " + _("Import hosts with `dttui envs import`, or try --demo.") + "\n")
    if options.output != "human":
        print_rows([], options.output)
    return ExitCode.OK


async def _list(environments: Sequence[Environment], options: Namespace) -> int:
    from dttui.cli.prompting import TerminalPrompter

    async with App() as app:
        found, pending = await app.survey(environments, TerminalPrompter(), SETTLE_S, Printer(options.output).waits)
    statuses = [_unsettled(status) if status.environment.name in pending else status for status in found]
    if options.output == "human":
        for status in statuses:
            print(one_line(_row(status)))
        sys.stdout.flush()
        print_hints([(status.environment.name, status.hint) for status in statuses])
    else:
        print_rows([_as_data(status) for status in statuses], options.output)
    return ExitCode.OK if all(status.sample for status in statuses) else ExitCode.UNREACHABLE


def _unsettled(status: EnvironmentStatus) -> EnvironmentStatus:
    """Say that nothing is known of an environment, which is another thing than that it cannot be reached."""
    reason = _("not settled: it has neither answered nor refused within {seconds:g} s").format(seconds=SETTLE_S)
    hint = _("Ask about it alone: `dttui envs NAME`")
    return replace(status, reason=reason, hint=hint)


def _print_error(error: HostError) -> None:
    sys.stderr.write(f"✗ {clean(error.message)}\n" + (f"    → {clean(error.hint)}\n" if error.hint else ""))


def _error_row(host: str, error: HostError) -> dict[str, object]:
    return {"host": host, "error": error.message, "hint": error.hint}


async def _trust(options: Namespace) -> int:
    from dttui.cli.prompting import TerminalPrompter

    if not options.name:
        raise UsageError(_("name the environments to trust"), "dttui envs trust NAME --fingerprint SHA256:…")
    environments = choose(read_inventory(options), options.name)
    if options.fingerprint and len(environments) > 1:
        raise UsageError(_("one fingerprint belongs to one host"))
    worst = ExitCode.OK
    rows: list[object] = []
    async with App() as app:
        for environment in environments:
            try:
                taken = await app.trust(environment, TerminalPrompter(), options.fingerprint, dry_run=options.dry_run)
            except HostError as error:
                worst = ExitCode.UNREACHABLE
                rows.append(_error_row(environment.name, error))
                if options.output == "human":
                    _print_error(error)
            else:
                dry = {"dry_run": True} if options.dry_run else {}
                rows.append({"host": environment.name, "fingerprint": taken, **dry})
                told = _("{host}: would trust {fingerprint}") if dry else _("{host}: trusts {fingerprint}")
                if options.output == "human":
                    print(told.format(host=environment.name, fingerprint=taken))
    if options.output != "human":
        print_rows(rows, options.output)
    return worst


def _import(options: Namespace) -> int:
    from dttui.compose import documents

    path = inventory_path(options)
    before = inventories.load_inventory(path) if path.exists() else inventories.Inventory()
    hosts = documents.importable_hosts(before, options.name)
    if not options.dry_run:
        documents.import_hosts(path, hosts.new)
    added = [item.name for item in hosts.new]
    if options.output != "human":
        dry = {"dry_run": True} if options.dry_run else {}
        print_document({"added": added, "inventory": str(path), **dry}, options.output)
        return ExitCode.OK
    _print_added(added, path, dry_run=options.dry_run)
    if hosts.left_out:
        note = _("left out, since nobody trains there: {names}").format(names=", ".join(hosts.left_out))
        print(one_line(note), file=sys.stderr)
    return ExitCode.OK


def _print_added(added: Sequence[str], path: Path, *, dry_run: bool) -> None:
    told = ngettext("{count} host added to {path}", "{count} hosts added to {path}", len(added))
    if dry_run:
        told = ngettext("would add {count} host to {path}", "would add {count} hosts to {path}", len(added))
    names = f": {', '.join(added)}" if added else ""
    print(one_line(told.format(count=len(added), path=path) + names))


def _row(status: EnvironmentStatus) -> str:
    environment, facts, sample = status.environment, status.facts, status.sample
    gpus = gpu_text(Choice(environment, facts)) + (_(" simulated") if environment.simulated else "")
    uptime = _("up {hours:.0f} h").format(hours=elapsed_s(facts.booted_at) / 3600) if facts else ""
    use = f"CPU {sample.cpu_percent:.0f}%" if sample and sample.cpu_percent is not None else ""
    mark = "●" if status.is_usable else "○" if status.state is not EnvironmentState.UNHEALTHY else "✗"
    state = environment_state_name(status.state)
    parts = [
        f"{mark} {environment.name:<20} {state:<12} {environment.zone or '–':<12} {gpus:<18}",
        use,
        uptime,
        environment.short_way if environment.reach is inventories.Reach.EXEC else "",
    ]
    return "  ".join(part for part in [*parts, status.reason] if part)


def _as_data(status: EnvironmentStatus) -> dict[str, object]:
    from dtagent.protocol.rpc import to_wire

    return {
        "name": status.environment.name,
        "state": status.state.value,
        "reason": status.reason,
        "hint": status.hint,
        "zone": status.environment.zone,
        "reach": status.environment.reach.value,
        "way": status.environment.way,
        "occupants": [_occupant_data(occupant) for occupant in status.occupants],
        "facts": to_wire(status.facts),
        "sample": to_wire(status.sample),
    }


def _occupant_data(occupant: Occupant) -> dict[str, object]:
    return {
        "user": occupant.user,
        "job": occupant.job,
        "gpus": list(occupant.gpus),
        "simulated": occupant.simulated,
        "since": occupant.since,
        "until": occupant.until,
        "overdue": occupant.is_overdue,
    }
