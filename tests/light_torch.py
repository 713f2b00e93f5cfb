"""Lets processes of tests that only train go without torch's compiler and exporter, which half of its import is.

And without what tells the shapes of results without their values, until something is imported that may ask for it.
`make` lays this beside the packages of the interpreter that tests train with, where each Python finds it as it starts;
without `LIGHT_IMPORTS` in its environment nothing changes. Whoever uses more of a module than stands here gets all of
it.
"""

from __future__ import annotations

import atexit
import gc
import sys
import types
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False  # That of `typing` would cost each start of a Python its import.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_DEFERRED = ("torch._dynamo", "torch.export")
_SHAPES = ("torch._meta_registrations", "torch.distributed._meta_registrations")
"""Tell shapes of results without their values."""
_ASK_FOR_SHAPES = (
    "torch._functorch.aot_autograd",
    "torch._inductor",
    "torch.distributed._composable",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor",
    "torch.utils.flop_counter",
    *("accelerate", "deepspeed", "lightning", "megatron", "transformers"),
)
"""With any of these they are all there."""


def _not_compiled(function: Callable[..., Any] | None = None, *_args: Any, **_options: Any) -> Any:
    return function if function is not None else lambda found: found


def _as_without_compiler() -> dict[str, Any]:
    """What optimizers and DDP ask the compiler for where nothing is compiled."""
    inlined = types.SimpleNamespace(cache_clear=lambda: None)
    return {
        "disable": _not_compiled,
        "graph_break": lambda *_args, **_options: None,
        "utils": types.SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer"),
        "trace_rules": types.SimpleNamespace(
            LEGACY_MOD_INLINELIST=set(), get_legacy_mod_inlinelist=inlined, clear_lru_cache=lambda: None
        ),
    }


class _Deferred(types.ModuleType):
    """A module whose code runs once something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _load(self)
        return getattr(self, name)


def _have_generators() -> None:
    """Do what is done besides where shapes are told, without which there is no `torch.Generator`."""
    torch = vars(sys.modules["torch"])
    if make := getattr(torch["_C"], "_set_generator_metaclass", None):
        make(torch["_opaque_base"].OpaqueBaseMeta)


def _load_shapes() -> None:
    for name in _SHAPES:
        if isinstance(module := sys.modules.get(name), _Deferred):
            _load(module)


def _load(module: types.ModuleType) -> None:
    """Run the module's own code; what stood in for it goes first."""
    if module.__name__ in _DEFERRED:
        _load_shapes()
    spec = PathFinder.find_spec(module.__name__, [*_parent(module.__name__).__path__])
    assert spec is not None
    assert spec.loader is not None
    for name in _as_without_compiler():
        module.__dict__.pop(name, None)
    module.__class__ = types.ModuleType
    module.__spec__ = spec
    spec.loader.exec_module(module)


def _parent(name: str) -> types.ModuleType:
    return sys.modules[name.rpartition(".")[0]]


class _Loader:
    def __init__(self, found: ModuleSpec) -> None:
        self._found = found

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _Deferred(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__file__ = self._found.origin
        if module.__name__ == "torch._dynamo":
            module.__dict__.update(_as_without_compiler())
        if module.__name__ == _SHAPES[0]:
            _have_generators()


class Finder:
    """Finds what is deferred, before all others do."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the deferred modules; a part of one has all of it run first."""
        if name in (*_DEFERRED, *_SHAPES):
            found = PathFinder.find_spec(name, path)
            if found is None:
                return None
            spec = ModuleSpec(name, _Loader(found), origin=found.origin, is_package=True)  # type: ignore[arg-type]
            spec.submodule_search_locations = found.submodule_search_locations
            return spec
        if name.startswith(_DEFERRED) and isinstance(parent := sys.modules.get(name.rpartition(".")[0]), _Deferred):
            _load(parent)
        if name.startswith(_ASK_FOR_SHAPES):
            _load_shapes()
        return None


sys.meta_path.insert(0, Finder())
# An import makes little garbage, and a third of its time went into the search; as much again at the end, for nothing.
gc.set_threshold(50_000, 50, 50)
atexit.register(gc.freeze)
