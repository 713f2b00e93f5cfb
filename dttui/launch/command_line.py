"""What a command needs to be there: its program, and the file that an interpreter is told to run. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from dttui.frameworks.bundle import Hole, PlannedProcess, holes_in

_PYTHON = re.compile(r"python[\d.]*")
_SHELL = re.compile(r"(?:ba|da|k|z)?sh")


def files_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that a command needs: its program unless that is a bare name, and the file that it is to run."""
    program = command[0]
    named = [program] if "/" in program else []
    script = script_of(command)
    return tuple(path for path in (*named, *([script] if script is not None else [])) if path and not holes_in(path))


def needs_on_host(process: PlannedProcess) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the programs that a process needs on its host, absolute or bare names, and the absolute paths of files.

    What is sent with the job is not among them: it is there once the job is.
    """
    if process.engine_words:
        return (), ()  # Its program is in the image, and the engine is asked after by itself.
    program, script = process.argv[0], script_of(process.argv)
    is_bare = "/" not in program and not holes_in(program)
    programs = (program,) if is_bare else _absolute(process.cwd, program)
    return programs, _absolute(process.cwd, script) if script is not None else ()


def _absolute(directory: str, path: str) -> tuple[str, ...]:
    """Return where a path is, where that is known before the start."""
    whole = posixpath.normpath(posixpath.join(directory, path))
    return (whole,) if posixpath.isabs(whole) and not holes_in(whole) else ()


def script_of(command: Sequence[str]) -> str | None:
    """Return the file that a Python or a shell is to run; `None` where it runs none, or the program is another."""
    name = "python" if command[0] == str(Hole.PYTHON) else posixpath.basename(command[0])
    words = iter(command[1:])
    if _PYTHON.fullmatch(name):
        return _first_file(words, ends="cm", with_value="XW", long_with_value=("--check-hash-based-pycs",))
    if _SHELL.fullmatch(name):
        return _first_file(words, ends="cs", with_value="oO", long_with_value=("--rcfile", "--init-file"))
    return None


def _first_file(words: Iterator[str], *, ends: str, with_value: str, long_with_value: Sequence[str]) -> str | None:
    """Return the first word that is no option; `None` where an option of `ends` says that no file is run.

    Args:
        words: behind the program.
        ends: letters of options after which no file comes.
        with_value: letters of options that take the rest of their word, or else the next word.
        long_with_value: options that take the next word.
    """
    for word in words:
        if word == "--":
            return next(words, None)
        if word == "-" or not word.startswith(("-", "+")):
            return None if word == "-" else word
        if word.startswith("--"):
            if word in long_with_value:
                next(words, None)
            continue
        letters = word[1:]
        for index, letter in enumerate(letters):
            if letter in ends:
                return None
            if letter in with_value:
                if index == len(letters) - 1:
                    next(words, None)
                break
    return None
