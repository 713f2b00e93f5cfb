"""Notes which process group a rank forms: hooks into the script's own imports, and changes nothing of what they do.

Nothing is imported earlier than the script does. What goes wrong here is kept from the script: then nothing is told.
"""

from __future__ import annotations

import _thread
import functools
import json
import os
import sys
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


def watch(path: str, local_rank: int | None) -> None:
    """Keep a record of this process at `path`: `notes` of what it imports and starts, and its `groups`."""
    rank = Rank(path, local_rank)
    hooks: dict[str, Callable[[Any], None]] = {
        "torch.distributed.distributed_c10d": rank.hook_torch,
        "torch.multiprocessing.spawn": rank.hook_spawn,
        "horovod.common.basics": rank.hook_horovod,
        "torch.distributed.run": rank.hook_torchrun,
        "accelerate.state": rank.hook_accelerate,
    }
    for name, hook in hooks.items():
        if name in sys.modules:  # In a process that was forked with its imports done.
            _softly(hook, sys.modules[name])
    sys.meta_path.insert(0, Finder(hooks))
    rank.write()


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


def _softly(act: Callable[..., Any], *arguments: Any) -> Any:
    """Call what must not disturb the script; return `None` where it fails."""
    try:
        return act(*arguments)
    except Exception:  # noqa: BLE001 - any version of any library may do otherwise than is expected here
        return None


class Rank:
    """The record of one rank's process; of no process that it starts or forks."""

    def __init__(self, path: str, local_rank: int | None) -> None:
        self._path = path
        self._local_rank = local_rank
        self._pid = os.getpid()
        self._claim = os.urandom(8).hex()
        self._world_size = os.environ.get("WORLD_SIZE")
        self._notes: list[str] = []
        self._groups: list[dict[str, Any]] = []
        self._lock = _thread.allocate_lock()

    def hook_torch(self, module: Any) -> None:
        """Note each default process group that torch forms, whoever asks for it."""
        self.note("torch")

        def formed() -> None:
            if os.environ.get("WORLD_SIZE") != self._world_size:
                self.note("world-size")
            store = _softly(module._get_default_store)
            backend = str(module.get_backend())
            if backend == "undefined":  # It was given none, and has one for each kind of device.
                backend = str(_softly(module.get_backend_config) or backend)
            self._formed(backend, module.get_world_size(), module.get_rank(), store)

        _wrap(module, "init_process_group", formed)

    def hook_spawn(self, module: Any) -> None:
        """Note that the script starts processes of its own, each of which may be meant for a rank."""
        _wrap(module, "start_processes", before=lambda: self.note("launcher"))

    def hook_torchrun(self, module: Any) -> None:
        """Note that it does so by torchrun."""
        _wrap(module, "run", before=lambda: self.note("launcher"))

    def hook_horovod(self, module: Any) -> None:
        """Note with how many Horovod runs."""
        basics = module.HorovodBasics
        plain = basics.init

        @functools.wraps(plain)
        def init(own: Any, *arguments: Any, **named: Any) -> Any:
            result = plain(own, *arguments, **named)
            _softly(lambda: self._formed("horovod", own.size(), own.rank(), None))
            return result

        basics.init = init

    def hook_accelerate(self, module: Any) -> None:
        """Note that accelerate may decide; a group that it forms and leaves unused, for want of a GPU, is none."""
        self.note("accelerate")
        state = module.PartialState
        plain = state.__init__

        @functools.wraps(plain)
        def __init__(own: Any, *arguments: Any, **named: Any) -> None:
            before = self._groups
            plain(own, *arguments, **named)
            is_unused = self._groups is not before and self._groups[-1]["world_size"] > 1
            if is_unused and getattr(own, "num_processes", None) == 1:
                self._groups = before
                self.write()

        state.__init__ = __init__

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


def _nothing() -> None:
    """Do nothing before or after a call."""


def _wrap(module: Any, name: str, after: Callable[[], None] = _nothing, before: Callable[[], None] = _nothing) -> None:
    """Put a function in a module's place of another, which it calls; also where other modules have it by now."""
    plain = getattr(module, name)

    @functools.wraps(plain)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        _softly(before)
        result = plain(*arguments, **named)
        _softly(after)
        return result

    def put(other: Any) -> None:
        names = object.__getattribute__(other, "__dict__")  # Where that is asked, a lazy module would be loaded.
        if names.get(name) is plain:
            names[name] = wrapped

    for other in list(sys.modules.values()):
        _softly(put, other)
