"""torchrun, with the failures of its workers kept as data: same arguments, one JSON file more when a worker fails."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from typing import Any

LEFT = 75
"""Exit code where this node of an elastic job has lost its way to a rendezvous that the others may still have."""
TRACEBACK_LIMIT = 16 * 1024
ERROR_LIMIT = 4 * 1024


def main(argv: list[str]) -> int:
    """Run torchrun; return 1 when a worker failed, 128 + N when signal N ended it, `LEFT` as told there."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.run import parse_args, run

    if "WARM_RANKS" in globals():  # Forked from a process that has torch imported.
        _fork_ranks(globals()["WARM_RANKS"])
    arguments = parse_args(argv)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    try:
        run(arguments)  # type: ignore[no-untyped-call]  # this one too
    except ChildFailedError as failed:
        _record(failed.failures)
        sys.stderr.write(f"{failed}\n")
        return 1
    except RendezvousError:
        if arguments.rdzv_backend == "static":
            raise
        traceback.print_exc()
        return LEFT
    except SignalException as ended:
        sys.stderr.write(f"torchrun: ended by {signal.Signals(ended.sigval).name}\n")
        return 128 + int(ended.sigval)
    return 0


def _fork_ranks(ranks: Any) -> None:
    """Have ranks forked too, where this torch starts them by a plain Popen; `_popen` calls it by its module's name."""
    from torch.distributed.elastic.multiprocessing import subprocess_handler as package

    module = getattr(package, "subprocess_handler", None)
    plain = getattr(module, "Popen", None)
    if module is None or plain is None:
        return

    def popen(args: Any, env: Any = None, stdout: Any = None, stderr: Any = None, **others: Any) -> Any:
        is_simple = stdout is None and stderr is None and env is not None and not others.keys() - {"start_new_session"}
        rank = ranks.start(args, env, session=bool(others.get("start_new_session"))) if is_simple else None
        return rank or plain(args=args, env=env, stdout=stdout, stderr=stderr, **others)

    module.Popen = popen


def _record(failures: dict[int, Any]) -> None:
    """Write `failures/launcher.json`: a list of rank, exit code, signal, time, error and traceback."""
    body = [{"rank": rank, **_describe(failure)} for rank, failure in failures.items()]
    path = os.path.join(os.path.dirname(os.environ["DTTUI_LOGS"]), "failures", "launcher.json")
    with open(f"{path}.new", "w") as stream:
        json.dump(body, stream)
    os.rename(f"{path}.new", path)


def _describe(failure: Any) -> dict[str, Any]:
    """Tell what torch knows of a worker's end; a script under `@record` has left its exception in the error file."""
    code = failure.exitcode
    told: dict[str, Any] = {
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "time": failure.timestamp,
    }
    data = failure.error_file_data
    message = data.get("message") if isinstance(data, dict) else None
    if isinstance(message, dict):
        told["error"] = str(message.get("message"))[:ERROR_LIMIT]
        told["traceback"] = str((message.get("extraInfo") or {}).get("py_callstack") or "")[-TRACEBACK_LIMIT:] or None
    with contextlib.suppress(OSError):
        # Written at the moment of the exception; torch's own stamp is in whole seconds.
        told["time"] = os.path.getmtime(failure.error_file)
    return told


if __name__ == "__main__":
    # What the workers import comes from their own directory, not from this one.
    sys.path.pop(0)
    sys.exit(main(sys.argv[1:]))
