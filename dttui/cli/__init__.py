"""The `dttui` command. What it is made of is imported only here, so that Ctrl-C meanwhile leaves no stack trace."""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run dttui; return the exit status of DESIGN §4.1."""
    try:
        from dttui.garbage import collected_rarely

        with collected_rarely():
            from dttui.cli.dispatch import run
        return run(argv)
    except KeyboardInterrupt:
        from dttui.errors import ExitCode
        from dttui.i18n import _

        sys.stderr.write("dttui: " + _("interrupted before anything was done") + "\n")
        return int(ExitCode.CANCELLED)
