"""Follows a script and notes the commands that it comes to; starts none of them.

What is not known before it runs stays open. Where that decides a condition, the way is taken on which the script goes
on: what would only end it early is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import tree_sitter_bash
from tree_sitter import Language, Parser

from dttui.spec.dialects.shell.branching import first_error
from dttui.spec.dialects.shell.command_words import ShellCommand, Word
from dttui.spec.dialects.shell.flow import Exited, Left, Ran, TooLong
from dttui.spec.dialects.shell.following import Follower
from dttui.spec.dialects.shell.open_parts import START, OpenParts, cleaned, entered
from dttui.spec.dialects.shell.shell_state import ShellState
from dttui.spec.dialects.shell.source import Source
from dttui.spec.yaml_source import Mark

_MOST_STEPS = 50_000
_DEEPEST = 40
_MOST_WITHIN = 100
"""Scripts that commands of one start, counted each time that one is looked at."""
_LANGUAGE = Language(tree_sitter_bash.language())


class ScriptShell:
    """Follows scripts.

    Args:
        given: what a variable is that the script does not set, by its name; `None` for none.
        holes: what is open, of all that is followed.
        read: the text of a file that a script reads commands from; `None` where it is not there.
        gpus: GPUs of the host that it runs on; `None` where that is not known.
    """

    def __init__(
        self,
        given: Callable[[str], str | None],
        holes: OpenParts,
        read: Callable[[str], str | None] = lambda _path: None,
        gpus: int | None = None,
    ) -> None:
        self.given = given
        self.gpus = gpus
        self.read = read
        self.holes = holes
        self.ran = Ran()
        self.files: dict[str, str] = {}
        """Text of the scripts that were followed beside the first one, by their names."""
        self._steps = 0
        self._within = 0

    def run(self, text: str, state: ShellState) -> Ran:
        """Follow a script from a state.

        Raises:
            TooLong: it does too much to be followed.
        """
        try:
            with suppress(Exited, Left):
                self.follow(text, state, None, 0)
        except RecursionError:
            raise TooLong from None
        return self.ran

    def inner(self, text: str, command: ShellCommand, arguments: Sequence[Word]) -> list[ShellCommand]:
        """Return the commands of a script that is itself a word of a command, as after `bash -c`."""
        state = ShellState("bash", [word.raw for word in arguments[1:]], is_inside=bool(arguments))
        return self._apart(text, command, state, command.mark)

    def _apart(
        self, text: str, command: ShellCommand, state: ShellState, mark: Mark | None, file: str = ""
    ) -> list[ShellCommand]:
        """Return the commands of a script that begins with the environment of a command."""
        state.variables = {name: word.raw or word.text for name, word in command.environment.items()}
        state.exported = set(state.variables)
        state.marks = {name: word.mark for name, word in command.environment.items()}
        state.directory = entered(START, command.directory)
        shell = ScriptShell(self.given, self.holes, self.read, self.gpus)
        shell.files = self.files
        self._within += 1
        shell._steps, shell._within = self._steps, self._within
        try:
            if self._within > _MOST_WITHIN:
                raise TooLong
            with suppress(Exited, Left):
                shell.follow(text, state, mark, 1, file)
        except RecursionError:
            raise TooLong from None
        finally:
            self._steps = shell._steps
        self.ran.others += [other for other in shell.ran.commands if other not in self.ran.others]
        self.ran.sourced += [word for word in shell.ran.sourced if word not in self.ran.sourced]
        return shell.ran.commands

    def script(self, command: ShellCommand, words: Sequence[Word]) -> list[ShellCommand] | None:
        """Return the commands of a script that is a file, the first of its words; `None` where it is not there."""
        text = None if words[0].holes else self.read(words[0].text)
        if text is None:
            return None
        state = ShellState(words[0].raw, [word.raw for word in words[1:]])
        file = words[0].text
        self.files[file] = text
        return self._apart(cleaned(text), command, state, None, file)

    def follow(self, text: str, state: ShellState, mark: Mark | None, depth: int, file: str = "") -> None:
        """Follow a text in a state.

        Args:
            text: of a script, or of what one evaluates.
            state: that it begins with, and changes.
            mark: where its words are said to stand; `None` for where they do.
            depth: of texts within texts.
            file: that it is, where it is not the script itself.
        """
        if depth > _DEEPEST:
            raise TooLong
        source = Source(cleaned(text) if depth == 0 else text, self.holes, file)
        tree = Parser(_LANGUAGE).parse(source.parsed)
        if tree.root_node.has_error and self.ran.unreadable is None:
            self.ran.unreadable = mark or source.mark(first_error(tree.root_node))
        Follower(self, source, state, mark, depth).block(tree.root_node.children)

    def step(self, count: int = 1) -> None:
        """Count steps. Raises TooLong."""
        self._steps += count
        if self._steps > _MOST_STEPS:
            raise TooLong
