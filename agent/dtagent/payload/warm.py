"""Holds torchrun's imports under the user's interpreter, and becomes a job's launcher and ranks by forking.

usage: warm.py DESCRIPTOR (of the socket to the daemon)

    daemon ── template (imports done, idle) ──fork──► fork server of one attempt ──fork──► launcher, ranks

The template makes a fork server for each socket that the daemon hands it; at the other end is the attempt's
supervisor. The fork server is the parent of the launcher and the ranks, adopts what they leave, and reports how they
end. Whatever speaks against forking is answered by exec of the same command line in the same child: what runs then
would have run anyway.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket
import sys
import time
import types
from typing import Any

# Run by its path, under an interpreter that does not know the agent.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from dtagent.payload.forking.channel import Channel, notice
from dtagent.payload.forking.forkserver import ChildProgram, ForkServer
from dtagent.payload.forking.process_title import show

MAX_DIRECTORIES = 64


def main(descriptor: int) -> ChildProgram:
    """Import, tell the daemon, and make a fork server for each socket that comes; return in a child of one."""
    os.set_inheritable(descriptor, False)
    daemon = Channel(socket.socket(fileno=descriptor))
    _hide()
    gc.disable()  # A collection would write to pages that the children share.
    daemon.send(_warm_up())
    while True:
        if daemon.receive() is None:
            os._exit(0)
        while daemon.descriptors:
            number = daemon.descriptors.pop(0)
            if os.fork() == 0:
                if os.fork():  # Nobody of us is to wait for the fork server: it outlives the template.
                    os._exit(0)
                daemon.connection.close()
                for other in daemon.descriptors:
                    os.close(other)
                return ForkServer(Channel(socket.socket(fileno=number))).run()
            os.wait()
            os.close(number)


def _hide() -> None:
    """Leave no module of ours where the job's own imports would find it."""
    del sys.path[0]
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]
    for name in [name for name in sys.modules if name.partition(".")[0] == "dtagent"]:
        del sys.modules[name]


def become(target: ChildProgram) -> None:
    """Run a command line `python [-u] SCRIPT ARGUMENT…` in this process, as a new interpreter would."""
    argv, env = target.argv, target.env
    os.environ.clear()
    os.environ.update(env)
    if target.reason is not None or not show(argv, env):
        os.execvpe(argv[0], argv, env)  # noqa: S606 - the job's own command line, as an argv
    time.tzset()
    importlib.invalidate_caches()
    # Else all that are forked from here would draw the same numbers.
    sys.modules["torch"].default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    gc.enable()
    at = 2 if argv[1] == "-u" else 1
    script = argv[at]
    sys.orig_argv = list(argv)
    sys.argv = argv[at:]
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    with open(script, "rb") as stream:
        code = compile(stream.read(), script, "exec", dont_inherit=True)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=script, __builtins__=__builtins__, WARM_RANKS=target.ranks)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)  # noqa: S102 - the launcher and the ranks are scripts of this package


def _warm_up() -> dict[str, Any]:
    """Import; tell what of the file system that depends on, or why nothing can be forked from here."""
    try:
        import torch
        import torch.distributed.run
    except BaseException as error:  # noqa: BLE001 - whatever an import may raise
        return {"error": notice("warm-no-torch", error=f"{type(error).__name__}: {str(error)[:500]}")}
    # Libraries that can live with a fork end their threads before it, as OpenBLAS does, so the first one shows.
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        return {"error": notice("warm-threads", count=threads - 1)}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return {"error": notice("warm-cuda")}
    if getattr(sys.flags, "safe_path", False):
        return {"error": notice("warm-safe-path")}
    directories = [path for path in sys.path if os.path.isdir(path)][:MAX_DIRECTORIES]
    return {"torch": str(torch.__version__), "paths": [*directories, os.path.dirname(torch.__file__), *_loaded()]}


def _loaded() -> list[str]:
    """Return the files that this process has modules and libraries from."""
    found = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
    with contextlib.suppress(OSError), open("/proc/self/maps", errors="surrogateescape") as stream:
        found.update(line.split(None, 5)[5].rstrip("\n") for line in stream if "/" in line)
    return sorted(path for path in found if os.path.isabs(path))


if __name__ == "__main__":
    become(main(int(sys.argv[1])))
