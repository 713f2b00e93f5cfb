"""Holds torchrun's imports under the user's interpreter, and becomes a job's launcher and ranks by forking.

usage: warm.py DESCRIPTOR (of the socket to the daemon)

    daemon ── template (imports done, idle) ──fork──► stem of one attempt ──fork──► launcher, ranks

The template forks a stem for each socket that the daemon hands it; at the other end is the attempt's supervisor. The
stem is the parent of the launcher and the ranks, adopts what they leave, and reports how they end. Whatever speaks
against forking is answered by exec of the same command line in the same child: what runs then would have run anyway.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

# fmt: off
SENSITIVE = (
    "ACC_", "ATEN_", "C10_", "COMPILE_", "CUDA_", "CUBLAS_", "DNNL_", "FX_", "GFORTRAN_", "GLIBC_TUNABLES", "GOMP_",
    "GOTO_", "HOME", "KINETO_", "KMP_", "LANG", "LC_", "LD_", "LOGLEVEL", "MALLOC_", "MKL", "NPY_", "NUMPY_", "OMP_",
    "ONEDNN_", "OPENBLAS_", "OPENSSL_", "PYTHON", "PYTORCH_", "TORCH",
)
# fmt: on
"""What the names of variables begin with that Python, torch and what they load read when they start."""
LATE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TORCHELASTIC_", "TORCH_NCCL_", "PYTHON_EXEC")
"""Those of them that are read later, or by torchrun itself."""
PR_SET_MM, PR_SET_MM_MAP, PR_SET_CHILD_SUBREAPER = 35, 14, 36
NO_FILE = 0xFFFFFFFF
MAX_DIRECTORIES = 64
CHUNK_BYTES = 65536
_C = ctypes.CDLL(None, use_errno=True)


class Target(NamedTuple):
    """What a child is to become."""

    argv: list[str]
    env: dict[str, str]
    reason: str
    """Why it is to be executed; empty where the fork will do."""
    ranks: Ranks | None = None
    """For a launcher: starts its ranks."""


class Channel:
    """JSON objects, one a line, over a socket; descriptors may come along."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._rest = b""
        self.descriptors: list[int] = []

    def send(self, body: dict[str, Any]) -> None:
        """Send one; that nobody reads it any more is no mistake."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(body).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """Return the next one, waiting as the socket's time-out says; `None` where there will be no more."""
        while b"\n" not in self._rest:
            room = socket.CMSG_SPACE(8 * array.array("i").itemsize)
            try:
                data, ancillary, _flags, _address = self.connection.recvmsg(CHUNK_BYTES, room, socket.MSG_CMSG_CLOEXEC)
            except ConnectionError:
                return None
            for level, kind, packed in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    numbers = array.array("i")
                    numbers.frombytes(packed[: len(packed) - len(packed) % numbers.itemsize])
                    self.descriptors.extend(numbers)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        body = json.loads(line)
        return body if isinstance(body, dict) else None

    def pending(self) -> Iterator[dict[str, Any]]:
        """Yield those that are there already."""
        while b"\n" in self._rest or select.select([self.connection], [], [], 0)[0]:
            body = self.receive()
            if body is None:
                return
            yield body


