"""Whether what `run.prefix` starts is what the host itself would start: an interpreter, its packages. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

_ADJUSTING: dict[str, tuple[frozenset[str], str]] = {
    **dict.fromkeys(("chrt", "nice", "nohup", "prlimit", "setsid", "unbuffer"), (frozenset(), "")),
    "env": (frozenset({"-u", "--unset", "-C", "--chdir"}), ""),
    "ionice": (frozenset({"-c", "--class", "-n", "--classdata"}), ""),
    "numactl": (
        frozenset(
            {
                *("-C", "--physcpubind", "-N", "--cpunodebind", "-i", "--interleave", "-w", "--weighted-interleave"),
                *("-m", "--membind", "-p", "--preferred", "-P", "--preferred-many"),
            }
        ),
        "",
    ),
    "setarch": (frozenset(), r"linux(32|64)|x86_64|i[3-6]86|aarch64|arm\w*|ppc\w*|s390x?|riscv\w*|uname26"),
    "stdbuf": (frozenset({"-i", "--input", "-o", "--output", "-e", "--error"}), ""),
    "taskset": (frozenset(), "(0x)?[0-9a-fA-F,]+"),
    "time": (frozenset({"-f", "--format", "-o", "--output"}), ""),
    "timeout": (frozenset({"-k", "--kill-after", "-s", "--signal"}), ""),
}
"""Programs that change how another one runs, and not which.

Of each, the options whose value is the next word, and what else may stand before the other program's name.
"""
_WATCHING = {
    **dict.fromkeys(("compute-sanitizer", "ncu", "nvprof", "rocprof", "rocprofv3"), ""),
    **dict.fromkeys(("gdb", "ltrace", "strace", "valgrind", "vtune"), ""),
    "nsys": "launch|profile|start",
    "perf": "c2c|kvm|lock|mem|record|sched|stat|trace",
    "py-spy": "dump|record|top",
}
"""Those that look on, with what each can do; of their many options any may have a value."""
_FLAGS = frozenset({"--", "--args", "--batch", "-batch"})
"""Options of those that have none."""
_VALUE = re.compile(r".*=.*|[\d,.:/+-]+[a-z]?")
"""A setting or a number: no program."""


def leads_elsewhere(prefix: Sequence[str]) -> bool:
    """Whether another interpreter may be found behind the words than without them, as in a container."""
    name, is_value = "", False
    for word in prefix:
        options, others = _ADJUSTING.get(name, (frozenset(), _WATCHING.get(name, "")))
        if is_value and not word.startswith("-"):
            is_value = False
        elif posixpath.basename(word) in {*_ADJUSTING, *_WATCHING}:
            name = posixpath.basename(word)
        elif name and word.startswith(("-", "+")):
            is_value = word in options or (name in _WATCHING and word not in _FLAGS and "=" not in word)
        elif not name or not (_VALUE.fullmatch(word) or re.fullmatch(others, word)):
            return True
    return False


def is_watched(prefix: Sequence[str]) -> bool:
    """Whether a program among the words looks on; asked about an interpreter, it would write a report of that."""
    return any(posixpath.basename(word) in _WATCHING for word in prefix)
