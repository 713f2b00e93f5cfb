"""What a command line comes to. Wiring only: arguments to use cases, errors to exit codes."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from importlib import import_module

from dttui.app import Caller
from dttui.cli.arguments import COMMANDS, LAUNCHING, parse_arguments
from dttui.cli.conflicts import refuse_conflicts
from dttui.cli.hangup import hang_up_with_terminal
from dttui.cli.limit import TimeLimit
from dttui.errors import CancelledError, DttuiError, ExitCode, is_short_of_threads
from dttui.garbage import collected_rarely
from dttui.i18n import _, set_language
from dttui.sanitize import clean
from dttui.spec import DocumentError, format_path
from dttui.words import more_threads, short_of_threads


def run(argv: list[str] | None = None) -> int:
    """Do what a command line says; return the exit status of DESIGN §4.1."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # It looks for them in all that is installed.
    caller = Caller(_language_of(arguments))
    set_language(caller.language)  # Of what is said in no call: the parser's words are the first.
    options = parse_arguments(arguments)
    logging.basicConfig(
        stream=sys.stderr, level=logging.DEBUG if options.verbose else logging.ERROR, format="%(levelname)s %(message)s"
    )
    logging.getLogger("paramiko").setLevel(logging.DEBUG if options.verbose > 1 else logging.CRITICAL)
    try:
        with caller.speaks():
            return int(_do(options))
    except DttuiError as error:
        _print_error(error, options)
        return int(error.exit_code)
    except KeyboardInterrupt:
        _print_error(CancelledError(options.interrupted or _interrupted(options)), options)
        return int(ExitCode.CANCELLED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.OK)
    except Exception as error:  # The top of the program: a stack trace is not what a person should see.
        if is_short_of_threads(error):
            _print_error(DttuiError(short_of_threads(), more_threads()), options)
            return int(ExitCode.INTERNAL)
        logging.getLogger("dttui").debug("internal error", exc_info=True)
        told = _("internal error: {error}").format(error=f"{type(error).__name__}: {error}")
        hint = _("Run again with -v for the details, and report it.")
        _print_error(DttuiError(told, hint), options)
        return int(ExitCode.INTERNAL)


def _do(options: Namespace) -> int:
    refuse_conflicts(options)
    verb = options.verb or ("apply" if options.apply else "tui")
    if verb == "tui":
        from dttui.cli.screen import open_screen

        return open_screen(options)
    if verb == "apply" and options.dry_run:
        options.file = options.apply if options.verb is None else options.file
        verb = "plan"
    if verb not in LAUNCHING or options.dry_run:
        return _command(verb)(options)
    from dttui.app import App

    with contextlib.ExitStack() as spare:
        options.spare = spare.enter_context(App().controller_ahead())
        return _command(verb)(options)


def _interrupted(options: Namespace) -> str:
    """Return what Ctrl-C has left undone, where the verb itself has not said that."""
    if options.verb in LAUNCHING or options.apply:
        return _("interrupted before there was a job: nothing was started")
    if options.verb == "agents" and options.action != "status":
        return _("interrupted; for the hosts that were not done yet, run the same command again")
    return _("interrupted")


def _command(verb: str) -> Callable[[Namespace], int]:
    """Return what does it. The other verbs are not imported."""
    module, name = COMMANDS[verb]
    with collected_rarely():
        command: Callable[[Namespace], int | Awaitable[int]] = getattr(import_module(f"dttui.cli.{module}"), name)

    def run(options: Namespace) -> int:
        hang_up_with_terminal()
        with TimeLimit(options) as limit:
            result = command(options)
            if isinstance(result, int):
                return result
            from dttui.cli.interrupting import (
                run_interruptibly,  # With asyncio, which who only looks at jobs need not load.
            )

            return run_interruptibly(limit.around(result))

    return run


def _language_of(arguments: list[str]) -> str | None:
    """Find --lang before the parser is made, since its own help is in that language."""
    for index, argument in enumerate(arguments):
        if argument == "--":  # What follows is no option of ours.
            return None
        if argument == "--lang" and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith("--lang="):
            return argument.partition("=")[2]
    return None


def _print_error(error: DttuiError, options: Namespace) -> None:
    if options.output in ("json", "jsonl"):
        body: dict[str, object] = {"error": error.message, "hint": error.hint, "exit_code": int(error.exit_code)}
        if isinstance(error, DocumentError):
            body["problems"] = [{**asdict(problem), "path": format_path(problem.path)} for problem in error.problems]
        print(json.dumps(body))
    # Problems of a document begin with its place, as compilers have it, for editors to find.
    who = "" if isinstance(error, DocumentError) else "dttui: "
    sys.stderr.write(f"{who}{clean(error.message)}\n")
    if error.hint:
        sys.stderr.write(f"  → {clean(error.hint)}\n")