class ForkedRank:
    """A rank that the stem forked, in the form of `subprocess.Popen` that torchrun uses."""

    def __init__(self, ranks: Ranks, pid: int, args: Any) -> None:
        self.pid = pid
        self.args = args
        self.returncode: int | None = None
        self._ranks = ranks

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; `None` while it runs."""
        if self.returncode is None:
            self.returncode = self._ranks.code_of(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._ranks.wait(left_s)
        return code

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class Ranks:
    """The launcher's way to have ranks forked."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._codes: dict[int, int] = {}
        self._is_over = False

    def start(self, argv: tuple[str, ...], env: dict[str, str], *, session: bool) -> ForkedRank | None:
        """Return a rank that runs; `None` where the stem is gone."""
        self._channel.send({"argv": list(argv), "env": env, "session": session})
        while (body := self._channel.receive()) is not None:
            if "pid" in body:
                return ForkedRank(self, body["pid"], argv)
            self._take(body)
        self._is_over = True
        return None

    def wait(self, timeout_s: float | None) -> None:
        """Wait until there is something to be told."""
        limit_s = 1.0 if timeout_s is None else min(timeout_s, 1.0)
        if self._is_over:
            time.sleep(min(limit_s, 0.1))
        else:
            select.select([self._channel.connection], [], [], limit_s)

    def code_of(self, pid: int) -> int | None:
        """Return how a rank ended; killed, where the stem went without telling and it is not there any more."""
        for body in () if self._is_over else self._channel.pending():
            self._take(body)
        if pid not in self._codes and self._has_gone():
            self._is_over = True
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                self._codes[pid] = -signal.SIGKILL
        return self._codes.get(pid)

    def _has_gone(self) -> bool:
        if self._is_over:
            return True
        try:
            return self._channel.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _take(self, body: dict[str, Any]) -> None:
        if "exit" in body:
            self._codes[body["exit"]] = _exit_code(body["status"])


class Stem:
    """The parent of one attempt's launcher and ranks."""

    def __init__(self, supervisor: Channel) -> None:
        self._supervisor = supervisor
        self._launcher: Channel | None = None
        self._launcher_pid: int | None = None
        self._told: set[str] = set()

    def run(self) -> Target:
        """Serve until nothing is left, which ends the process; return in a child, what that is to become."""
        os.setsid()
        _C.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._supervisor.send({"stem": os.getpid()})
        request = self._supervisor.receive()
        if request is None:  # Whoever asked has given up, and starts without us.
            os._exit(0)
        try:
            self._settle(request)
        except (OSError, ValueError) as error:
            self._supervisor.send({"refused": str(error)})
            os._exit(0)
        target = self._launch(request)
        return target if target is not None else self._serve(wake_read)

    def _settle(self, request: dict[str, Any]) -> None:
        """Become what a child of the supervisor would be: cgroup, limits, mask, working directory, standard streams."""
        _enter(request["cgroup"], request["home"], request["cgroups"])
        for number, limits in request["limits"]:
            if resource.getrlimit(number) != tuple(limits):
                resource.setrlimit(number, tuple(limits))
        if os.nice(0) != request["nice"]:
            raise ValueError("its priority is not that of the job")
        os.sched_setaffinity(0, request["cpus"])
        os.umask(request["umask"])
        os.chdir(request["cwd"])
        for place, descriptor in enumerate(self._supervisor.descriptors[:3]):
            os.dup2(descriptor, place)

    def _launch(self, request: dict[str, Any]) -> Target | None:
        ours, theirs = socket.socketpair()
        reason = _objection(request["argv"], request["env"])
        pid = self._fork()
        if pid == 0:
            ours.close()
            self._leave(theirs.fileno())
            return Target(request["argv"], request["env"], reason, Ranks(Channel(theirs)))
        theirs.close()
        self._launcher, self._launcher_pid = Channel(ours), pid
        self._supervisor.send({"started": pid})
        self._note(reason)
        return None

    def _serve(self, wake: int) -> Target:
        while True:
            poll = select.poll()
            poll.register(wake, select.POLLIN)
            if self._launcher is not None:
                poll.register(self._launcher.connection, select.POLLIN)
            for descriptor, _event in poll.poll():
                if descriptor == wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake, 4096)
                    self._reap()
                elif self._launcher is not None:
                    body = self._launcher.receive()
                    if body is None:
                        self._launcher.connection.close()
                        self._launcher = None
                    else:
                        target = self._start_rank(self._launcher, body)
                        if target is not None:
                            return target

    def _start_rank(self, launcher: Channel, body: dict[str, Any]) -> Target | None:
        reason = _objection(body["argv"], body["env"])
        pid = self._fork()
        if pid == 0:
            self._leave(None)
            if body["session"]:
                os.setsid()
            return Target(body["argv"], body["env"], reason)
        launcher.send({"pid": pid})
        self._note(reason)
        return None

    def _fork(self) -> int:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # None goes to our handlers there.
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return pid

    def _leave(self, kept: int | None) -> None:
        """Let go, in a child, of everything that belongs to the stem."""
        for channel in (self._supervisor, self._launcher):
            if channel is not None:
                channel.connection.close()
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != kept:
                with contextlib.suppress(OSError):
                    os.close(int(name))

    def _reap(self) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                # Nothing is below us any more.
                self._supervisor.send({"usage": _usage(resource.getrusage(resource.RUSAGE_CHILDREN))})
                os._exit(0)
            if pid == 0:
                return
            if pid == self._launcher_pid:
                self._supervisor.send({"exit": _exit_code(status), "usage": _usage(used)})
            elif self._launcher is not None:
                self._launcher.send({"exit": pid, "status": status})

    def _note(self, reason: str) -> None:
        if reason and reason not in self._told:
            self._told.add(reason)
            self._supervisor.send({"note": reason})


