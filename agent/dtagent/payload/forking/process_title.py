"""What /proc shows of a forked process: its own command line and environment, so that `ps` and marks find it."""

from __future__ import annotations

import ctypes
import os
from typing import Any

PR_SET_MM, PR_SET_MM_MAP = 35, 14
NO_FILE = 0xFFFFFFFF
_C = ctypes.CDLL(None, use_errno=True)
_MAP_FIELDS = (
    "start_code",
    "end_code",
    "start_data",
    "end_data",
    "start_brk",
    "brk",
    "start_stack",
    "arg_start",
    "arg_end",
    "env_start",
    "env_end",
    "auxv",
)
_KEPT: list[Any] = []


def show(argv: list[str], env: dict[str, str]) -> bool:
    """Let /proc show a command line and an environment as those of this process; return whether the kernel does."""

    class Map(ctypes.Structure):
        # struct prctl_mm_map, linux/prctl.h
        _fields_ = [
            *((name, ctypes.c_uint64) for name in _MAP_FIELDS),
            ("auxv_size", ctypes.c_uint32),
            ("exe_fd", ctypes.c_uint32),
        ]

    arguments = b"".join(os.fsencode(item) + b"\0" for item in argv)
    variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    try:
        with open("/proc/self/stat", "rb") as stream:
            fields = [b"", b"", *stream.read().rpartition(b") ")[2].split()]
        buffer = ctypes.create_string_buffer(arguments + variables, len(arguments) + len(variables))
        _KEPT.append(buffer)  # For as long as the process lives.
        begin = ctypes.addressof(buffer)
        middle, end = begin + len(arguments), begin + len(arguments) + len(variables)
        _C.sbrk.restype = ctypes.c_void_p
        # Numbers of the fields as in proc(5), counted from 1.
        at = {"start_code": 26, "end_code": 27, "start_data": 45, "end_data": 46, "start_brk": 47, "start_stack": 28}
        told = {name: int(fields[number - 1]) for name, number in at.items()}
        places = {"arg_start": begin, "arg_end": middle, "env_start": middle, "env_end": end}
        form = Map(**told, **places, brk=_C.sbrk(0), auxv=0, auxv_size=0, exe_fd=NO_FILE)
        if _C.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(form), ctypes.sizeof(form), 0):
            return False
        with open("/proc/self/environ", "rb") as stream, open("/proc/self/cmdline", "rb") as other:
            return stream.read() == variables and other.read() == arguments
    except (OSError, ValueError, IndexError):
        return False
