"""The names and numbers by which a daemon is found. Imports next to nothing, since `dtagent connect` does."""

from __future__ import annotations

import os

SOCKET = "agent.sock"
"""The daemon's socket, by its bare name from inside the root: paths have a limit of 107 bytes."""

ALREADY_RUNNING = 3
"""Exit status of a daemon whose root another one serves."""
ERROR_LOG = "daemon.err"
"""What the daemon has to say of itself, in the root."""


def default_root() -> str:
    """Local disk, never a home that several hosts may share; all who use it check owner and mode."""
    return f"/var/tmp/dtagent-{os.getuid()}"  # noqa: S108 - see above
