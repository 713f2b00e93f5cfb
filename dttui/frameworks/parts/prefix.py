"""Whether what `run.prefix` starts is what the host itself would start: an interpreter, its packages. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

_ADJUSTING = frozenset(
    {
        *("chrt", "ionice", "nice", "numactl", "prlimit", "taskset"),
        *("env", "nohup", "setarch", "setsid", "stdbuf", "time", "timeout", "unbuffer"),
    }
)
"""Programs that change how another one runs, and not which."""
_WATCHING = frozenset(
    {
        *("compute-sanitizer", "ncu", "nsys", "nvprof", "rocprof", "rocprofv3"),
        *("gdb", "ltrace", "perf", "py-spy", "strace", "valgrind", "vtune"),
    }
)
"""Those that look on; asked about an interpreter, they would write a report of that."""
_VALUE = re.compile(r"[-+].*|.*=.*|[\d,.:/+-]+[a-z]?")
"""An option, a setting, a number: no program."""


def leads_elsewhere(prefix: Sequence[str]) -> bool:
    """Whether another interpreter may be found behind the words than without them, as in a container."""
    for index, word in enumerate(prefix):
        name = posixpath.basename(word)
        if name in _WATCHING:
            return False
        if name not in _ADJUSTING and (index == 0 or not _VALUE.fullmatch(word)):
            return True
    return False
