"""Whether something brings the controllers of jobs back when this login node starts, and what would. Needs no root.

A unit where the user's service manager outlives logins, else a line of cron's; either calls `dttui attach --all`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from dttui import locations
from dttui.variables import for_a_process

CALL = "dttui attach --all"
"""How an entry is known, whoever wrote it."""
QUERY_TIMEOUT_S = 5.0
_KEPT = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "DTTUI_SSH_CONFIG", "PYTHONPATH")
"""What leads to jobs, keys and dttui itself, and is not set when the machine starts."""
UNIT = "dttui.service"


def is_brought_back(system: Path = Path("/")) -> bool:
    """Whether an entry is there that brings controllers back.

    Args:
        system: root of this machine's files.
    """
    wanted = Path.home() / ".config/systemd/user/default.target.wants" / UNIT
    if wanted.exists() and CALL in _text(wanted) and _lingers(system):
        return True
    return any(CALL in line for line in _crontab().splitlines() if not line.lstrip().startswith("#"))


def entry_commands(system: Path = Path("/")) -> list[str]:
    """Return the lines of shell that add such an entry; none where there is neither of both services.

    Args:
        system: root of this machine's files.
    """
    known = for_a_process()
    kept = [f"{name}={value}" for name in _KEPT if (value := known.get(name))]
    call = f"{shlex.join([*(['env', *kept] if kept else []), sys.executable, '-m'])} {CALL}"
    if _has_manager(system):
        file = f"~/.config/systemd/user/{UNIT}"
        lines = [
            *("[Unit]", "Description=Jobs of dttui that go on", "[Service]", "Type=oneshot", "RemainAfterExit=yes"),
            *("KillMode=process", f"ExecStart={call}", "[Install]", "WantedBy=default.target"),
        ]
        write = f"mkdir -p ~/.config/systemd/user && printf '%s\\n' {shlex.join(lines)} > {file}"
        linger = [] if _lingers(system) else [f"loginctl enable-linger {shlex.quote(locations.local_user())}"]
        return [*linger, write, f"systemctl --user enable {UNIT}"]
    if shutil.which("crontab"):
        # cron takes a percent sign for the end of a line.
        entry = shlex.quote("@reboot " + call.replace("%", r"\%"))
        return [f"(crontab -l 2>/dev/null; echo {entry}) | crontab -"]
    return []


def _has_manager(system: Path) -> bool:
    return (system / "run/systemd/system").is_dir() and (system / "run/user" / str(os.getuid()) / "systemd").is_dir()


def _lingers(system: Path) -> bool:
    return (system / "var/lib/systemd/linger" / locations.local_user()).exists()


def _crontab() -> str:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        asked = subprocess.run(
            ["crontab", "-l"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=QUERY_TIMEOUT_S,
            env=for_a_process(),
            check=False,
        )
        return asked.stdout.decode(errors="replace")
    return ""


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""
