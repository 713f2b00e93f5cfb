"""`init`: a template written as a script that trains and a job file that runs it on the environments at hand."""

from __future__ import annotations

import re
import shlex
import sys
from argparse import Namespace
from pathlib import Path

from dttui.app import JOB_FILE, OWN_SCRIPT, App, Begun, Template
from dttui.cli.printing import print_document, print_findings, print_rows, print_table
from dttui.cli.prompting import TerminalPrompter, replacing
from dttui.cli.sources import choose, read_inventory, read_submission
from dttui.errors import CancelledError, ExitCode, UsageError
from dttui.i18n import _, language, ngettext
from dttui.sanitize import clean, clean_line
from dttui.spec import Severity
from dttui.words import listed

MAX_NAMES = 5
TOLD = ("not-in-script", "script-model", "run-replaced")
"""Codes of findings that are no errors and told all the same."""
MAX_NAME_CHARS = 120
"""Of a job."""


async def init(options: Namespace) -> int:
    """Write a template into a directory and tell what to run next, or list the templates."""
    app = App()
    if options.list:
        return _list(app.drafts.templates(options.framework), options)
    if options.framework is None and options.template is None and options.job_file is None:
        raise UsageError(_("init wants to know which framework or template"), "dttui init --list")
    if options.job_file is not None:
        template, target, made = _of_job(app, options)
    else:
        template = app.drafts.template(options.framework, options.template)
        inventory = read_inventory(options)
        names = [name for name in (options.nodes or "").split(",") if name]
        environments = choose(inventory, names) if names else ()
        target = Path(options.directory or template.name)
        made = app.drafts.begin(template, environments, inventory, _name_of(target), target)
    if options.dry_run:
        _tell(options, template, target, made)
        return ExitCode.OK
    if made.replaced and not options.yes and not await TerminalPrompter().confirm(replacing(target, made.replaced)):
        raise CancelledError(_("nothing was written"))
    try:
        app.write(target, made.files)
    except UsageError as error:
        raise UsageError(error.message, _("Name another directory, or take away what is in the way.")) from error
    _tell(options, template, target, made)
    return ExitCode.OK


def _of_job(app: App, options: Namespace) -> tuple[Template, Path, Begun]:
    """Return what is written for a job, and where. Raises UsageError."""
    if options.framework is not None or options.template is not None or options.nodes is not None:
        raise UsageError(
            _("--from takes framework and nodes from the job"), _("Give --from alone, or write them there.")
        )
    submission = read_submission(options, options.job_file)
    words = re.sub(r"[^\w.-]+", "-", submission.job.name).strip("-.")
    target = Path(options.directory or words or "job")
    template, made = app.drafts.generate(submission.job, submission.inventory, target)
    return template, target, made


def _name_of(target: Path) -> str:
    """Return what to call a job that is written into a directory."""
    name = target.resolve().name.encode(errors="replace").decode()  # A file's name may be no text.
    return clean_line(name)[:MAX_NAME_CHARS] or "job"


def _list(templates: list[Template], options: Namespace) -> int:
    if options.output != "human":
        rows = [{"name": item.name, "framework": item.framework, "title": item.title} for item in templates]
        print_rows(rows, options.output)
        return ExitCode.OK
    cells = [[item.name, item.framework, item.label, item.title] for item in templates]
    print_table([_("TEMPLATE"), _("FRAMEWORK"), "", ""], cells)
    return ExitCode.OK


def _tell(options: Namespace, template: Template, target: Path, made: Begun) -> None:
    plan, files = made.plan, [file.path for file in made.files]
    if options.output != "human":
        findings = [finding.model_dump(mode="json") for finding in plan.findings]
        document = {"directory": str(target), "template": template.name, "framework": template.framework}
        dry = {"dry_run": True} if options.dry_run else {}
        print_document({**document, "files": files, "findings": findings, **dry}, options.output)
        return
    noted = (item for item in plan.findings if item.severity is Severity.ERROR or item.code in TOLD)
    print_findings(noted, sys.stderr)
    if options.dry_run:
        for file in files:
            print(clean(_("would write {path}").format(path=target / file)))
        return
    nodes = ngettext("{count} node", "{count} nodes", len(plan.nodes)).format(count=len(plan.nodes))
    ranks = ngettext("{count} rank", "{count} ranks", plan.world_size).format(count=plan.world_size)
    told = _("wrote {names} to {path}: {framework} on {nodes}, {ranks}")
    names = listed(files, MAX_NAMES)
    print(clean(told.format(names=names, path=target, framework=template.label, nodes=nodes, ranks=ranks)))
    if template.directory is None:
        told = _("{framework} comes without an example: write your script to {path}")
        print(clean(told.format(framework=template.label, path=target / OWN_SCRIPT)))
    if made.packages:
        print(_("each host's interpreter needs {packages}").format(packages=", ".join(made.packages)))
    if language() != "en" and template.directory is not None:
        print(_("the comments inside the scripts are in English"))
    where = ["--demo"] if options.demo else ["--inventory", options.inventory] if options.inventory else []
    file = str(target / JOB_FILE)
    print("  " + shlex.join(["dttui", "plan", *where, file]) + "   # " + _("shows what would run"))
    print("  " + shlex.join(["dttui", *where, "--apply", file]) + "   # " + _("runs it"))
