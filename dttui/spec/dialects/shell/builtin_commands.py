"""What the shell does itself, `cd`, `read`, `shift`, `source`, as far as it changes what a script knows."""

from __future__ import annotations

import getopt
import re
from collections.abc import Callable
from typing import Protocol

from dttui.spec.dialects.shell.command_words import BLANKS, Fields, Word
from dttui.spec.dialects.shell.deciding import Conditions
from dttui.spec.dialects.shell.expansion import Expander
from dttui.spec.dialects.shell.flow import Exited, Left, SharedScript
from dttui.spec.dialects.shell.line_reading import read_line, shared_out
from dttui.spec.dialects.shell.open_parts import cleaned, entered
from dttui.spec.dialects.shell.programs import echoed
from dttui.spec.dialects.shell.shell_state import Array, ShellState
from dttui.spec.yaml_source import Mark

Builtin = Callable[[list[Word], "str | None"], "bool | None"]
"""Takes arguments and what it reads; returns how it ends, `None` where that is not known."""
_IGNORED = ("trap", "wait", "ulimit", "umask", "shopt", "setopt", "hash", "alias", "complete")


class FollowedText(Protocol):
    """What follows the text that a command stands in."""

    shell: SharedScript
    state: ShellState
    expander: Expander
    conditions: Conditions
    said: str
    stdin: str | None
    own: dict[str, str | Array]
    at: Mark

    @property
    def is_captured(self) -> bool:
        """Whether what is printed is what counts."""
        ...

    def is_open(self, text: str) -> bool:
        """Whether all of a text is only known when the script runs."""
        ...

    def print(self, text: str | None) -> None:
        """Print something; `None` for what is not known."""
        ...

    def start(self, text: str, mark: Mark | None, file: str = "") -> None:
        """Follow a text in the same state."""
        ...

    def simple(self, words: list[Word], own: dict[str, str | Array], stdin: str | None) -> bool | None:
        """Follow a simple command."""
        ...


