"""Text as bash reads it back: exactly, but for the holes of a plan, which become shell variables. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence

from dttui.sanitize import clean

IPV6_MARK = ":ip6"
"""Follows the name in the hole of an IPv6 address, so that frameworks put the brackets that belong around one."""

RENDERED = "RENDERED"
"""Variable of a `run.sh` that runs containers: the directory that all was rendered to."""


class Shell:
    """Quotes for a script that has some of the holes as variables. All others are text like any."""

    def __init__(self, variables: Collection[str]) -> None:
        """Take these names for variables."""
        names = "|".join(re.escape(name) for name in variables)
        self._hole = re.compile(rf"\$\{{({names})(?:{IPV6_MARK})?\}}")

    def variables_in(self, texts: Iterable[str]) -> set[str]:
        """Return the variables that texts use."""
        return {match[1] for text in texts for match in self._hole.finditer(text)}

    def word(self, text: str) -> str:
        """Return a text as one word of a command; of an option only the value is quoted."""
        option = re.match(r"--[\w-]+=", text, re.ASCII)
        if option is not None:
            return option[0] + self.word(text[option.end() :])
        if not self._hole.search(text):
            return shlex.quote(text)
        return f'"{self._with_variables(text, in_quotes)}"'

    def assignment(self, name: str, value: str, unless_empty: str | None = None) -> str:
        """Return `NAME=value` as one word; with `unless_empty`, one that is not there where that variable is empty."""
        if unless_empty is None:
            return f"{name}={self.word(value)}"
        return f'${{{unless_empty}:+"{name}={self._with_variables(value, in_quotes)}"}}'

    def file(self, path: str, text: str) -> str:
        """Return the command that writes a file; `path` is a word."""
        if not text.endswith("\n"):
            return f"printf %s {self.word(text)} >{path}"
        mark = "EOF"
        while f"\n{mark}\n" in f"\n{text}":
            mark += "_"
        if not self._hole.search(text):
            return f"cat >{path} <<'{mark}'\n{text}{mark}"
        return f"cat >{path} <<{mark}\n{self._with_variables(text, _in_here_document)}{mark}"

    def _with_variables(self, text: str, quote: Callable[[str], str]) -> str:
        parts, end = [], 0
        for match in self._hole.finditer(text):
            parts += [quote(text[end : match.start()]), f"${{{match[1]}}}"]
            end = match.end()
        return "".join([*parts, quote(text[end:])])


def comment(text: str) -> str:
    """Return a text as one line of comment."""
    return "# " + clean(text).replace("\n", " ")


def default(name: str, expression: str) -> str:
    """Return the command that gives a variable a value where it has none; the expression is as in double quotes."""
    return f': "${{{name}:={expression}}}"'


def default_text(name: str, text: str, before: str = "") -> str:
    """Return the command that gives a variable a text where it has none, after what another variable holds."""
    if re.fullmatch(r"[\w@%+=:,./ -]*", text):
        return default(name, before + text)
    # Within an expansion bash pairs quotes and braces by rules of its own.
    return f'[ -n "${{{name}:-}}" ] || {name}="{before}"{shlex.quote(text)}'


def in_quotes(text: str) -> str:
    """Return a text as it stands in double quotes."""
    return re.sub(r'([\\"$`])', r"\\\1", text)


def lines_of(words: Sequence[str]) -> str:
    """Return words, quoted already, as one command that has its options on lines of their own."""
    lines: list[list[str]] = [[]]
    for item in words:
        last = lines[-1][-1] if lines[-1] else ""
        if item.startswith("--") or (last.startswith("--") and "=" in last) or last.endswith('[@]}"'):
            lines.append([])
        lines[-1].append(item)
    return " \\\n  ".join(" ".join(line) for line in lines if line)


def _in_here_document(text: str) -> str:
    return re.sub(r"([\\$`])", r"\\\1", text)
