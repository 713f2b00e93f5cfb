"""How a process ends whose ranks have met by gloo: its threads abort one now and then that takes itself down.

Of 400 that made one sum and came to the end of their script, one ended by SIGABRT.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

LEAVES = """
import os, sys, torch.distributed
torch.distributed.barrier()
sys.stdout.flush()
os._exit(0)
"""
"""The last lines of a script that has nothing of the tests."""
ABORTED = "terminate called without an active exception"


def without_abort(code: int, said: str) -> int:
    """Return the exit code of a process that a test lets end by itself, as if gloo had not aborted it."""
    return 0 if code == -signal.SIGABRT and ABORTED in said else code


def leave() -> NoReturn:
    """End this process well."""
    sys.stdout.flush()
    os._exit(0)
