"""Where an ssh-agent listens, and whether it goes with the login session. Knows nothing of its keys."""

from __future__ import annotations

from pathlib import Path

from dttui.variables import variables


def is_forwarded(path: Path) -> bool:
    """Whether an ssh-agent is one that the login session forwards, and that goes with it."""
    return "SSH_CONNECTION" in variables() and path.parent.name.startswith("ssh-")
