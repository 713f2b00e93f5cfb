"""What agents say, in the language of the person: their texts are English, and known here by what they are made of."""

from __future__ import annotations

import contextlib
import functools
import re
import string
from typing import Any

from dttui.i18n import N_, joined, msg
from dttui.sanitize import clean

MOST_CHARACTERS = 1000
"""Of a text that is looked at for what fills it."""

_KNOWN = frozenset(
    {
        N_("there is no {paths} here"),
        N_("there is no interpreter {python} here"),
        N_("the file system of {paths} does not answer"),
        N_("the way to {address} cannot be looked up: the name service does not answer"),
        N_("this host lets no more looks at it start: too many threads run, or hang"),
        N_("the attempt was given up already"),
        N_("attempt {attempt} of job {job} was seen here already"),
        N_("attempt {attempt} of the job still runs here"),
        N_("{wanted} GPUs are wanted and {free} are free here"),
        N_("{wanted} GPUs are wanted and {free} are free here; {who}"),
        N_("{wanted} simulated GPUs are wanted and {free} are free here"),
        N_("{wanted} simulated GPUs are wanted and {free} are free here; {who}"),
        N_("every port from {first} to {last} is taken"),
        N_("the start came too late: {who} by now"),
        N_("the start came too late: job {jobs} has the simulated GPUs by now"),
        N_("the start came too late: port {port} is taken by now"),
        N_("the supervisor did not start"),
        N_("the supervisor on this host died"),
        N_("the host was restarted"),
        N_("the agent's files of this job were removed from this host while it ran, and made anew"),
        N_("its records on this host were removed; what still ran of it was ended"),
        N_("a record of how it ended on this host is damaged"),
        N_("the attempt has run here, but the record of its start is gone"),
        N_("this host lets no more threads start"),
        N_("no room for the files: {needed} MB are needed and {free} MB are free below {path}"),
        # Of warm starts.
        N_("no process with torch imported is there"),
        N_("its packages have changed since torch was imported"),
        N_("the file system of its packages does not answer"),
        N_("the process that had forked it died"),
        N_("it ended"),
        N_("it ended at once"),
        N_("it ended while torch was imported"),
        N_("it tells nonsense of what it has imported"),
        N_("CUDA is initialised by the imports, and cannot be used in what is forked"),
        N_("Python is told by PYTHONSAFEPATH to look for modules in another order"),
        N_("PYTHONPATH is relative"),
        N_("its priority is not that of the job"),
        # Of GPUs and their driver.
        N_("the NVIDIA driver does not answer"),
        N_("the NVIDIA driver sees no GPU"),
        N_("this user may not use the NVIDIA driver; ask for access to /dev/nvidia*"),
        N_("the NVIDIA driver is installed but not loaded"),
        N_("the NVIDIA driver was updated while it was loaded; the host needs a reboot"),
        N_("application clocks"),
        N_("power cap"),
        N_("hardware slowdown"),
        N_("sync boost"),
        N_("software thermal slowdown"),
        N_("hardware thermal slowdown"),
        N_("power brake"),
        N_("display clocks"),
        N_("board limit"),
        N_("reliability voltage"),
        N_("GPU reset"),
        N_("node reboot"),
        N_("drain P2P"),
        N_("drain and reset"),
        N_("recover IMEX domain"),
        N_("bus reset"),
        N_("system reboot"),
    }
)
"""Nothing else is filled in: the form of a text from a host is not to be trusted."""

_RECOGNISED = (
    N_("damaged records of the journal were left out; they are kept in {path}"),
    N_("the disk of {path} was full at {time}: logs lack what did not fit"),
    N_("logs are not capped: the file system of {path} cannot drop part of a file ({reason})"),
    N_("cannot write {path}: {reason}"),
    # Of containers.
    N_("the container of {name} may still be there, {command}: {reason}"),
    # Of warm starts.
    N_("no warm start: {reason}"),
    N_("no warm start of some processes: {reason}"),
    N_("torch cannot be imported: {error}"),
    N_("it takes no requests: {error}"),
    N_("it does not answer: {error}"),
    N_("it has not answered within {seconds} s"),
    N_("{count} threads run after the imports, and would be missing in what is forked"),
    N_("the interpreter is {program}, and torch was imported by {python}"),
    N_("Python is started with {option}"),
    N_("{names} had another value when torch was imported"),
    N_("{path} has modules that hide some of those torch was imported with: {names}"),
    # Of interpreters.
    N_("{python} was not examined: too many others do not answer"),
    N_("{python} was not examined: at most {count} interpreters can be asked about at once"),
    N_("{python} cannot be reached: its file system does not answer"),
    N_("{python} gave no answer within {seconds} s"),
    N_("{python} does not answer as Python does"),
    N_("{python} does not answer as Python does: it prints without end"),
    N_("{python} cannot be run: {error}"),
    N_("{python} was ended by {signal}"),
    N_("{python} was ended by {signal}: {error}"),
    N_("{python} exits with {code}"),
    N_("{python} exits with {code}: {error}"),
    N_("{python} is Python {version}; {oldest} is the oldest that can be used"),
    N_("{python} is not a path"),
    N_("{python} is not on this host's PATH"),
    N_("{python} is a relative path; give an absolute one, or a name on PATH"),
    N_("{python} is not there"),
    N_("{python} is a directory"),
    N_("{python} is not executable"),
    # Of GPUs and their driver.
    N_("no NVIDIA driver: {library} is not installed"),
    N_("the NVIDIA driver's library cannot be loaded: {error}"),
    N_("the NVIDIA driver fails: {error}"),
    N_("the driver has not answered for {seconds} s"),
    N_("the driver has not answered for {seconds} s: {call} hangs"),
    N_("action {number}"),
)
"""Texts that come filled in, and without what they are made of, which is found in them."""


def agent_text(text: str, data: object = None) -> str:
    """Return what an agent said, as a message where it is a known one.

    Args:
        text: in English, as the agent filled it in.
        data: of its error; `told` in it says what the text was made of.
    """
    recipe: Any = data.get("told") if isinstance(data, dict) else {"id": text, "values": {}}
    with contextlib.suppress(LookupError, ValueError, TypeError, AttributeError):
        known = next((known for known in _KNOWN if known == recipe["id"]), None)
        if known is not None:
            return msg(known, **{str(name): clean(str(value)) for name, value in recipe["values"].items()})
    if len(text) <= MOST_CHARACTERS:
        for known, pattern in _patterns():
            if found := pattern.fullmatch(text):
                values = found.groupdict()
                # A reason is a text of the agent's too.
                return msg(
                    known, **{name: (agent_text if name == "reason" else clean)(values[name]) for name in values}
                )
    return clean(text)


def gpu_note_text(note: str) -> str:
    """Return an agent's note on GPUs that cannot be used, in which each may have its own words."""
    if not note.startswith("GPU "):
        return agent_text(note)
    parts = re.split(r"(?:; )?(GPU [0-9]+: )", note)[1:]
    return joined("; ", (who + agent_text(words) for who, words in zip(parts[::2], parts[1::2], strict=True)))


@functools.cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return what each text looks like filled in, those that say most by themselves first."""
    made = []
    for known in _RECOGNISED:
        pieces = list(string.Formatter().parse(known))
        pattern = "".join(re.escape(plain) + (f"(?P<{name}>.+?)" if name else "") for plain, name, _spec, _as in pieces)
        made.append((sum(len(plain) for plain, *_rest in pieces), known, re.compile(pattern, re.DOTALL)))
    return tuple((known, pattern) for _length, known, pattern in sorted(made, key=lambda item: -item[0]))
