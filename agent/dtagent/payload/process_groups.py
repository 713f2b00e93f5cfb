"""Notes which process group a rank forms: hooks into the script's own imports, and changes nothing of what they do.

Nothing is imported earlier than the script does. What goes wrong here is kept from the script: then nothing is told.
"""

from __future__ import annotations

import _thread
import functools
import json
import os
import re
import sys
import time
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEADLINE_S = 2.0
"""How long a script is held up where its store does not answer; the answer is noted when it comes."""
MOST_GROUPS = 4
"""Of one process that are told, the newest."""
MOST_CLAIMS = 64
"""Processes with one rank in one store; those beyond are each a group of their own."""
KEYS = "dttui/group"
"""Before the keys in a group's store that are ours."""
USE_S = 0.5
"""Between two looks whether a group that accelerate has left unused is used after all."""
C10D = "torch.distributed.distributed_c10d"
LAUNCHERS = r"(?:python[\d.]*|torchrun|accelerate|deepspeed|horovodrun|mpirun|mpiexec)"
"""Programs that may run what trains."""


def watch(path: str, local_rank: int | None, *others: dict[str, Callable[[Any], None]]) -> Callable[[], None]:
    """Keep a record of this process at `path`: `notes` of what it imports and starts, and its `groups`.

    Returns what is to be called when the process ends by itself. Of `others`, each is called with the module of its
    name once that was imported.
    """
    rank = RankRecord(path, local_rank)
    hooks: dict[str, Callable[[Any], None]] = {
        C10D: rank.hook_torch,
        "torch.distributed.rpc": rank.hook_rpc,
        "accelerate.state": rank.hook_accelerate,
        "horovod.common.basics": rank.hook_horovod,
        "multiprocessing.process": rank.hook_multiprocessing,
        "subprocess": rank.hook_subprocess,
    }
    for name, other in [item for more in others for item in more.items()]:
        hooks[name] = _one_after_another(hooks[name], other) if name in hooks else other
    for name, hook in hooks.items():
        if name in sys.modules:  # In a process that was forked with its imports done.
            _softly(hook, sys.modules[name])
    sys.meta_path.insert(0, Finder(hooks))
    rank.write()
    return rank.end


