"""What a command line starts, as its launchers say it: how many, where, and which program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from dttui.i18n import _
from dttui.spec.dialects.commands.launcher_options import Given
from dttui.spec.dialects.shell.command_words import ShellCommand, Word
from dttui.spec.dialects.shell.open_parts import Openness
from dttui.spec.yaml_source import Mark

PROGRAM = "program"
"""What places call the script, module or program."""


class ProgramKind(Enum):
    """What the program of a launch is."""

    SCRIPT = "script"
    MODULE = "module"
    COMMAND = "command"


@dataclass(frozen=True)
class GivenValue:
    """A value that an option, a directive or a variable gives."""

    key: str
    """What places call it."""
    word: Word
    mark: Mark | None = None
    """Where what gives it stands, an option before its value; `None` where the value stands."""

    @property
    def text(self) -> str:
        """The value as a person reads it."""
        return self.word.text

    @property
    def number(self) -> int | None:
        """The value where it is a number of at most six digits; `None` otherwise."""
        return int(self.text) if re.fullmatch("[0-9]{1,6}", self.text) else None

    @property
    def is_open(self) -> bool:
        """Whether something of it is not known."""
        return bool(self.word.holes)

    @property
    def is_all_devices(self) -> bool:
        """Whether it is the number of GPUs of a host, whatever that is."""
        holes = self.word.holes
        return self.text in ("gpu", "auto") or (len(holes) == 1 and holes[0].openness is Openness.GPUS)


@dataclass(frozen=True)
class Remark:
    """Something to be said of a part of the command line."""

    key: str
    message: str
    hint: str = ""
    is_warning: bool = False


@dataclass
class Launch:
    """What is known so far; launchers from the outermost on add to it."""

    mark: Mark
    """Where it stands."""
    launchers: list[str] = field(default_factory=list)
    """Programs that were passed, the outermost first."""
    said: dict[str, GivenValue] = field(default_factory=dict)
    """Everything that was given, by what places call it."""
    numbers: dict[str, int] = field(default_factory=dict)
    """How often each was given, by what places call it."""
    environment: dict[str, Word] = field(default_factory=dict)
    """Variables that the program gets."""
    prefix: list[Word] = field(default_factory=list)
    """Words that stay before the program."""
    directory: str = "."
    """Where it runs."""
    remarks: list[Remark] = field(default_factory=list)
    """What is to be said."""
    name: GivenValue | None = None
    framework: str | None = None
    """That which a launcher stands for; `None` where any will do."""
    is_framework_implied: bool = True
    """Whether nothing says it but the launcher."""
    nodes: GivenValue | None = None
    """`N` or `MIN:MAX`."""
    per_node: GivenValue | None = None
    """Processes a node."""
    processes: GivenValue | None = None
    """Processes in all."""
    gpus_per_node: GivenValue | None = None
    """GPUs that a scheduler gives a node."""
    gpus_per_task: GivenValue | None = None
    """GPUs that it gives a process."""
    gpus_in_all: GivenValue | None = None
    """GPUs that it gives the job."""
    hosts: list[tuple[str, int | None]] = field(default_factory=list)
    """Hosts with the processes of each."""
    hosts_key: str = ""
    """What says them."""
    open_hosts: GivenValue | None = None
    """The same, where they are not known."""
    hostfile: GivenValue | None = None
    master: GivenValue | None = None
    restarts: GivenValue | None = None
    settings: dict[str, GivenValue] = field(default_factory=dict)
    """What goes to a key of the job, by its dotted path."""
    mounts: list[tuple[str, GivenValue]] = field(default_factory=list)
    """Directories of the host that a container sees, `/data:/data:ro`, and what says so."""
    accelerate: dict[str, GivenValue] = field(default_factory=dict)
    """What `accelerate launch` was told, by the names of its settings."""
    accelerate_file: GivenValue | None = None
    """Its configuration."""
    accelerate_settings: dict[str, Any] | None = None
    """What that says; `None` where it has not been read."""
    python: Word | None = None
    """Interpreter, where it is named."""
    kind: ProgramKind = ProgramKind.SCRIPT
    program: Word | None = None
    arguments: tuple[Word, ...] = ()
    is_once_a_node: bool = False
    """Whether the program starts ranks of its own."""
    is_known: bool = True
    """Whether the program is one that may train: not just any that a scheduler starts."""
    passed: list[ShellCommand] = field(default_factory=list)
    """Commands of scripts within it, as after `bash -c`, on the way to the program."""
    open_options: list[Word] = field(default_factory=list)
    """Variables among the options that nobody has given."""

    @property
    def launcher(self) -> str:
        """The innermost program that starts ranks; nothing where none does."""
        return self.launchers[-1] if self.launchers else ""

    def take(self, key: str, given: Given) -> GivenValue:
        """Note that an option was given; return its value."""
        if given.is_variable:
            self.open_options.append(given.word)
        return self.enter(key, given.value, given.word.mark)

    def enter(self, key: str, word: Word, mark: Mark | None = None) -> GivenValue:
        """Note a value, and where it is given; return it under a key that nothing else has."""
        number = self.numbers.get(key, 1)
        unique = key if number == 1 else f"{key} ({number})"
        while unique in self.said:
            number += 1
            unique = f"{key} ({number})"
        self.numbers[key] = number
        said = GivenValue(unique, word, mark)
        self.said[unique] = said
        return said

    def remark(self, said: GivenValue, message: str, hint: str = "", *, is_warning: bool = False) -> None:
        """Say something of a value."""
        self.remarks.append(Remark(said.key, message, hint, is_warning))

    def leave_out(self, said: GivenValue, reason: str, hint: str = "", *, is_warning: bool = False) -> None:
        """Say that a value is not carried over, and why; of a variable that nobody has given is said enough."""
        if said.word in self.open_options:
            return
        self.remark(said, _("not carried over: {reason}").format(reason=reason), hint, is_warning=is_warning)

    def run(self, kind: ProgramKind, words: Sequence[Word]) -> None:
        """Settle what is started, the program before its arguments."""
        self.kind, self.program, self.arguments = kind, words[0], tuple(words[1:])
