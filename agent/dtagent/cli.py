"""The `dtagent` command: wiring only. Each verb imports what it needs, and `connect` not even the parser of options."""

from __future__ import annotations

import os
import sys

from dtagent import __version__
from dtagent.errors import DtagentError
from dtagent.names import default_root
from dtagent.protocol.places import usual_root
from dtagent.protocol.said import Said, notice_line

TYPE_CHECKING = False  # As typing's, whose import a person would wait for.
if TYPE_CHECKING:
    import argparse
    from pathlib import Path

_CONNECT_OPTIONS = ("--root", "--idle-exit")


def main(argv: list[str] | None = None) -> int:
    """Run one verb; return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options = _connect_options(arguments)
        if options is not None:
            from dtagent.daemon.bridge import connect

            root = options.get("--root") or default_root()
            return connect(
                os.path.abspath(root), ["--idle-exit", options["--idle-exit"]] if "--idle-exit" in options else []
            )
        return _run(arguments)
    except DtagentError as error:
        _tell(error.said, arguments)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # Whoever read has seen enough.
        _drop_output()
        return 0
    except OSError as error:  # Of this host, not of the program: no room where stdout leads, no file handles.
        _drop_output()
        sys.stderr.write(f"dtagent: {error.filename + ': ' if error.filename else ''}{error.strerror or error}\n")
        return 1
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        from dtagent.protocol import sentences

        _tell(sentences.SHORT_OF_THREADS(), arguments)
        return 1


def _tell(said: Said, arguments: list[str]) -> None:
    """Tell on stderr why nothing comes of it; where a program may read stdout, that gets the code."""
    if sys.stdout is not None and not {"connect", "daemon"}.isdisjoint(arguments):
        try:
            if not os.isatty(1):
                os.write(1, notice_line(said).encode())
        except OSError:  # Nobody reads it, and the text says the same.
            pass
    sys.stderr.write(f"dtagent: {said}\n")


def _connect_options(arguments: list[str]) -> dict[str, str] | None:
    """Return the options of `connect` where that is what is asked for, and in the simplest way."""
    if arguments[:1] != ["connect"] or len(arguments) % 2 == 0:
        return None
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    is_simple = options.keys() <= set(_CONNECT_OPTIONS) and _is_plain(options.get("--idle-exit", "1"))
    return options if is_simple else None


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) > 0


def _run(arguments: list[str]) -> int:
    from pathlib import Path

    options = make_parser().parse_args(arguments)
    named = options.root or default_root(takes=options.verb in ("connect", "daemon"))
    root = Path(os.path.abspath(named))  # A daemon has another working directory.
    if options.verb == "connect":
        from dtagent.daemon.bridge import connect

        return connect(str(root), [] if options.idle_exit is None else ["--idle-exit", f"{options.idle_exit:g}"])
    if options.verb == "daemon":
        from dtagent.daemon.server import serve

        _open_streams()
        return serve(root, idle_exit_s=options.idle_exit)
    if options.verb == "supervise":
        from dtagent.supervision import supervisor

        return supervisor.main(options.directory, *options.descriptors, gpu_locks=options.gpu_locks)
    if sys.stdout is None:
        raise DtagentError("stdout is closed")
    status = _show(options, root)
    sys.stdout.flush()  # Here it can still be told that there is no room.
    return status


def _show(options: argparse.Namespace, root: Path) -> int:
    """Run a verb that prints."""
    if options.verb == "facts":
        from dtagent.terminal import show

        return show.facts([*options.pythons, *(["--json"] if options.json else [])])
    if options.verb in ("status", "stop"):
        from dtagent.terminal import daemon_verbs

        return daemon_verbs.status(root) if options.verb == "status" else daemon_verbs.stop(root)
    from dtagent.terminal import top

    return top.top(root) if options.verb == "top" else top.metrics(root)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    import argparse
    from pathlib import Path

    common = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    common.add_argument(
        "--root", metavar="DIR", default=argparse.SUPPRESS, help=f"where the agent keeps its state ({usual_root()})"
    )
    parser = argparse.ArgumentParser(
        "dtagent", description="Runs and watches the jobs of dttui on this host.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"dtagent {__version__}")
    parser.add_argument("--root", metavar="DIR", help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def add(verb: str, told: str) -> argparse.ArgumentParser:
        return verbs.add_parser(verb, help=told, description=told, parents=[common], allow_abbrev=False)

    add("top", "show what this host does now: GPUs, processes, jobs; once where stdout is no terminal")
    add("metrics", "print the newest reading as Prometheus text")
    facts = add("facts", "tell what this host is; as JSON where stdout is no terminal")
    facts.add_argument("pythons", metavar="PYTHON", nargs="*", help="interpreters to tell about")
    facts.add_argument("--json", action="store_true", help="print JSON at a terminal too")
    add("status", "tell whether the daemon runs, and which jobs do")
    add("stop", "end the daemon; jobs go on, and the next client starts another")
    for verb, told in (
        ("connect", "carry stdio to the daemon, starting it when absent (what dttui runs over SSH)"),
        ("daemon", "serve the socket in the root"),
    ):
        add(verb, told).add_argument(
            "--idle-exit", metavar="SECONDS", type=_seconds, help="end the daemon when nobody has needed it for so long"
        )
    supervise = add("supervise", "own the processes of one attempt (the daemon starts these)")
    supervise.add_argument("directory", metavar="DIR", type=Path, help="of the attempt")
    supervise.add_argument("descriptors", metavar="FD", type=int, nargs="+", help="its lock; a socket")
    supervise.add_argument("--gpu-locks", metavar="FD", type=int, nargs="+", default=[], help="of its GPUs")
    return parser


def _seconds(text: str) -> float:
    import argparse
    import math

    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def _open_streams() -> None:
    """Make sure of stdin, stdout and stderr: a file opened in the place of one would be written to as such."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _drop_output() -> None:
    """See to it that the interpreter does not try at its end to write what cannot be written."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
    except OSError:  # Without a file handle left nothing was written either.
        return
    if null != 1:
        os.dup2(null, 1)
        os.close(null)
