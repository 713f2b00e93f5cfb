"""secrets.env beside a job file: values of secrets that do not go with a session. Only its owner may read it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dttui.i18n import _
from dttui.variables import learn, variables

FILE_NAME = "secrets.env"
MOST_BYTES = 1 << 20
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")


@dataclass(frozen=True)
class SecretsFile:
    """What it holds."""

    path: Path
    values: Mapping[str, str] = field(default_factory=dict)
    """Name → value; none where it is not there, or is not to be used."""
    problem: str = ""
    """Why it is not used though it is there."""
    hint: str = ""


def read_secrets(base: Path) -> SecretsFile:
    """Read the file of a directory: a line of `NAME=value` each, quotes around a value left out.

    One that others can read or write is not used: its values are known by then to who knows whom.
    """
    path = base / FILE_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return SecretsFile(path)
    except OSError as error:
        return SecretsFile(path, {}, _("{path} cannot be read: {reason}").format(path=path, reason=error.strerror))
    with os.fdopen(descriptor, "rb") as stream:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
            return SecretsFile(path, {}, _("{path} is no file of yours: it is not used").format(path=path))
        if info.st_mode & 0o077:
            problem = _("{path} can be read or changed by others (mode {mode}): it is not used")
            hint = _("Run: {command}").format(command=f"chmod 600 {path}")
            return SecretsFile(path, {}, problem.format(path=path, mode=f"{stat.S_IMODE(info.st_mode):04o}"), hint)
        text = stream.read(MOST_BYTES).decode(errors="surrogateescape")
    values = {match[1]: _unquoted(match[2].strip()) for line in text.splitlines() if (match := _LINE.fullmatch(line))}
    return SecretsFile(path, values)


def take_secrets(base: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    """Have the file's values count where a name has none yet; return the names that have none after that."""
    known = variables()
    if all(name in known for name in names):
        return ()
    for name, value in read_secrets(base).values.items():
        if name in names and name not in known and "\0" not in value:
            learn(name, value)
    return tuple(name for name in names if name not in known)


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value
