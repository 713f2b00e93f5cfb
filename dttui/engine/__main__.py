"""`python -m dttui.engine`: the controller process."""

from __future__ import annotations

import sys

from dttui.garbage import collected_rarely


def run() -> int:
    """Import and run it."""
    with collected_rarely():
        from dttui.engine.controller import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
