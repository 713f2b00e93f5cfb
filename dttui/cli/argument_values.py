"""Values of options of the command line. Each raises ArgumentTypeError where a text is none of its kind."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Literal

from dtagent.protocol.events import EventKind, JobState

from dttui.i18n import _
from dttui.spec import did_you_mean, parse_duration, printable

MOST_DIGITS = 18
"""Of a whole number."""
LEAST_MESSAGE, MOST_MESSAGE = 8, 1 << 30
"""Bytes of the largest message of a bench."""
MOST_SPEED = 1e9
"""Of a replay: thirty years a second."""


def ranks(text: str) -> Literal["all"] | tuple[int, ...]:
    """Return numbers with commas between them, or all; empty for none."""
    if text == "all":
        return "all"
    if text == "none":
        return ()
    try:
        return tuple(dict.fromkeys(natural(part.strip()) for part in text.split(",")))
    except ArgumentTypeError as fault:
        told = _('"{text}" names no ranks: all, none, or numbers such as 0,3').format(text=printable(text))
        raise ArgumentTypeError(told) from fault


def _words(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return words with commas between them that are all known, whatever their case."""
    found = []
    for word in (part.strip() for part in text.split(",")):
        meant = next((name for name in known if name.lower() == word.lower()), None)
        if meant is None:
            near = did_you_mean(word, known) or _("there are {names}").format(names=", ".join(known))
            told = _('there is no "{word}"; {near}').format(word=printable(word), near=near)
            raise ArgumentTypeError(told)
        found.append(meant)
    return tuple(found)


def final_states(text: str) -> tuple[str, ...]:
    """Return states in which a job is over."""
    return _words(text, [state.value for state in JobState if state.is_final])


def event_kinds(text: str) -> tuple[str, ...]:
    """Return kinds of events; what ranks report of steps is none of them."""
    return _words(text, [kind.value for kind in EventKind if kind is not EventKind.METRIC])


def natural(text: str) -> int:
    """Return a whole number from 0."""
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise ArgumentTypeError(_("{text} is no whole number of at least {least}").format(text=text, least=0))
    return int(text)


def positive(text: str) -> int:
    """Return a whole number from 1."""
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
        raise ArgumentTypeError(_("{text} is no whole number of at least 1").format(text=text))
    return int(text)


def speed(text: str) -> float:
    """Return how many seconds are told a second: a number above 0, or infinite for max."""
    if text == "max":
        return math.inf
    try:
        found = float(text.removesuffix("x").removesuffix("×"))
    except ValueError:
        found = math.nan
    if not 0 < found <= MOST_SPEED:
        told = _("{text} is no speed: max, or a number above 0, such as 10")
        raise ArgumentTypeError(told.format(text=printable(text)))
    return found


def seconds(text: str) -> float:
    """Return a duration in seconds, above 0."""
    try:
        found = parse_duration(text)
    except ValueError as fault:
        raise ArgumentTypeError(str(fault)) from fault
    if not found:
        raise ArgumentTypeError(_("{text} is no time in which anything can be done").format(text=printable(text)))
    return found


def byte_size(text: str) -> int:
    """Return the bytes of a message, whole elements of four bytes."""
    from dttui.spec import format_bytes, parse_bytes  # With the models, which few verbs need.

    try:
        found = int(parse_bytes(text))
    except ValueError as fault:
        raise ArgumentTypeError(str(fault)) from fault
    if not LEAST_MESSAGE <= found <= MOST_MESSAGE:
        told = _("{text} is no size of a message: from {least} to {most}")
        least, most = format_bytes(LEAST_MESSAGE), format_bytes(MOST_MESSAGE)
        raise ArgumentTypeError(told.format(text=printable(text), least=least, most=most))
    return found - found % 4
