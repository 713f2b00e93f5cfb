"""`import`: files and command lines of other programs, written as a job file."""

from __future__ import annotations

import os
import posixpath
import sys
from argparse import Namespace
from pathlib import Path

from dttui.cli.printing import one_line, print_document, print_findings
from dttui.errors import ExitCode, UsageError
from dttui.i18n import _
from dttui.spec import (
    DocumentError,
    Finding,
    Imported,
    Job,
    Problem,
    Run,
    decode,
    dump_job,
    grouped,
    import_documents,
    printable,
    read_bytes,
)

COMMAND_NAME = "command line"
"""What places call a command line."""


def import_job(options: Namespace) -> int:
    """Print a job file made of the documents, or write it where none is yet; name what could not be carried over."""
    if not options.file and not options.command:
        hint = "dttui import FILE…; dttui import -- torchrun --nproc-per-node 8 train.py"
        raise UsageError(_("there is nothing to import"), hint)
    contents = {name: _content(name) for name in options.file}
    imported = import_documents(contents, list(options.command), COMMAND_NAME, _read_beside)
    target = Path(options.into) if options.into else None
    job = _with_directory(imported.job)
    job = job if target is None else _moved(job, target.absolute().parent)
    text = _with_comments(dump_job(job), imported)
    if target is not None and not options.dry_run:
        _write(target, text)
    if options.output != "human":
        notes = [note.model_dump(mode="json") for note in imported.notes]
        file = str(target) if target is not None else None
        document = {"job": job.model_dump(mode="json", exclude_unset=True), "notes": notes, "yaml": text, "file": file}
        print_document(document, options.output)
    elif target is None or options.dry_run:
        if target is not None:
            sys.stderr.write(printable(_("would write {path}").format(path=target)) + "\n")
        print(text, end="")
    else:
        print_findings(grouped(imported.notes), sys.stderr)
        print(_("wrote {file}; `dttui plan {file}` says what is still missing").format(file=target))
    return ExitCode.OK


def _content(name: str) -> bytes:
    """Return what is in a document. Raises DocumentError, which names the way of a command line that is one word."""
    if " " in name and not os.path.exists(name):  # Of a name that is too long, Path.exists raises.
        hint = _("A command line comes behind --: dttui import -- {command}").format(command=name)
        raise DocumentError([Problem(printable(one_line(name)), _("no such file"), printable(one_line(hint)))])
    return read_bytes(Path(name), name)


def _read_beside(path: str) -> str | None:
    """Return the text of a file that a document names, as seen from here; `None` where none can be read."""
    try:
        return decode(read_bytes(Path(path), path), path) if Path(path).is_file() else None
    except (DocumentError, OSError, ValueError):
        return None


def _with_directory(job: Job) -> Job:
    """Send this directory with a command or a module that names something in it, as it is sent with a script."""
    run = job.run
    if run is None or run.workdir is not None:
        return job
    package = (run.module or "").partition(".")[0]
    named = [word.rpartition("=")[2] for word in run.command or ()] + [package, package and f"{package}.py"]
    if not any(name and not posixpath.isabs(name) and os.path.exists(name) for name in named):
        return job
    return job.model_copy(update={"run": run.model_copy(update={"workdir": "."})})


def _moved(job: Job, directory: Path) -> Job:
    """Let what is sent, which lies here, be found from a job file that lies elsewhere."""
    run = job.run
    is_sent = run is not None and (run.workdir or run.script) is not None and not _is_on_hosts(run)
    if run is None or not is_sent or directory.resolve() == Path.cwd().resolve():
        return job
    workdir = os.path.relpath(Path.cwd().resolve() / (run.workdir or ""), directory.resolve())
    return job.model_copy(update={"run": run.model_copy(update={"workdir": workdir})})


def _is_on_hosts(run: Run) -> bool:
    return posixpath.isabs(run.workdir if run.workdir is not None else run.script or "")


def _with_comments(text: str, imported: Imported) -> str:
    head = [_("Imported from {names}.").format(names=", ".join(imported.names))]
    head += [_comment(note) for note in grouped(imported.notes)]
    return "".join(f"# {printable(one_line(line))}\n" for line in head) + text


def _comment(note: Finding) -> str:
    place = f"{note.place}: {note.place.path}" if note.place is not None else note.subject
    return f"{place}: {note.message}" + (f" → {note.hint}" if note.hint else "")


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(_("{file} is there already").format(file=path), _("Give another name to -o.")) from error
    except OSError as error:
        raise UsageError(_("cannot write {file}: {reason}").format(file=path, reason=error.strerror)) from error
