"""`schema` and `fmt`: the language of files that people write, for editors and for people who share them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from dttui.cli.printing import one_line, print_document, print_rows
from dttui.compose.documents import format_file
from dttui.errors import ExitCode
from dttui.i18n import _
from dttui.inventory import inventory_schema
from dttui.spec import DocumentError, Problem, job_schema


def show_schema(options: Namespace) -> int:
    """Print the JSON Schema of a job file, an inventory or the settings: a JSON document in every format."""
    if options.of == "settings":
        from dttui.cli.screen import schema_of_settings  # Textual is imported for it.

        schema = schema_of_settings()
    else:
        schema = inventory_schema() if options.of == "inventory" else job_schema()
    print_document(schema, "jsonl" if options.output == "jsonl" else "json")
    return ExitCode.OK


def format_files(options: Namespace) -> int:
    """Bring job files into their canonical form, or only say which are in another; those with mistakes stay."""
    only_looks = options.check or options.dry_run
    changed: dict[str, bool] = {}
    problems: list[Problem] = []
    for file in options.file:
        try:
            changed[file] = format_file(Path(file), write=not only_looks)
        except DocumentError as error:
            problems += error.problems
    if problems and options.output != "human":
        raise DocumentError(problems)  # Its own document is the one there is.
    if options.output != "human":
        print_rows([{"file": file, "changed": is_changed} for file, is_changed in changed.items()], options.output)
    else:
        told = _("{file}: would be changed") if only_looks else _("{file}: changed")
        for file in (file for file, is_changed in changed.items() if is_changed):
            print(one_line(told.format(file=file)))
    if problems:
        raise DocumentError(problems)
    return ExitCode.USAGE if options.check and any(changed.values()) else ExitCode.OK