class Builtins:
    """Does for a follower what the shell does itself."""

    def __init__(self, follower: FollowedText) -> None:
        self._follower = follower
        self._table = self._made()

    def get(self, name: str) -> Builtin | None:
        """Return what a name stands for; `None` for a program."""
        return self._table.get(name)

    def _made(self) -> dict[str, Builtin]:
        return {
            "cd": self._cd,
            "pushd": self._pushd,
            "popd": self._popd,
            "pwd": self._pwd,
            "echo": self._echo,
            "set": self._set,
            "shift": self._shift,
            "read": self._read_names,
            "source": self._source,
            ".": self._source,
            "eval": self._eval,
            "exec": self._exec,
            "time": lambda words, stdin: self._exec([word for word in words if word.raw != "-p"], stdin),
            "exit": self._exit,
            "break": self._leaving("break"),
            "continue": self._leaving("continue"),
            "return": self._leaving("return"),
            "test": self._test_words,
            "[": self._test_words,
            "let": self._let,
            "getopts": self._getopts,
            "mapfile": self._lines,
            "readarray": self._lines,
            ":": lambda _words, _stdin: True,
            "true": lambda _words, _stdin: True,
            "false": lambda _words, _stdin: False,
            **dict.fromkeys(_IGNORED, lambda _words, _stdin: True),
        }

    def _cd(self, words: list[Word], _stdin: str | None) -> bool:
        paths = [word.raw for word in words if word.raw not in ("-P", "-L", "--")]
        if len(paths) == 1 and paths[0] != "-":
            self._follower.state.directory = entered(self._follower.state.directory, paths[0])
        return True

    def _pushd(self, words: list[Word], stdin: str | None) -> bool:
        state = self._follower.state
        if words and not words[-1].raw.startswith(("-", "+")):
            state.left.append(state.directory)
            return self._cd(words, stdin)
        if not words and state.left:
            state.directory, state.left[-1] = state.left[-1], state.directory
        return True

    def _popd(self, _words: list[Word], _stdin: str | None) -> bool:
        state = self._follower.state
        state.directory = state.left.pop() if state.left else state.directory
        return True

    def _pwd(self, _words: list[Word], _stdin: str | None) -> bool:
        self._follower.print(self._follower.state.directory)
        return True

    def _echo(self, words: list[Word], stdin: str | None) -> bool:
        text = echoed([word.raw for word in words])
        if self._follower.is_captured:
            self._follower.print(text)
        else:
            self._follower.said = echoed([word.text for word in words])
        return True

    def _set(self, words: list[Word], _stdin: str | None) -> bool:
        arguments = [word.raw for word in words]
        if "--" in arguments:
            self._follower.state.positional = arguments[arguments.index("--") + 1 :]
        elif arguments[:1] in (["-a"], ["+a"]) or arguments[:2] in (["-o", "allexport"], ["+o", "allexport"]):
            self._follower.state.exports_all = arguments[0].startswith("-")
        return True

    def _shift(self, words: list[Word], _stdin: str | None) -> bool:
        count = words[0].raw if words else "1"
        if not re.fullmatch("[0-9]{1,6}", count) or int(count) > len(self._follower.state.positional):
            return False
        del self._follower.state.positional[: int(count)]
        return True

    def _read_names(self, words: list[Word], stdin: str | None) -> bool | None:
        """Take a line of what is read, and leave the others to whoever reads next."""
        try:
            options, names = getopt.getopt([word.raw for word in words], "era:d:i:n:N:p:st:u:")
        except getopt.GetoptError:
            return None
        given = dict(options)
        if stdin is None or given.keys() & {"-n", "-N", "-u"}:
            return None  # Of a terminal or a file.
        line, is_whole, self._follower.stdin = read_line(stdin, given.get("-d", "\n")[:1], is_raw="-r" in given)
        own = self._follower.own.get("IFS")
        separators = own if isinstance(own, str) else self._follower.state.value("IFS")
        separators = BLANKS if separators is None else separators
        if "-a" in given:
            fields = Fields(separators)
            fields.add_split(line)
            self._follower.state.set(given["-a"], {str(index): part for index, part in enumerate(fields.finish())})
        elif names:
            for name, value in zip(names, shared_out(line, separators, len(names)), strict=True):
                self._follower.state.set(name, value)
        else:
            self._follower.state.set("REPLY", line)
        return is_whole

    def _source(self, words: list[Word], _stdin: str | None) -> bool | None:
        if not words:
            return False
        is_python = words[0].text.endswith("/activate")
        text = None if is_python or words[0].holes else self._follower.shell.read(words[0].text)
        if text is None:
            self._follower.shell.ran.sourced.append(words[0])
            return None
        file = words[0].text
        self._follower.shell.files[file] = text
        self._follower.start(cleaned(text), None, file)
        return True

    def _eval(self, words: list[Word], _stdin: str | None) -> bool:
        text = " ".join(word.raw for word in words)
        if words and not self._follower.is_captured and self._follower.is_open(text):
            self._follower.shell.ran.sourced.append(words[0])
            return True
        if words and not self._follower.is_captured:
            self._follower.start(text, words[0].mark)
        elif words:
            self._follower.print(None)
        return True

    def _exec(self, words: list[Word], stdin: str | None) -> bool | None:
        return self._follower.simple(words, {}, stdin) if words else True

    def _exit(self, words: list[Word], _stdin: str | None) -> bool:
        code = words[0].raw if words else "0"
        if not self._follower.is_captured:
            number = int(code) % 256 if re.fullmatch(r"-?[0-9]{1,9}", code) else 1
            self._follower.shell.ran.end = (number, self._follower.at, self._follower.said)
        raise Exited

    @staticmethod
    def _leaving(word: str) -> Builtin:
        def leave(words: list[Word], _stdin: str | None) -> bool:
            raise Left(word, is_good=word != "return" or not words or words[0].raw == "0")

        return leave

    def _getopts(self, words: list[Word], _stdin: str | None) -> bool | None:
        """Take the next option of the arguments, as `getopts "n:g:" name` does."""
        if len(words) < 2:
            return False
        letters, name = words[0].raw, words[1].raw
        place = self._follower.state.value("OPTIND") or "1"
        at = int(place) if re.fullmatch("[0-9]{1,6}", place) else 1
        arguments = self._follower.state.positional
        option = arguments[at - 1] if at <= len(arguments) else ""
        if option == "--":
            self._follower.state.set("OPTIND", str(at + 1))
        if not re.fullmatch("-[A-Za-z].*", option):
            return False
        letter, rest = option[1], option[2:]
        takes_value = f"{letter}:" in letters
        value = rest if rest or not takes_value else "".join(arguments[at : at + 1])
        self._follower.state.set(name, letter if letter in letters.replace(":", "") else "?")
        self._follower.state.set("OPTARG", value if takes_value else "")
        self._follower.state.set("OPTIND", str(at + (2 if takes_value and not rest else 1)))
        return True

    def _test_words(self, words: list[Word], _stdin: str | None) -> bool | None:
        arguments = [word.raw for word in words]
        return self._follower.conditions.words(arguments[:-1] if arguments[-1:] == ["]"] else arguments)

    def _let(self, words: list[Word], _stdin: str | None) -> bool:
        for word in words:
            self._follower.expander.arithmetic(word.raw)
        return True

    def _lines(self, words: list[Word], stdin: str | None) -> bool | None:
        names = [word.raw for word in words if word.raw.isidentifier()]
        if stdin is None or not names:
            return None
        self._follower.stdin = ""
        self._follower.state.set(names[-1], {str(index): line for index, line in enumerate(stdin.splitlines())})
        return True
