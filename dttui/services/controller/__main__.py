"""`python -m dttui.services.controller`: the controller process."""

from __future__ import annotations

import sys

from dttui.garbage import collected_rarely


def run() -> int:
    """Import and run it."""
    with collected_rarely():
        from dttui.services.controller.process import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
