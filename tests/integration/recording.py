"""Records what a person sees of a job on the embedded cluster, as asciinema's text: `make recording`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.integration.terminal import Terminal

COLUMNS, ROWS = 110, 32
IDLE_S = 1.5
"""No picture stays longer, however long it did."""
LOOK_S = 2.0
STEPS: list[tuple[str, list[str]]] = [
    ("Launch", ["/"]),
    ("filter", [*"gpus>=4", "Enter"]),
    ("gpus>=4", ["Escape"]),
    ("Launch", ["c"]),
    ("nothing forbids a launch", ["Escape"]),
    ("Launch", ["C-l"]),
    ("RUNNING", []),
    ("loss by step", ["2"]),
    ("step 30", ["1"]),
    ("SUCCEEDED", ["j"]),
    ("best loss", ["C-q"]),
]
"""What is waited for, and what is typed then."""


def main() -> int:
    """Record into a file."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HOME=home, XDG_STATE_HOME=home, XDG_CONFIG_HOME=home, TERM="xterm-256color", LC_ALL="C.UTF-8")
        terminal = Terminal(Path(home), COLUMNS, ROWS)
        dttui = f"{sys.executable} -m dttui --demo"
        size = [f"--cols={COLUMNS}", f"--rows={ROWS}", f"--idle-time-limit={IDLE_S}"]
        try:
            terminal.run(
                sys.executable, "-m", "asciinema", "rec", "-q", "--overwrite", *size, "-c", dttui, "-e", "TERM", target
            )
            for shown, keys in STEPS:
                terminal.wait_for(shown)
                time.sleep(LOOK_S)
                for key in keys:
                    terminal.press(key)
            terminal.wait_for("left with 0")
        finally:
            terminal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
