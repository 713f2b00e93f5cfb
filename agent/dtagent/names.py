"""The names and numbers by which a daemon is found. Imports next to nothing, since `dtagent connect` does."""

from __future__ import annotations

import os
import sys

from dtagent.protocol.places import find_root, take_root, usual_root

SOCKET = "agent.sock"
"""The daemon's socket, by its bare name from inside the root: paths have a limit of 107 bytes."""

ALREADY_RUNNING = 3
"""Exit status of a daemon whose root another one serves."""
ERROR_LOG = "daemon.err"
"""What the daemon has to say of itself, in the root."""


def default_root(*, takes: bool = True) -> str:
    """Return the root that this agent was deployed into; else the usual one, or what was taken in its stead.

    Args:
        takes: whether to take another place, and record it, where others have the usual one and none was taken yet.

    Raises:
        OSError: another place cannot be taken.
    """
    root, agents, _version = ["", "", *os.path.realpath(sys.prefix).rsplit("/", 2)][-3:]
    if agents == "agents" and os.path.islink(f"{root}/current"):
        return root
    return take_root() if takes else find_root() or usual_root()
