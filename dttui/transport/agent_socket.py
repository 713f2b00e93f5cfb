"""Where an ssh-agent listens, and whether it goes with the login session. Knows nothing of its keys."""

from __future__ import annotations

import os
from pathlib import Path


def is_forwarded(path: Path) -> bool:
    """Whether an ssh-agent is one that the login session forwards, and that goes with it."""
    return "SSH_CONNECTION" in os.environ and path.parent.name.startswith("ssh-")
