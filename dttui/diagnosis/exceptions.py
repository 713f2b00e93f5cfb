"""Finds in what a process printed the exceptions that ended it, Python's and C++'s, and where the script raised them.

Pure: lines in, texts out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_CONTINUATION = 12
"""Lines of a message after its first."""
MAX_TEXT = 16 * 1024
"""Characters of a recorded error or traceback that are looked at: as many as an agent passes on."""
_PREFIX = re.compile(r"^(?:\[rank\d+\]: ?|\[default\d+\]: ?)+")
_HEAD = re.compile(r"[A-Za-z_][\w.]*(?::\s|:?$)")
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<type>[\w:]+)")
_WHAT = re.compile(r"\s*what\(\):\s+(?P<message>.*)")
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>\S+))?')
_PASSED_ON = re.compile(r"[\w.]+: Caught \w+ in (?:DataLoader worker process|pin memory thread|replica) ")
"""How an exception begins that torch raises once more, of another process or thread, with that one's traceback."""
_TRACEBACK = "Traceback (most recent call last)"
_CRASH = re.compile(r"Fatal Python error: ")
_CRASHED = re.compile(r"Current thread 0x[0-9a-f]+ .*\(most recent call first\):")
_THREAD = re.compile(r"Thread 0x[0-9a-f]+ .*\(most recent call first\):|Stack \(most recent call first\):")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|/bin/[^/.]+$|^<frozen |^<string>")
"""Also what pip writes to start a library's command."""


@dataclass(frozen=True)
class Raised:
    """An exception as it was printed."""

    text: str
    """`ValueError: message`, with the further lines of the message."""
    index: int
    """Of the line with the type, in the lines it was found in."""


@dataclass(frozen=True)
class ScriptLine:
    """Where in the script."""

    file: str
    line: int
    function: str | None


def without_prefix(line: str) -> str:
    """Return a line without `[rank3]: ` before it, which torch puts there."""
    return _PREFIX.sub("", line)


def exceptions_in(lines: Sequence[str]) -> list[Raised]:
    """Return the exceptions whose tracebacks are in the lines, in the order printed: of a chain the first cause first.

    One that torch passes on from a worker of its own is told as that worker raised it, where its traceback goes so far.
    An exception that a handler caught and logged is among them; whoever asks takes the last.
    """
    plain = [without_prefix(line) for line in lines]
    found: list[Raised] = []
    is_open = is_passed_on = False
    for index, line in enumerate(plain):
        thrown = _THROWN.match(line)
        if line.startswith(_TRACEBACK):
            is_open, is_passed_on = True, False
        elif found and line.startswith(f"Original {_TRACEBACK}") and _PASSED_ON.match(found[-1].text):
            is_open = is_passed_on = True
        elif thrown:
            what = next((match for text in plain[index + 1 : index + 6] if (match := _WHAT.match(text))), None)
            found.append(Raised(f"{thrown['type']}: {what['message'] if what else ''}".rstrip(), index))
        elif _SYNTAX.match(line):
            found.append(Raised(line + _written_in(plain[max(0, index - 5) : index]), index))
            is_open = False
        elif is_open and _HEAD.match(line):
            if is_passed_on:
                found.pop()
            found.append(
                Raised("\n".join([line, *_continuation(plain[index + 1 : index + 1 + MAX_CONTINUATION])]), index)
            )
            is_open = is_passed_on = False
    return found


def shortened(text: str | None) -> str | None:
    """Return the end of a text that is too long, which of a traceback says what it was."""
    return text and text[-MAX_TEXT:]


