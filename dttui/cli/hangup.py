"""Noticing that the terminal has gone where no signal tells it: after `su -c`, `setsid`, or with SIGHUP ignored."""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDIN, STDOUT, STDERR = range(3)
HUNG_UP = 128 + signal.SIGHUP
"""Exit status, as a shell has it for who ends by that signal."""


def end_with_terminal(descriptors: Iterable[int]) -> None:
    """End this process once a terminal that one of the descriptors is has gone, as SIGHUP does, whatever is under way.

    For Textual, which reads a terminal that has gone again and again, and waits for ever to write there.
    """
    _watch(_terminals(descriptors), lambda: os._exit(HUNG_UP))


def hang_up_with_terminal() -> None:
    """Have this process get the signal that it would have got, once the terminal it prints results on has gone.

    What is printed there before the signal is heard is lost, rather than an error that ends it in another way.
    """
    printed_on = _terminals((STDOUT, STDERR))
    sys.stdout, sys.stderr = (stream and lost_when_gone(stream) for stream in (sys.stdout, sys.stderr))

    def hang_up() -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in printed_on:  # Last words must not become an error.
            if not os.isatty(descriptor):
                os.dup2(nowhere, descriptor)
        os.kill(os.getpid(), signal.SIGHUP)

    _watch(_terminals((STDOUT,)), hang_up)


class _Terminal(io.FileIO):
    """A terminal on which what is written once it has gone is lost."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return memoryview(data).nbytes


def lost_when_gone(stream: TextIO) -> TextIO:
    """Return a stream that writes where another does, or that one where it writes on no terminal."""
    try:
        descriptor = stream.fileno()
    except OSError:  # It is in memory.
        return stream
    if not os.isatty(descriptor):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Terminal(descriptor, "w", closefd=False)),
        stream.encoding,
        stream.errors,
        line_buffering=True,
    )


def _terminals(descriptors: Iterable[int]) -> set[int]:
    return {descriptor for descriptor in descriptors if os.isatty(descriptor)}


def _watch(terminals: set[int], act: Callable[[], None]) -> None:
    """Call `act`, in a thread, once one of the terminals has gone."""
    if not terminals:
        return
    gone = select.epoll()
    for descriptor in terminals:
        gone.register(descriptor, 0)  # A hang-up and an error are reported unasked, and nothing else.

    def wait() -> None:
        gone.poll()
        act()

    threading.Thread(target=wait, name="hangup", daemon=True).start()
