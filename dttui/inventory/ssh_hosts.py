"""Finds the hosts that an ssh configuration names, as environments to import. How to reach them stays ssh's affair."""

from __future__ import annotations

import glob
import os
import re
import shlex
from pathlib import Path

from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.spec.problems import DocumentError, Problem
from dttui.spec.text import HOST_NAME

MAX_INCLUDE_DEPTH = 16
"""As OpenSSH has it."""
MAX_FILES = 256
"""Most files that includes may lead to."""
MAX_FILE_BYTES = 1024 * 1024
"""What lies beyond is not read."""

_LINE = re.compile(r"\s*([A-Za-z]+)(?:\s*=\s*|\s+)(.*)")

_FORGES = ("github.com", "gitlab.com", "bitbucket.org", "gitee.com", "codeberg.org", "ssh.dev.azure.com")


def is_forge(environment: Environment) -> bool:
    """Whether an alias is that of a service for source code, which nobody trains on."""
    host = environment.host or ""
    return any(host == name or host.endswith(f".{name}") for name in _FORGES)


def import_ssh_config(path: str | os.PathLike[str]) -> list[Environment]:
    """Return an environment for every concrete `Host` alias of an ssh configuration, in its order.

    Patterns and negations name no host and are left out. `Include` is followed; relative names start at ~/.ssh.

    Raises:
        DocumentError: the file cannot be read.
    """
    aliases: dict[str, None] = {}
    _collect(Path(path).expanduser(), aliases, 0, set())
    return [Environment(name=alias, host=alias) for alias in aliases if _is_host(alias)]


def _collect(path: Path, aliases: dict[str, None], depth: int, seen: set[Path]) -> None:
    seen.add(path)
    for keyword, arguments in _directives(path, required=depth == 0):
        if keyword == "host":
            aliases.update(dict.fromkeys(arguments))
        elif keyword == "include" and depth < MAX_INCLUDE_DEPTH:
            for included in (found for pattern in arguments for found in _included(pattern)):
                if included not in seen and len(seen) < MAX_FILES:
                    _collect(included, aliases, depth + 1, seen)


def _directives(path: Path, *, required: bool) -> list[tuple[str, list[str]]]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        if not required:
            return []
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DocumentError([Problem(str(path), _("cannot be read: {reason}").format(reason=reason))]) from error
    matches = (_LINE.fullmatch(line.rstrip()) for line in text.split("\n"))
    return [(match[1].lower(), _arguments(match[2])) for match in matches if match]


def _arguments(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError:  # a quote that never closes: ssh refuses the line, and so it names nothing
        return []
    comment = next((index for index, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def _included(pattern: str) -> list[Path]:
    expanded = os.path.expanduser(pattern)
    return [Path(found) for found in sorted(glob.glob(os.path.join(Path.home() / ".ssh", expanded)))]


def _is_host(alias: str) -> bool:
    return len(alias) <= 80 and re.fullmatch(HOST_NAME, alias) is not None and alias.isprintable()