def main(descriptor: int) -> Target:
    """Import, tell the daemon, and fork a stem for each socket that comes; return in a child of a stem."""
    os.set_inheritable(descriptor, False)
    daemon = Channel(socket.socket(fileno=descriptor))
    sys.path.pop(0)  # What lies beside this file is no module for others.
    gc.disable()  # A collection would write to pages that the children share.
    daemon.send(_warm_up())
    while True:
        if daemon.receive() is None:
            os._exit(0)
        while daemon.descriptors:
            number = daemon.descriptors.pop(0)
            if os.fork() == 0:
                if os.fork():  # Nobody of us is to wait for the stem: it outlives the template.
                    os._exit(0)
                daemon.connection.close()
                for other in daemon.descriptors:
                    os.close(other)
                return Stem(Channel(socket.socket(fileno=number))).run()
            os.wait()
            os.close(number)


def become(target: Target) -> None:
    """Run a command line `python [-u] SCRIPT ARGUMENT…` in this process, as a new interpreter would."""
    argv, env = target.argv, target.env
    os.environ.clear()
    os.environ.update(env)
    if target.reason or not _show(argv, env):
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
        return {"error": f"torch cannot be imported: {type(error).__name__}: {str(error)[:500]}"}
    # Libraries that can live with a fork end their threads before it, as OpenBLAS does, so the first one shows.
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        return {"error": f"{threads - 1} threads run after the imports, and would be missing in what is forked"}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return {"error": "CUDA is initialised by the imports, and cannot be used in what is forked"}
    if getattr(sys.flags, "safe_path", False):
        return {"error": "Python is told by PYTHONSAFEPATH to look for modules in another order"}
    directories = [path for path in sys.path if os.path.isdir(path)][:MAX_DIRECTORIES]
    return {"torch": str(torch.__version__), "paths": [*directories, os.path.dirname(torch.__file__), *_loaded()]}


def _loaded() -> list[str]:
    """Return the files that this process has modules and libraries from."""
    found = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
    with contextlib.suppress(OSError), open("/proc/self/maps", errors="surrogateescape") as stream:
        found.update(line.split(None, 5)[5].rstrip("\n") for line in stream if "/" in line)
    return sorted(path for path in found if os.path.isabs(path))


def _objection(argv: list[str], env: dict[str, str]) -> str:
    """Return why a command line has to be executed; empty where it may be forked."""
    if os.path.realpath(argv[0]) != os.path.realpath(sys.executable) or argv[0] != sys.executable:
        return f"{argv[0]} is not {sys.executable}"
    at = 2 if argv[1] == "-u" else 1
    if argv[at].startswith("-"):
        return f"Python is started with {argv[at]}"
    different = sorted(
        name for name in {*env, *_BORN_WITH} if _is_sensitive(name) and env.get(name) != _BORN_WITH.get(name)
    )
    if different:
        return f"{', '.join(different[:5])} had another value when torch was imported"
    if any(not os.path.isabs(path) for path in env.get("PYTHONPATH", "").split(":") if path):
        return "PYTHONPATH is relative"
    if os.path.basename(argv[at]) == "rank.py":
        script = argv[at + 1]
        place = os.getcwd() if script == "-m" else os.path.dirname(os.path.realpath(script))
        hidden = _shadowed(place)
        if hidden:
            return f"{place} has modules that hide some of those torch was imported with: {', '.join(hidden[:5])}"
    return ""


