"""The `dtagent` command: wiring only. Each verb imports what it needs, so that `connect` stays quick."""

from __future__ import annotations

import os
import sys

from dtagent import __version__
from dtagent.errors import AgentError
from dtagent.names import default_root

USAGE = """usage: dtagent VERB [--root DIR]

  connect            carry stdio to the daemon, starting it when absent (what dttui runs over SSH)
  daemon             serve the socket; [--idle-exit SECONDS] ends it when nobody needs it for so long
  supervise DIR FD   own the processes of one attempt (the daemon starts these)
  facts [PYTHON …]   tell what this host is; as JSON where stdout is no terminal, or with --json
  top                show what this host does now: GPUs, processes, jobs; once where stdout is no terminal
  metrics            print the newest reading as Prometheus text
"""


def main(argv: list[str] | None = None) -> int:
    """Run one verb; return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["--version"]:
        print(f"dtagent {__version__}")
        return 0
    told_root = _option(arguments, "--root") or default_root()
    idle_exit_s = _option(arguments, "--idle-exit")
    verb, *rest = arguments or [""]
    try:
        if verb == "connect" and not rest:
            from dtagent.bridge import connect

            return connect(told_root, ["--idle-exit", idle_exit_s] if idle_exit_s else [])
        from pathlib import Path

        root = Path(told_root)
        if verb == "daemon" and not rest:
            from dtagent.server import serve

            return serve(root, idle_exit_s=float(idle_exit_s) if idle_exit_s else None)
        if verb == "supervise" and len(rest) == 2 and rest[1].isdigit():
            from dtagent import supervisor

            return supervisor.main(Path(rest[0]), int(rest[1]))
        if verb == "facts":
            from dtagent import show

            return show.facts(rest)
        if verb in ("top", "metrics") and not rest:
            from dtagent import top

            return top.top(root) if verb == "top" else top.metrics(root)
    except AgentError as error:
        sys.stderr.write(f"dtagent: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # Whoever read has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    sys.stderr.write(USAGE)
    return 2


def _option(arguments: list[str], name: str) -> str | None:
    if name not in arguments:
        return None
    at = arguments.index(name)
    if at + 1 >= len(arguments):
        raise SystemExit(f"dtagent: {name} needs a value")
    value = arguments[at + 1]
    del arguments[at : at + 2]
    return value
