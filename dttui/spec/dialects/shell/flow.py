"""How following a script ends, and what it has come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from dttui.spec.dialects.shell.command_words import ShellCommand, Word
from dttui.spec.dialects.shell.open_parts import OpenParts
from dttui.spec.dialects.shell.shell_state import ShellState
from dttui.spec.yaml_source import Mark


class TooLong(Exception):
    """A script does more than is followed."""


class Exited(Exception):
    """The script ends."""


class Left(Exception):
    """A loop or a function is left: `break`, `continue`, `return`."""

    def __init__(self, word: str, *, is_good: bool = True) -> None:
        super().__init__(word)
        self.word = word
        self.is_good = is_good


@dataclass
class Ran:
    """What a script comes to."""

    commands: list[ShellCommand] = field(default_factory=list)
    """Commands that it starts, in their order."""
    written: dict[str, tuple[str, Mark]] = field(default_factory=dict)
    """Text of files that it writes from itself, by path, and where."""
    sourced: list[Word] = field(default_factory=list)
    """Files that it reads commands from, which are not looked at."""
    demanded: list[str] = field(default_factory=list)
    """Variables without which it ends, and which nothing sets."""
    undecided: list[Mark] = field(default_factory=list)
    """Conditions that only the host can decide, and which start something."""
    others: list[ShellCommand] = field(default_factory=list)
    """Commands of scripts within it, as after `bash -c`."""
    end: tuple[int, Mark, str] | None = None
    """Exit code, place and last words, where it ends itself by `exit`."""
    unreadable: Mark | None = None
    """Where it is no bash."""


class SharedScript(Protocol):
    """What all texts of one script share."""

    holes: OpenParts
    ran: Ran
    gpus: int | None
    files: dict[str, str]

    def given(self, name: str) -> str | None:
        """Return what a variable is that the script does not set; `None` for none."""
        ...

    def read(self, path: str) -> str | None:
        """Return the text of a file that the script reads commands from; `None` where it is not there."""
        ...

    def step(self, count: int = 1) -> None:
        """Count steps. Raises TooLong."""
        ...

    def follow(self, text: str, state: ShellState, mark: Mark | None, depth: int, file: str = "") -> None:
        """Follow another text in a state."""
        ...
