"""Lets processes of tests keep what `dataclasses` compiles, which a third of the time is that a controller imports for.

`make` lays this beside the packages of the interpreter, where each Python finds it as it starts; without
`LIGHT_IMPORTS` in its environment nothing changes. For the methods of each class a text is put together and compiled;
what came of it is found by that text the next time, in a file for the class's module beside the bytecode of this one.
"""

from __future__ import annotations

import atexit
import marshal
import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader

TYPE_CHECKING = False  # That of `typing` would cost each start of a Python its import.
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any, TypeAlias

_Codes: TypeAlias = "dict[str, CodeType]"
"""Text → what came of it."""
_OWN = str(__spec__.cached).removesuffix(".pyc")
_kept: dict[str, _Codes] = {}
"""File → what it holds and nobody has asked for yet."""
_new: dict[str, _Codes] = {}
"""File → what it is to hold, too."""


def _execute(text: str, module: dict[str, Any], found: dict[str, Any]) -> None:
    """Do as `exec` does for a text of `dataclasses`, which is compiled where it never was."""
    path = _path_of(module)
    if path not in _kept:
        _kept[path] = _read(path)
    code = _kept[path].pop(text, None)
    if code is None:
        code = _new.setdefault(path, {})[text] = compile(text, "<string>", "exec")
    exec(code, module, found)


def _path_of(module: dict[str, Any]) -> str:
    name = module.get("__name__", "__main__")
    return "" if name == "__main__" else f"{_OWN}.{name}"


def _read(path: str) -> _Codes:
    try:
        with open(path, "rb") as file:
            found = marshal.load(file)
    except (OSError, ValueError, EOFError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _write() -> None:
    _new.pop("", None)
    for path, codes in _new.items():
        own = f"{path}.{os.getpid()}"
        try:
            with open(own, "wb") as file:
                marshal.dump(_read(path) | codes, file)
            os.replace(own, path)
        except OSError:  # Whoever may write there does it another time.
            pass


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.exec = _execute  # type: ignore[attr-defined]
        if not sys.dont_write_bytecode:
            atexit.register(_write)


class Finder:
    """Finds `dataclasses`, before all others do."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find that module alone."""
        if name != "dataclasses":
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin)
        return spec


sys.meta_path.insert(0, Finder())