def chain(error: str | None, traceback: str | None, printed: Sequence[str]) -> list[Raised]:
    """Return a failure's exceptions, the one that ended it first, then those that it followed from.

    Args:
        error: the last exception as it was recorded, `Type: message`.
        traceback: what belongs to it.
        printed: the end of stderr, used where nothing was recorded; an index says where in it each was found.
    """
    error, traceback = shortened(error), shortened(traceback)
    found = exceptions_in((traceback or "").splitlines())
    if error and not found:
        inner = exceptions_in(error.splitlines())
        if _PASSED_ON.match(error):
            found = exceptions_in([_TRACEBACK, *error.splitlines()])
            found = [Raised(item.text, -1) for item in found]
        else:
            found = [*inner, Raised(error, -1)] if _HEAD.match(error) else inner or [Raised(error, -1)]
    if not found:
        return exceptions_in(printed)[::-1]
    places = {item.text.partition("\n")[0]: item.index for item in exceptions_in(printed)}
    return [Raised(item.text, places.get(item.text.partition("\n")[0], -1)) for item in reversed(found)]


def headline(error: str) -> str:
    """Return the one line of a recorded exception that says what it was; that of a syntax error is not its first."""
    heads = [item.text.strip().partition("\n")[0] for item in chain(error, None, ())]
    # An exception that passes another process's on may say nothing itself.
    return next((head for head in heads if head.partition(":")[2].strip()), (heads or [error.strip()])[0])


def raised_at(traceback: str | None) -> ScriptLine | None:
    """Return the innermost place of a traceback that is the person's own code and no library's."""
    frames = [match for line in (traceback or "").splitlines() if (match := _FRAME.match(without_prefix(line)))]
    own = [frame for frame in frames if not _LIBRARY.search(frame["file"])]
    if not own:
        return None
    return ScriptLine(own[-1]["file"], int(own[-1]["line"]), own[-1]["function"])


def traceback_frames(lines: Sequence[str]) -> list[ScriptLine]:
    """Return the calls of the last traceback in the lines, the outermost first."""
    plain = [without_prefix(line) for line in lines]
    heads = [index for index, line in enumerate(plain) if line.startswith("Traceback (most recent call last)")]
    found: list[ScriptLine] = []
    for line in plain[heads[-1] + 1 :] if heads else ():
        if not line.startswith(" "):
            break
        if (frame := _FRAME.match(line)) is not None:
            found.append(_place(frame))
    return found


def crashed_frames(lines: Sequence[str]) -> list[ScriptLine]:
    """Return the calls that Python was in when compiled code crashed, the innermost first.

    Of a thread that has no Python, such as one of gloo's, it is where the main thread was meanwhile, the last one told.
    """
    plain = [without_prefix(line) for line in lines]
    begin = crash_begins(plain)
    for head in (_CRASHED, _THREAD):
        if head is _THREAD and begin is None:
            break  # Threads are told at other times, too.
        heads = [index for index in range(begin or 0, len(plain)) if head.match(plain[index])]
        frames = itertools.takewhile(bool, map(_FRAME.match, plain[heads[-1] + 1 :] if heads else ()))
        if found := [_place(frame) for frame in frames if frame]:
            return found
    return []


def crash_in(lines: Sequence[str]) -> tuple[bool, ScriptLine | None]:
    """Tell whether Python printed where it was when compiled code crashed, and the innermost place of the script."""
    frames = crashed_frames(lines)
    return bool(frames), next((frame for frame in frames if not _LIBRARY.search(frame.file)), None)


def crash_begins(lines: Sequence[str]) -> int | None:
    """Return the index of the line with which Python begins to tell of a crash in compiled code; `None` without one."""
    return next((index for index in reversed(range(len(lines))) if _CRASH.match(without_prefix(lines[index]))), None)


def _place(frame: re.Match[str]) -> ScriptLine:
    return ScriptLine(frame["file"], int(frame["line"]), frame["function"])


def _written_in(before: Sequence[str]) -> str:
    """Return where what could not be compiled is written; what code has raised itself was in a call."""
    places = [match for line in before if (match := _FRAME.match(line))]
    if not places or places[-1]["function"]:
        return ""
    return f" (file {places[-1]['file']}, line {places[-1]['line']})"


def _continuation(lines: Sequence[str]) -> list[str]:
    """Return the further lines of a message: up to a blank one, or the next traceback."""
    kept: list[str] = []
    for line in lines:
        if not line.strip() or line.startswith(("Traceback (most recent", "terminate called")):
            break
        kept.append(line)
    return kept
