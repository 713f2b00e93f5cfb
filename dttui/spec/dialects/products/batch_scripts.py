"""Scripts for PBS, LSF, SGE and the like: followed as any shell script, with a note on their directives."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from dttui.i18n import _
from dttui.spec.dialects.products.product_kind import ReadFile
from dttui.spec.dialects.products.text_kinds import BatchSystem, scheduler_of
from dttui.spec.dialects.script import translate_script
from dttui.spec.dialects.script_recognition import is_script
from dttui.spec.dialects.translation import Translated, in_order
from dttui.spec.findings import Finding, Place, Severity
from dttui.spec.problems import DocumentError, printable

_NAMES = (".pbs", ".qsub", ".lsf", ".bsub", ".sge", ".job", ".sub", ".pjm")
_STARTED_IN = dict.fromkeys(("PBS_O_WORKDIR", "LS_SUBCWD", "SGE_O_WORKDIR", "PJM_O_WORKDIR"), ".")
"""JobVariables for the directory that a script is submitted from."""


def batch_scheduler(text: str, name: str) -> BatchSystem | None:
    """Return the scheduler that a script is for, other than Slurm; `None` where it is for none, or no script."""
    scheduler = scheduler_of(text)
    is_named = posixpath.splitext(name)[1] in _NAMES
    return scheduler if scheduler is not None and (is_named or is_script(text, name)) else None


def translate_batch_script(
    text: str, name: str, arguments: Sequence[str], read: ReadFile, scheduler: BatchSystem
) -> Translated:
    """Carry the command of a script over, and say what its scheduler was told. Raises DocumentError."""
    try:
        translated = translate_script(text, name, arguments, given=_STARTED_IN.get, read=read)
    except DocumentError as error:
        kind = _("a script for {scheduler}").format(scheduler=scheduler.title)
        told = _("{kind}: {problem}")
        problems = [
            replace(problem, message=told.format(kind=kind, problem=problem.message)) for problem in error.problems
        ]
        raise DocumentError(problems) from error
    note = _directives(text, name, scheduler)
    return replace(translated, notes=in_order((*translated.notes, note)))


def _directives(text: str, name: str, scheduler: BatchSystem) -> Finding:
    """Return a note on what the scheduler is told, at the first directive."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if scheduler.directive.match(line)]
    number, line = lines[0] if lines else (1, "")
    told = "; ".join(printable(line.partition(" ")[2].strip()) for _number, line in lines)[:200]
    message = _("not carried over: what {scheduler} is told: {directives}")
    return Finding(
        code="not-carried-over",
        severity=Severity.WARNING,
        subject=scheduler.title,
        message=message.format(scheduler=scheduler.title, directives=told),
        hint=_("List the nodes under cluster.nodes, and write resources.gpu.count."),
        place=Place(file=name, line=number, column=1, path=scheduler.title, source_line=printable(line)),
    )
