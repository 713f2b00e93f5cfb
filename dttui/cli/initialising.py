"""`init`: a template written as a script that trains and a job file that runs it on the environments at hand."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from pathlib import Path

from dttui import locations
from dttui.app import App
from dttui.cli.printing import print_document, print_findings, print_rows, print_table
from dttui.cli.prompting import TerminalPrompter, replacing
from dttui.cli.sources import choose, read_inventory
from dttui.compose import JOB_FILE, OWN_SCRIPT, Template, choose_template, environments_for, made_for, read_templates
from dttui.errors import CancelledError, ExitCode, UsageError
from dttui.frameworks import get_framework
from dttui.i18n import _, language, ngettext
from dttui.planning import Plan, plan
from dttui.sanitize import clean
from dttui.words import listed

MAX_NAMES = 5
MAX_NAME_CHARS = 120
"""Of a job."""


async def init(options: Namespace) -> int:
    """Write a template into a directory and tell what to run next, or list the templates."""
    templates = read_templates(locations.shipped("examples"))
    if options.list:
        return _list(templates, options)
    if options.framework is None and options.template is None:
        raise UsageError(_("init wants to know which framework or template"), "dttui init --list")
    template = choose_template(templates, options.framework, options.template)
    inventory = read_inventory(options)
    names = [name for name in (options.nodes or "").split(",") if name]
    environments = choose(inventory, names) if names else environments_for(template, inventory)
    if not environments:
        raise UsageError(_("the inventory has no environments"), _("Add some, or try --demo."))
    target = Path(options.directory or template.name)
    job = made_for(template, environments, inventory, _name_of(target))
    files = template.files_for(job)
    app = App()
    replaced = app.replaced_files(target, files)
    if options.dry_run:
        _tell(options, template, target, [file.path for file in files], plan(job, inventory))
        return ExitCode.OK
    if replaced and not options.yes and not await TerminalPrompter().confirm(replacing(target, replaced)):
        raise CancelledError(_("nothing was written"))
    try:
        app.write(target, files)
    except UsageError as error:
        raise UsageError(error.message, _("Name another directory, or take away what is in the way.")) from error
    _tell(options, template, target, [file.path for file in files], plan(job, inventory))
    return ExitCode.OK


def _name_of(target: Path) -> str:
    """Return what to call a job that is written into a directory."""
    name = target.resolve().name.encode(errors="replace").decode()  # A file's name may be no text.
    return " ".join(clean(name).split())[:MAX_NAME_CHARS] or "job"


def _list(templates: list[Template], options: Namespace) -> int:
    if options.framework is not None:
        get_framework(options.framework)
        templates = [item for item in templates if item.framework == options.framework]
    if options.output != "human":
        rows = [{"name": item.name, "framework": item.framework, "title": item.title} for item in templates]
        print_rows(rows, options.output)
        return ExitCode.OK
    cells = [[item.name, item.framework, get_framework(item.framework).label, item.title] for item in templates]
    print_table([_("TEMPLATE"), _("FRAMEWORK"), "", ""], cells)
    return ExitCode.OK


def _tell(options: Namespace, template: Template, target: Path, files: list[str], made: Plan) -> None:
    if options.output != "human":
        findings = [finding.model_dump(mode="json") for finding in made.findings]
        document = {"directory": str(target), "template": template.name, "framework": template.framework}
        dry = {"dry_run": True} if options.dry_run else {}
        print_document({**document, "files": files, "findings": findings, **dry}, options.output)
        return
    print_findings(made.errors, sys.stderr)
    if options.dry_run:
        for file in files:
            print(clean(_("would write {path}").format(path=target / file)))
        return
    framework = get_framework(template.framework)
    nodes = ngettext("{count} node", "{count} nodes", len(made.nodes)).format(count=len(made.nodes))
    ranks = ngettext("{count} rank", "{count} ranks", made.world_size).format(count=made.world_size)
    told = _("wrote {names} to {path}: {framework} on {nodes}, {ranks}")
    names = listed(files, MAX_NAMES)
    print(clean(told.format(names=names, path=target, framework=framework.label, nodes=nodes, ranks=ranks)))
    if template.directory is None:
        told = _("{framework} comes without an example: write your script to {path}")
        print(clean(told.format(framework=framework.label, path=target / OWN_SCRIPT)))
    if packages := template.packages():
        print(_("each host's interpreter needs {packages}").format(packages=", ".join(packages)))
    if language() != "en" and template.directory is not None:
        print(_("the comments inside the scripts are in English"))
    where = ["--demo"] if options.demo else ["--inventory", options.inventory] if options.inventory else []
    file = str(target / JOB_FILE)
    print("  " + shlex.join(["dttui", "plan", *where, file]) + "   # " + _("shows what would run"))
    print("  " + shlex.join(["dttui", *where, "--apply", file]) + "   # " + _("runs it"))
