"""`python -m dttui.services.controller`: the controller process."""

from __future__ import annotations

import gc
import sys


def run() -> int:
    """Import and run it."""
    gc.disable()  # What is imported stays; to look through it again and again takes a seventh of the time.
    from dttui.services.controller.process import main

    gc.enable()
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
