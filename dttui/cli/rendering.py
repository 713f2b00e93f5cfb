"""`render`: a job written to a directory that runs without dttui."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from dttui.app import App
from dttui.cli.printing import print_document, print_findings
from dttui.cli.prompting import TerminalPrompter, replacing
from dttui.cli.sources import read_submission
from dttui.errors import CancelledError, ExitCode, UsageError
from dttui.i18n import _, ngettext
from dttui.planning import Plan
from dttui.sanitize import clean
from dttui.words import listed

MAX_NAMES = 5


async def render(options: Namespace) -> int:
    """Write the directory and name what was written; errors of the plan give exit code 2, and nothing is written."""
    app = App()
    target = Path(options.into)
    if options.image is not None and options.target != "kubernetes":
        raise UsageError(_("--image goes with --target kubernetes alone"), _("Leave it out, or write run.container."))
    found = app.export(read_submission(options, options.file), options.target, target, options.image)
    if found.plan.errors:
        _tell(options, found.plan, [], [])
        return ExitCode.USAGE
    if options.dry_run:
        _tell(options, found.plan, [file.path for file in found.files], [])
        return ExitCode.OK
    if found.is_taken:
        question = clean(_("{path} is not empty; what it holds stays.").format(path=target))
        question = replacing(target, found.replaced) if found.replaced else question
        if not options.yes and not await TerminalPrompter().confirm(question):
            raise CancelledError(_("nothing was written"))
    app.write(target, found.files)
    _tell(options, found.plan, [file.path for file in found.files], found.foreign)
    return ExitCode.OK


def _tell(options: Namespace, plan: Plan, files: Sequence[str], foreign: Sequence[str]) -> None:
    if options.output != "human":
        findings = [finding.model_dump(mode="json") for finding in plan.findings]
        dry = {"dry_run": True} if options.dry_run else {}
        document = {"directory": options.into, "target": options.target, "files": files, **dry}
        print_document({**document, "left_alone": foreign, "findings": findings}, options.output)
        return
    print_findings(plan.findings, sys.stderr)
    if foreign:
        told = _("⚠ also in {path}, and none of what was written now: {names}")
        names = listed(foreign, MAX_NAMES)
        sys.stderr.write(clean(told.format(path=options.into, names=names)) + "\n")
    if options.dry_run:
        for file in files:
            print(clean(_("would write {path}").format(path=Path(options.into) / file)))
    elif files:
        told = ngettext(
            "wrote {count} file to {path}; {readme} says how to start it",
            "wrote {count} files to {path}; {readme} says how to start it",
            len(files),
        )
        readme = Path(options.into) / "README.md"
        print(clean(told.format(count=len(files), path=options.into, readme=readme)))
