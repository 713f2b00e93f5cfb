"""`render`: a job written to a directory that runs without dttui."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from dttui.cli.printing import print_document, print_findings
from dttui.cli.prompting import TerminalPrompter, replacing
from dttui.cli.sources import read_submission
from dttui.errors import CancelledError, ExitCode, UsageError
from dttui.export.contents import export_job, plan_to_export, told_of
from dttui.export.targets import get_target
from dttui.export.writing import foreign_files, is_taken, replaced_files, write
from dttui.i18n import _, ngettext
from dttui.planning.models import Plan
from dttui.sanitize import clean
from dttui.words import listed

MAX_NAMES = 5


async def render(options: Namespace) -> int:
    """Write the directory and name what was written; errors of the plan give exit code 2, and nothing is written."""
    made_for = get_target(options.target)
    if options.image is not None and options.target != "kubernetes":
        raise UsageError(_("--image goes with --target kubernetes alone"), _("Leave it out, or write run.container."))
    submission = read_submission(options, options.file)
    plan = plan_to_export(submission)
    target = Path(options.into)
    if plan.errors:
        _tell(options, plan, [], [])
        return ExitCode.USAGE
    export = export_job(submission, plan, target, options.image)
    plan = told_of(submission, plan, made_for.check(export))
    if plan.errors:
        _tell(options, plan, [], [])
        return ExitCode.USAGE
    files = made_for.render(export)
    foreign: list[str] = []
    if is_taken(target):
        foreign = foreign_files(target, files)
        replaced = replaced_files(target, files)
        question = clean(_("{path} is not empty; what it holds stays.").format(path=target))
        question = replacing(target, replaced) if replaced else question
        if not options.yes and not await TerminalPrompter().confirm(question):
            raise CancelledError(_("nothing was written"))
    write(target, files)
    _tell(options, plan, [file.path for file in files], foreign)
    return ExitCode.OK


def _tell(options: Namespace, plan: Plan, files: list[str], foreign: list[str]) -> None:
    if options.output != "human":
        findings = [finding.model_dump(mode="json") for finding in plan.findings]
        document = {"directory": options.into, "target": options.target, "files": files}
        print_document({**document, "left_alone": foreign, "findings": findings}, options.output)
        return
    print_findings(plan.findings, sys.stderr)
    if foreign:
        told = _("⚠ also in {path}, and none of what was written now: {names}")
        names = listed(foreign, MAX_NAMES)
        sys.stderr.write(clean(told.format(path=options.into, names=names)) + "\n")
    if files:
        told = ngettext(
            "wrote {count} file to {path}; {readme} says how to start it",
            "wrote {count} files to {path}; {readme} says how to start it",
            len(files),
        )
        readme = Path(options.into) / "README.md"
        print(clean(told.format(count=len(files), path=options.into, readme=readme)))
