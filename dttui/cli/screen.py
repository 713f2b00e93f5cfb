"""Opening the TUI: the only place outside dttui.tui that imports it."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from dttui import locations
from dttui.app import App
from dttui.cli.hangup import STDERR, STDIN, STDOUT, end_with_terminal
from dttui.cli.printing import can_rewrite, print_findings
from dttui.cli.sources import inventory_path, read_inventory
from dttui.errors import UsageError
from dttui.i18n import _
from dttui.jobs import JobDirectory


def open_replay(directory: JobDirectory, options: Namespace) -> int:
    """Show a job's past on the run screen until the person leaves it; no host is asked for it."""
    from dttui.inventory import Inventory
    from dttui.tui.app import TuiOptions, run_app

    _take_terminal()
    shown = TuiOptions(Inventory(), None, attach=directory, replay_speed=options.speed)
    return run_app(replace(shown, theme=options.theme, language=options.lang, plain=options.plain))


def schema_of_settings() -> dict[str, Any]:
    """Return the JSON Schema of the file of settings."""
    from dttui.tui.settings_schema import settings_schema

    return settings_schema()


def _take_terminal() -> None:
    if not sys.stderr.isatty():  # Textual paints there, and what was led elsewhere is for errors.
        sys.__stderr__ = sys.__stdout__  # type: ignore[misc]  # typeshed has it final, Python does not
    end_with_terminal((STDIN, STDERR if sys.stderr.isatty() else STDOUT))


def open_screen(options: Namespace) -> int:
    """Show the screen until the person leaves it."""
    if not (sys.stdin.isatty() and can_rewrite(sys.stdout)):
        raise UsageError(
            _("the screen needs a terminal"), _("Run a job without it: dttui --apply job.yaml; or see dttui --help.")
        )
    from dttui.tui.app import TuiOptions, run_app

    file = named = getattr(options, "file", None)
    if file is None and options.demo:
        file = str(locations.shipped("examples") / "gpt" / "job.yaml")
    loaded = None
    if file:
        from dttui.spec import load_document  # Without a file, the screen comes first.

        loaded = load_document(Path(file))
    if loaded is not None:  # Of another form than a job file: this is there to read when the screen is left.
        print_findings(loaded.notes, sys.stderr)
    print_findings(App().hardware_findings(), sys.stderr)
    _take_terminal()
    return run_app(
        TuiOptions(
            inventory=read_inventory(options, required=False),
            inventory_path=None if options.demo else inventory_path(options),
            demo=options.demo,
            theme=options.theme,
            language=options.lang,
            plain=options.plain,
            draft=loaded.job if loaded is not None else None,
            base=Path(file).resolve().parent if file else Path.cwd(),
            file=Path(named) if named and loaded is not None and loaded.dialect is None else None,
        )
    )
