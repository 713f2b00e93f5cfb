"""The lines of a script, and of those that it starts, as problems and findings show them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dttui.spec.problems import Problem, printable
from dttui.spec.secret_names import NAMES_OF_SECRETS
from dttui.spec.yaml_source import Mark

_SECRET_VALUE = re.compile(rf"(?<![A-Za-z0-9_])({NAMES_OF_SECRETS})=(?:\"[^\"]*\"|'[^']*'|[^\s;&\"']+)", re.IGNORECASE)
_LONGEST_SHOWN = 2_000
"""Characters of a line; a longer one is shown nowhere."""


class ScriptLines:
    """The lines of a script, and of those that it starts.

    Args:
        name: what problems call it.
        own: its lines.
        files: text of the others by their names, to which more come while it is followed.
    """

    def __init__(self, name: str, own: Sequence[str], files: Mapping[str, str]) -> None:
        self.name = name
        self.own = own
        self._files = files

    @property
    def others(self) -> dict[str, list[str]]:
        """Lines of the others by their names."""
        return {file: [printable(line) for line in shown_lines(text)] for file, text in self._files.items()}

    def problem(self, message: str, mark: Mark, hint: str = "") -> Problem:
        """Return a problem at a place of one of them."""
        lines = shown_lines(self._files[mark.file]) if mark.file else self.own
        line = lines[mark.line - 1] if mark.line <= len(lines) else ""
        return Problem(mark.file or self.name, message, hint, (), mark.line, mark.column, printable(line))


def shown_lines(text: str) -> list[str]:
    """Return the lines of a script as they may be shown, at least one."""
    shown_lines = (_SECRET_VALUE.sub(r"\1=***", line) for line in text.splitlines())
    return [line if len(line) < _LONGEST_SHOWN else "…" for line in shown_lines] or [""]
