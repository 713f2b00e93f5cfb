"""Looks a failure's words up in the table of causes, and tells what was found in the person's language."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dttui.diagnosis.advice import FREE_DISK, LESS_HOST_MEMORY, SHM, WHO_KILLS
from dttui.diagnosis.exceptions import chain
from dttui.diagnosis.recogniser import Recogniser
from dttui.diagnosis.table import RECOGNISERS
from dttui.i18n import N_, _

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50, "EiB": 1 << 60}
MAX_EXCEPTIONS = 16
"""Of a chain, the last ones."""
UNTRACED = N_("Launch again with PYTHONFAULTHANDLER=1 under run.env: Python then prints where it was.")
TRACED = N_("Its last lines say where Python was when it crashed, the innermost call first: look at that call.")


@dataclass(frozen=True)
class Recognised:
    """A cause that was found, and in which of the exceptions or lines."""

    row: Recogniser
    fields: dict[str, str]
    index: int


def recognise(
    exceptions: Sequence[str], lines: Sequence[str], exit_code: int | None
) -> tuple[Recognised | None, Recognised | None]:
    """Return what was recognised in the exceptions, and what in the lines.

    Of several exceptions the first that is a cause of its own wins: a rank that lost its peer while it cleaned up after
    an error of its own is not the victim.

    Args:
        exceptions: the one that ended the process first, then those it followed from.
        lines: the end of its output, without the lines of tracebacks.
        exit_code: of the process.
    """
    raised = list(_of_exceptions(exceptions))
    own = next((item for item in raised if not item.row.is_consequence), None)
    return own or next(iter(raised), None), _of_lines(lines, exit_code)


def any_is_consequence(error: str | None, traceback: str | None, printed: Sequence[str]) -> bool:
    """Whether a failure's own words say that another rank, or a link to it, failed before; for `chain` see there."""
    spoken, _said = recognise([item.text for item in chain(error, traceback, printed)], (), None)
    return spoken is not None and spoken.row.is_consequence


def _of_exceptions(texts: Sequence[str]) -> Iterator[Recognised]:
    for index, text in enumerate(texts[:MAX_EXCEPTIONS]):
        for row in RECOGNISERS:
            fields = row.in_exception(text)
            if fields is not None:
                yield Recognised(row, fields, index)
                break


def _of_lines(lines: Sequence[str], exit_code: int | None) -> Recognised | None:
    """Return what the last line that says anything says."""
    for index in range(len(lines) - 1, -1, -1):
        for row in RECOGNISERS:
            fields = row.in_line(lines[index], exit_code)
            if fields is not None:
                return Recognised(row, fields, index)
    return None


def by_signal(number: int) -> tuple[str, str, tuple[str, ...]]:
    """Return code, words and advice for a process that a signal ended, where nothing else is known."""
    crash = UNTRACED
    native = N_("Check that compiled packages were made for this torch and CUDA; run the script alone on that host.")
    known: dict[int, tuple[str, str, tuple[str, ...]]] = {
        signal.SIGKILL: (
            "killed",
            N_("It was killed from outside (SIGKILL), and not by dttui."),
            (N_("See `dmesg` on {host} for «Out of memory», or ask who else ends processes there."), LESS_HOST_MEMORY),
        ),
        signal.SIGTERM: (
            "terminated",
            N_("It was asked from outside to end (SIGTERM), and not by dttui."),
            (WHO_KILLS,),
        ),
        signal.SIGHUP: ("terminated", N_("It lost its terminal or session (SIGHUP)."), (crash,)),
        signal.SIGINT: ("interrupted", N_("It was interrupted (SIGINT)."), (N_("Launch again when you want it."),)),
        signal.SIGSEGV: (
            "segfault",
            N_("It crashed in compiled code: it touched memory that was not its own (SIGSEGV)."),
            (crash, native),
        ),
        signal.SIGBUS: (
            "bus-error",
            N_("It crashed on memory that could not be had (SIGBUS): most often /dev/shm or a mapped file was full."),
            (SHM, FREE_DISK),
        ),
        signal.SIGABRT: ("aborted", N_("It gave up in compiled code (SIGABRT)."), (crash, native)),
        signal.SIGILL: (
            "illegal-instruction",
            N_("A compiled package uses instructions that this CPU does not have (SIGILL)."),
            (N_("Install a build of it for an older CPU, or take another host."),),
        ),
        signal.SIGFPE: ("arithmetic", N_("It crashed in compiled code on a division (SIGFPE)."), (crash,)),
        signal.SIGXCPU: ("cpu-limit", N_("It had used all the CPU time it may (SIGXCPU)."), (N_("Raise ulimit -t."),)),
        signal.SIGXFSZ: ("file-limit", N_("It wrote a file larger than it may (SIGXFSZ)."), (N_("Raise ulimit -f."),)),
    }
    return known.get(number, ("signal", N_("It was ended by a signal."), (crash,)))


def asked_bytes(fields: Mapping[str, str]) -> int | None:
    """Return how much memory was asked for, where a pattern captured that in bytes or as `7.28 TiB`."""
    if fields.get("asked_bytes"):
        return int(fields["asked_bytes"])
    number, _blank, unit = fields.get("asked", "").partition(" ")
    with contextlib.suppress(ValueError, OverflowError):
        return int(float(number) * _UNITS.get(unit, 1))
    return None


def tell(text: str, fields: dict[str, str]) -> str:
    """Return a sentence of the table in the person's language, with what was captured in it."""
    merged = dict(fields)
    for name, value in fields.items():
        # Alternatives of one pattern cannot share a group's name, and differ in a digit.
        plain = name.rstrip("0123456789")
        if value and not merged.get(plain):
            merged[plain] = value
    if merged.get("asked_bytes"):
        merged["asked"] = _size(int(merged["asked_bytes"]))
    for name in ("asked", "free", "total"):
        number, _blank, unit = merged.get(name, "").partition(" ")
        if unit in _UNITS:
            with contextlib.suppress(ValueError):
                merged[name] = _size(float(number) * _UNITS[unit])
    if merged.get("milliseconds"):
        merged["seconds"] = f"{int(merged['milliseconds']) / 1000:.0f}"
    return _(text).format(**merged)


def followed_by(words: str, more: str) -> str:
    """Return what happened and a further sentence; a message that is quoted last may have no full stop."""
    if words.rstrip().endswith((".", "!", "?", "…", "。", "！", "？")):
        return f"{words} {more}"
    return _("{words}. {more}").format(words=words, more=more)


def _size(size: float) -> str:
    """Return bytes in GB or MB, as memory is told on every screen: torch and numpy count in GiB."""
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