def _shadowed(place: str) -> list[str]:
    """Return the imported modules that a directory at the front of `sys.path` would have provided instead."""
    found = set()
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            name, _, suffix = entry.name.partition(".")
            loaded = sys.modules.get(name)
            if loaded is None or name == "__main__" or name in sys.builtin_module_names:
                continue
            is_module = suffix in ("py", "pyc") or suffix.endswith("so")
            if is_module or (not suffix and os.path.exists(os.path.join(entry.path, "__init__.py"))):
                found.add(name)
    return sorted(found)


def _is_sensitive(name: str) -> bool:
    return name.startswith(SENSITIVE) and not name.startswith(LATE)


def _enter(own: str | None, home: str | None, wanted: list[str]) -> None:
    """Go to the cgroup where a child of the supervisor would be. Raises OSError or ValueError where that fails.

    Args:
        own: directory of the attempt's own cgroup v2, if it has one.
        home: directory of the supervisor's, where that is known.
        wanted: lines of the supervisor's /proc/self/cgroup.
    """
    if own is None and _cgroups() == wanted:
        return
    directory = own or home
    if directory is not None:
        path = os.path.join(directory, "cgroup.procs")
        with open(path, "w") as stream:
            stream.write("0")
        with open(path) as stream:
            if str(os.getpid()) not in stream.read().split():
                raise ValueError(f"it cannot be moved to {directory}")
    if [line for line in _cgroups() if not line.startswith("0::")] != [
        line for line in wanted if directory is None or not line.startswith("0::")
    ]:
        raise ValueError("its cgroups are not those of the job")


def _cgroups() -> list[str]:
    with open("/proc/self/cgroup") as stream:
        return stream.read().splitlines()


def _show(argv: list[str], env: dict[str, str]) -> bool:
    """Let /proc show a command line and an environment as those of this process; return whether the kernel does."""

    class Map(ctypes.Structure):
        # struct prctl_mm_map, linux/prctl.h
        _fields_ = [
            *((name, ctypes.c_uint64) for name in _MAP_FIELDS),
            ("auxv_size", ctypes.c_uint32),
            ("exe_fd", ctypes.c_uint32),
        ]

    arguments = b"".join(os.fsencode(item) + b"\0" for item in argv)
    variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    try:
        with open("/proc/self/stat", "rb") as stream:
            fields = [b"", b"", *stream.read().rpartition(b") ")[2].split()]
        buffer = ctypes.create_string_buffer(arguments + variables, len(arguments) + len(variables))
        _KEPT.append(buffer)  # For as long as the process lives.
        begin = ctypes.addressof(buffer)
        middle, end = begin + len(arguments), begin + len(arguments) + len(variables)
        _C.sbrk.restype = ctypes.c_void_p
        # Numbers of the fields as in proc(5), counted from 1.
        at = {"start_code": 26, "end_code": 27, "start_data": 45, "end_data": 46, "start_brk": 47, "start_stack": 28}
        told = {name: int(fields[number - 1]) for name, number in at.items()}
        places = {"arg_start": begin, "arg_end": middle, "env_start": middle, "env_end": end}
        form = Map(**told, **places, brk=_C.sbrk(0), auxv=0, auxv_size=0, exe_fd=NO_FILE)
        if _C.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(form), ctypes.sizeof(form), 0):
            return False
        with open("/proc/self/environ", "rb") as stream, open("/proc/self/cmdline", "rb") as other:
            return stream.read() == variables and other.read() == arguments
    except (OSError, ValueError, IndexError):
        return False


_MAP_FIELDS = (
    "start_code",
    "end_code",
    "start_data",
    "end_data",
    "start_brk",
    "brk",
    "start_stack",
    "arg_start",
    "arg_end",
    "env_start",
    "env_end",
    "auxv",
)
_KEPT: list[Any] = []
_BORN_WITH = dict(os.environ)


def _exit_code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _usage(used: resource.struct_rusage) -> list[float]:
    return [used.ru_utime, used.ru_stime, used.ru_maxrss]


if __name__ == "__main__":
    become(main(int(sys.argv[1])))
