"""What a row of the table of faults says, and the promises of the README that it names."""

from __future__ import annotations

from dataclasses import dataclass

PROMISES = {
    "P1": "The death of dttui, of an agent or of the network never stops a job that has started.",
    "P2": "No gang starts by half: all nodes run, or every node that can be reached is proven clean and the others are "
    "named as lost.",
    "P3": "Stopped means that the GPUs are free, or the job says `unkillable` and names what is left.",
    "P4": "Every change of state that was acknowledged survives `kill -9`.",
    "P5": "No byte of a log is lost, doubled or out of order without a mark in the copy.",
    "P6": "Silence becomes “unknown since” a time within 30 s; never ok, and never failed.",
    "P7": "A bad host never delays the others beyond its own deadline.",
    "P8": "Nothing that comes from a host can drive the terminal or run code on the login node.",
    "P9": "A job that SUCCEEDED has trained together, or it says that its ranks have not.",
}
"""What the README promises."""

NOTHING = "nothing"


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    name: str
    injected: str
    """How a test makes it happen, for real."""
    promises: tuple[str, ...]
    """What has to hold, by the keys of `PROMISES`."""
    within_s: float
    """By when it is told or got over; the tests assert it, with room for a machine under load."""
    tests: tuple[str, ...]
    """What shows it: `tests/…/file.py::test_name`."""
    left: str = NOTHING
    """What may stay behind afterwards."""
