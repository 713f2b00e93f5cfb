"""torchrun: same arguments, and the failures of its workers kept as data.

Its store listens on the training address alone, and an elastic rendezvous takes nothing from whoever lacks the key of
the attempt, which comes in the file `rendezvous.key` beside `DTTUI_LOGS`, and is gone once read.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

LEFT = 75
"""Exit code where this node of an elastic job has lost its way to a rendezvous that the others may still have."""
TAMPERED = 76
"""Exit code where somebody else wrote to the rendezvous of an elastic job, and it could not be put right."""
UNSAFE = 2
"""Exit code where an elastic job would take anybody's word."""
KEY_FILE = "rendezvous.key"
LEAST_KEY = 32
"""Characters of a key."""
TRACEBACK_LIMIT = 16 * 1024
ERROR_LIMIT = 4 * 1024


def main(argv: list[str]) -> int:
    """Run torchrun; return 1 when a worker failed, 128 + N when signal N ended it, else as the codes above say."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.run import parse_args, run

    if "WARM_RANKS" in globals():  # Forked from a process that has torch imported.
        _fork_ranks(globals()["WARM_RANKS"])
    arguments = parse_args(argv)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    disturbances = _Disturbances()
    if arguments.rdzv_backend == "static":
        _held = _static_store(arguments)
    elif not _seal_rendezvous(arguments, disturbances):
        return UNSAFE
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
        return TAMPERED if disturbances.are_final else LEFT
    except SignalException as ended:
        sys.stderr.write(f"torchrun: ended by {signal.Signals(ended.sigval).name}\n")
        return 128 + int(ended.sigval)
    return 0


def _static_store(arguments: Any) -> Any:
    """Return the store of the first node, listening on one address; torchrun takes a store of its own port for its own.

    Where that cannot be, torchrun opens it by itself, and says what is wrong.
    """
    if arguments.node_rank != 0 or arguments.rdzv_endpoint or not arguments.master_port:
        return None
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's stubs do not say that it exports it

    try:
        bound = _beside("listening").on_address(arguments.master_addr, arguments.master_port)
        if bound is None:
            return None
        return TCPStore(
            arguments.master_addr,
            arguments.master_port,
            is_master=True,
            wait_for_workers=False,
            multi_tenant=True,
            master_listen_fd=bound.detach(),
        )
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        sys.stderr.write(f"dttui: cannot listen on {arguments.master_addr} alone: {error}\n")
        return None


def _seal_rendezvous(arguments: Any, disturbances: _Disturbances) -> bool:
    """Make the rendezvous one of ours; return whether it is, after saying why not."""
    key = _take_key()
    if arguments.rdzv_backend != "dttui":
        told = f"a rendezvous by {arguments.rdzv_backend} runs anybody's code: upgrade dttui on the login node"
    elif not key:
        told = f"{KEY_FILE} is missing, by which the nodes of this job would know each other"
    elif len(key) < LEAST_KEY:
        told = f"{KEY_FILE} is too short for a key: {LEAST_KEY} characters are the least"
    else:
        _beside("sealed_rendezvous").register(key.encode(), _beside("listening").on_address, disturbances.add)
        return True
    sys.stderr.write(f"dttui: {told}\n")
    return False


def _take_key() -> str:
    """Return what was left for this process alone, and remove it."""
    path = os.path.join(os.path.dirname(os.environ.get("DTTUI_LOGS", "")), KEY_FILE)
    try:
        with open(path) as stream:
            key = stream.read().strip()
        os.unlink(path)
    except OSError:
        return ""
    return key


def _beside(name: str) -> Any:
    """Return a module or a package that lies beside this one, wherever that is: no job finds it by its name."""
    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    is_package = os.path.isdir(place)
    path = os.path.join(place, "__init__.py") if is_package else f"{place}.py"
    places = [place] if is_package else None
    spec = importlib.util.spec_from_file_location(f"_dttui_{name}", path, submodule_search_locations=places)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - it is a Python file
    # A package's modules look it up, and dataclasses their module.
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Disturbances:
    """What somebody did to the rendezvous: told at once, and kept for the agent in `failures/rendezvous.json`."""

    def __init__(self) -> None:
        self.are_final = False
        """Whether one could not be put right."""
        self._found: dict[tuple[str, str], dict[str, Any]] = {}

    def add(self, what: str, how: str, is_mended: bool) -> None:
        """Tell of one."""
        self.are_final |= not is_mended
        found = self._found.setdefault((what, how), {"what": what, "how": how, "count": 0})
        found.update(time=time.time(), mended=is_mended, count=found["count"] + 1)
        if found["count"] == 1 or not is_mended:
            end = "put right" if is_mended else "that cannot be put right"
            sys.stderr.write(f"dttui: somebody tampered with the rendezvous: {what} {how}; {end}\n")
        with contextlib.suppress(OSError, KeyError):
            _write("rendezvous.json", list(self._found.values()))


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
    with contextlib.suppress(FileNotFoundError):  # As where nobody looks at it, in what was rendered.
        _write("launcher.json", [{"rank": rank, **_describe(failure)} for rank, failure in failures.items()])


def _write(name: str, body: Any) -> None:
    """Write a file for the agent, where there is one."""
    path = os.path.join(os.path.dirname(os.environ["DTTUI_LOGS"]), "failures", name)
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
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # To take down an interpreter that holds torch lasts half a second, for nothing.