def _one_after_another(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    def both(module: Any) -> None:
        _softly(first, module)
        _softly(second, module)

    return both


class Finder:
    """First in `sys.meta_path`: has the others look for a module, and is called when it has been executed."""

    def __init__(self, hooks: dict[str, Callable[[Any], None]]) -> None:
        self._hooks = hooks

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return what the other finders do, `None` for all that nothing is to be hooked into."""
        hook = self._hooks.get(name)
        if hook is None:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                _call_after(spec.loader, name, hook)
                return spec
        return None


def _call_after(loader: Any, name: str, hook: Callable[[Any], None]) -> None:
    """Have a hook called once the loader has executed a module; one may be there for others as well."""
    execute = getattr(loader, "exec_module", None)
    own = getattr(loader, "__dict__", None)
    if execute is None or not isinstance(own, dict):  # Then nothing is known of this module.
        return

    def exec_module(module: Any) -> None:
        execute(module)
        if module.__name__ == name:
            own.pop("exec_module", None)
            _softly(hook, module)

    own["exec_module"] = exec_module


def _softly(act: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call what must not disturb the script; return `None` where it fails."""
    try:
        return act(*arguments, **named)
    except Exception:  # noqa: BLE001 - any version of any library may do otherwise than is expected here
        return None


class RankRecord:
    """The record of one rank's process; of no process that it starts or forks."""

    def __init__(self, path: str, local_rank: int | None) -> None:
        self._path = path
        self._local_rank = local_rank
        self._pid = os.getpid()
        self._claim = os.urandom(8).hex()
        self._world_size = os.environ.get("WORLD_SIZE")
        self._notes: list[str] = []
        self._groups: list[dict[str, Any]] = []
        self._unused: dict[str, Any] | None = None
        self._lock = _thread.allocate_lock()

    def hook_torch(self, module: Any) -> None:
        """Note each default process group that torch forms, whoever asks for it."""
        self.note("torch")

        def formed() -> None:
            if os.environ.get("WORLD_SIZE") != self._world_size:
                self.note("world-size")
            store = _softly(module._get_default_store)  # noqa: SLF001 - torch tells it nowhere else
            backend = str(module.get_backend())
            if backend == "undefined":  # It was given none, and has one for each kind of device.
                backend = str(_softly(module.get_backend_config) or backend)
            self._formed(backend, module.get_world_size(), module.get_rank(), store)

        _wrap(module, "init_process_group", formed)

    def hook_rpc(self, module: Any) -> None:
        """Note with how many torch's remote calls run, for which no process group is formed."""

        def formed() -> None:
            agent = module._get_current_rpc_agent()  # noqa: SLF001 - as above
            self._formed("rpc", len(agent.get_worker_infos()), agent.get_worker_info().id, None)

        _wrap(module, "init_rpc", formed)

    def hook_multiprocessing(self, module: Any) -> None:
        """Note that the script starts processes of its own that may be what trains: who loads data is a daemon."""

        def before(process: Any) -> None:
            if not process.daemon:
                self.note("launcher")

        _wrap_method(module.BaseProcess, "start", before)

    def hook_subprocess(self, module: Any) -> None:
        """Note the same of programs."""

        def before(_popen: Any, args: Any, *_others: Any, **_named: Any) -> None:
            words = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)[:1]
            if any(re.search(rf"(?:^|[/\s]){LAUNCHERS}(?:\s|$)", os.fsdecode(word)) for word in words):
                self.note("launcher")

        _wrap_method(module.Popen, "__init__", before)

    def hook_horovod(self, module: Any) -> None:
        """Note with how many Horovod runs."""

        def after(own: Any) -> None:
            self._formed("horovod", own.size(), own.rank(), None)

        _wrap_method(module.HorovodBasics, "init", after=after)

    def hook_accelerate(self, module: Any) -> None:
        """Note that accelerate may decide; a group that it forms and makes no use of, for want of a GPU, is none."""
        self.note("accelerate")
        earlier: list[dict[str, Any]] = []

        def before(_own: Any, *_others: Any, **_named: Any) -> None:
            earlier[:] = self._groups

        def after(own: Any) -> None:
            if self._groups != earlier and self._groups[-1]["world_size"] > 1 and own.num_processes == 1:
                self._unused, self._groups = self._groups[-1], [*earlier]
                self.write()
                _thread.start_new_thread(self._await_use, ())

        _wrap_method(module.PartialState, "__init__", before, after)

    def _await_use(self) -> None:
        while self._unused is not None:
            time.sleep(USE_S)
            _softly(self._look_for_use)

    def _look_for_use(self) -> None:
        """Count the group that accelerate makes no use of once the script itself communicates in it."""
        group, self._unused = self._unused, None
        if group is not None and sys.modules[C10D]._get_default_group()._get_sequence_number_for_group() > 0:  # noqa: SLF001 - as above
            self._groups = [*self._groups, group]
            self.write()
        else:
            self._unused = group

    def end(self) -> None:
        """Leave the record as it is to stay, with a note where torch was loaded past the hooks."""
        _softly(self._look_for_use)
        if C10D in sys.modules and "torch" not in self._notes:
            self.note("unseen")

    def note(self, code: str) -> None:
        """Keep a word of what this process has done."""
        if code not in self._notes:
            self._notes.append(code)
            self.write()

    def write(self) -> None:
        """Write the record so that it is there whole or not at all."""
        if os.getpid() != self._pid:
            return
        body = {"local_rank": self._local_rank, "notes": self._notes, "groups": self._groups}
        temporary = f"{self._path}.{self._pid}"
        try:
            with self._lock:
                with open(temporary, "w") as stream:
                    json.dump(body, stream)
                os.rename(temporary, self._path)
        except OSError:
            pass  # A full disk is told of elsewhere.

    def _formed(self, backend: str, world_size: int, place: int, store: Any) -> None:
        if os.getpid() != self._pid:
            return
        group = {"backend": backend, "world_size": int(world_size), "rank": int(place), "members": ""}
        is_late: list[bool] = []

        def ask() -> None:
            group["members"] = _softly(_members, store, int(place), self._claim) or ""
            if is_late:
                self.write()

        if store is not None:
            from threading import Thread  # Which torch has imported.

            asking = Thread(target=ask, name="dttui-group", daemon=True)
            asking.start()
            asking.join(DEADLINE_S)
            if asking.is_alive():
                is_late.append(True)
        if group not in self._groups[-1:]:
            self._groups = [*self._groups[1 - MOST_GROUPS :], group]
        self.write()


def _members(store: Any, place: int, claim: str) -> str:
    """Return what all members of a group find in its store, and no other group's: no call waits for another member.

    Processes that were told to be a world of their own may share a store, each as rank 0: the first to claim a rank
    belongs to the first group there, the second to the second.
    """
    for number in range(MOST_CLAIMS):
        held = _text(store.compare_set(f"{KEYS}/{number}/{place}", "", claim))
        if held == claim:
            return _text(store.compare_set(f"{KEYS}/{number}", "", os.urandom(8).hex()))
    return claim


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _wrap(module: Any, name: str, after: Callable[[], None]) -> None:
    """Put a function in a module's place of another, which it calls; also where other modules have it by now."""
    plain = getattr(module, name)

    @functools.wraps(plain)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        result = plain(*arguments, **named)
        _softly(after)
        return result

    def put(other: Any) -> None:
        names = object.__getattribute__(other, "__dict__")  # Where that is asked, a lazy module would be loaded.
        if names.get(name) is plain:
            names[name] = wrapped

    for other in list(sys.modules.values()):
        _softly(put, other)


def _nothing(*_arguments: Any, **_named: Any) -> None:
    """Do nothing before or after a call."""


def _wrap_method(
    kind: Any, name: str, before: Callable[..., object] = _nothing, after: Callable[[Any], object] = _nothing
) -> None:
    """Put a method in a class's place of another, which it calls: `before` gets its arguments, `after` its object."""
    plain = getattr(kind, name)

    @functools.wraps(plain)
    def wrapped(own: Any, *arguments: Any, **named: Any) -> Any:
        _softly(before, own, *arguments, **named)
        result = plain(own, *arguments, **named)
        _softly(after, own)
        return result

    setattr(kind, name, wrapped)
