"""Arguments that a script refused and that its framework had added: which they are, and what to do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence

from dttui.diagnosis.models import Cause, Confidence, Evidence, LogLine
from dttui.diagnosis.recogniser import MAX_FIELD
from dttui.errors import DttuiError
from dttui.frameworks import traits_of
from dttui.i18n import _
from dttui.jobs import JobDirectory
from dttui.jobs.plan_file import SeenPlan
from dttui.planning.models import Plan
from dttui.spec.loader import parse_job
from dttui.words import listed

MOST_NAMED = 4
_UNKNOWN = re.compile(r"(?:unrecognized arguments?|No such option|Got unexpected extra arguments?)\b(?P<words>.*)")
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")


def added_arguments(directory: JobDirectory, plan: Plan | SeenPlan | None) -> tuple[str, ...]:
    """Return what a job's framework puts after `run.args`; nothing where that is not known."""
    with contextlib.suppress(OSError, DttuiError):
        run = parse_job(directory.document.read_bytes(), directory.document.name).run
        program = (run.script or run.module) if run is not None else None
        if run is not None and program is not None and plan is not None:
            commands = (process.argv for node in plan.nodes[:1] for process in node.processes)
            return next(filter(None, (_after(argv, program, run.args) for argv in commands)), ())
    return ()


def _after(argv: Sequence[str], program: str, args: Sequence[str]) -> tuple[str, ...]:
    """Return what follows a program's own arguments in a command; nothing where the command is another one."""
    for index in range(len(argv) - 1, -1, -1):
        rest = tuple(argv[index + 1 :])
        if argv[index] == program and rest[: len(args)] == tuple(args):
            return rest[len(args) :]
    return ()


def refused_by_script(
    program: str, what: str, evidence: Evidence, confidence: Confidence, lines: tuple[LogLine, ...]
) -> Cause | None:
    """Return the cause where some of the refused arguments are the framework's; `None` where none is.

    Args:
        program: that refused them.
        what: its words.
        evidence: of the job.
        confidence: how well the words are founded.
        lines: where they were found.
    """
    match = _UNKNOWN.search(what)
    words = match["words"].split() if match is not None else []
    if len(what) >= MAX_FIELD:
        words = words[:-1]  # Cut short.
    refused, added = _options(words), set(_options(evidence.added_arguments))
    ours = [name for name in refused if name in added]
    if not ours:
        return None
    text = _("{program} is not written for framework: {framework}, which adds arguments that it refused: {options}.")
    told = text.format(program=program, framework=evidence.framework, options=listed(ours, MOST_NAMED))
    advice = [_("Choose the framework that the script is written for.")]
    own = traits_of(evidence.framework).arguments_advice
    advice.append(_(own) if own else _("Or have the script take them; --dry-run shows the whole command."))
    if len(ours) < len(refused):
        own_words = _("Correct {arguments}; the script's own --help says what it takes.")
        advice.append(own_words.format(arguments="run.args"))
    return Cause("framework-arguments", told, tuple(advice), confidence, False, lines)


def _options(words: Iterable[str]) -> list[str]:
    """Return the names of options among words, each once."""
    names = (word.strip(":,'\"").partition("=")[0] for word in words)
    return list(dict.fromkeys(name for name in names if _OPTION.fullmatch(name)))
