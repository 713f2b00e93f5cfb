"""The program behind a launcher's options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dttui.i18n import _
from dttui.spec.dialects.commands.launch import Launch, ProgramKind
from dttui.spec.dialects.commands.launcher_options import OptionError
from dttui.spec.dialects.shell.command_words import Word

Words = Sequence[Word]


def start(launch: Launch, kind: ProgramKind, rest: Words, last: Word) -> None:
    """Settle what is started by the words behind a launcher's options. Raises OptionError where there are none."""
    if not rest:
        message = _("there is no script")
        hint = _("It comes after torchrun's own options, and its arguments after it.")
        mark = replace(last.mark, column=last.mark.column + len(last.text) + 1)
        raise OptionError(Word("", mark), message, hint)
    arguments = list(rest)
    if len(arguments) > 1 and arguments[1].text == "--":
        del arguments[1]
    launch.run(kind, arguments)
