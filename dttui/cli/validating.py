"""`validate`: looking at a job file by itself."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from dttui.app import App
from dttui.cli.printing import print_document, print_findings
from dttui.errors import ExitCode
from dttui.i18n import _
from dttui.spec import DocumentError, Severity, as_problem, decode, parse_document, read_bytes, with_places


def validate(options: Namespace) -> int:
    """Check a job file by itself, without an inventory."""
    path, file = Path(options.file), options.file
    text = decode(read_bytes(path, file), file)
    loaded = parse_document(text, file)
    job = loaded.job
    app = App()
    needed = app.drafts.open_points(job, path.parent)
    mistakes = [finding for finding in needed if finding.severity is Severity.ERROR]
    if mistakes:
        raise DocumentError(as_problem(finding, file) for finding in with_places(mistakes, text, file, loaded.source))
    notes = [*loaded.notes, *with_places(app.drafts.remarks(job), text, file, loaded.source)]
    if options.output == "human":
        nodes = ", ".join(node.id for node in job.cluster.nodes)
        print(_("{file}: valid; job {name}, nodes: {nodes}").format(file=file, name=job.name, nodes=nodes or "–"))
        print_findings(notes)
        if needed:
            print(_("`dttui plan` will ask for more:"))
            print_findings(needed)
    else:
        document = {
            "valid": True,
            "needed": [finding.model_dump(mode="json") for finding in needed],
            "dialect": loaded.dialect,
            "job": job.model_dump(mode="json", exclude_unset=True),
            "notes": [note.model_dump(mode="json") for note in notes],
        }
        print_document(document, options.output)
    return ExitCode.OK
