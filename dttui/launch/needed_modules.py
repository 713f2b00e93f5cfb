"""Which modules the script that is sent needs of its interpreter: from its syntax tree, and those of its own modules.

Nothing is imported. What a file cannot do without is told apart from what it may do without: imports that are tried,
and those in functions.
"""

from __future__ import annotations

import ast
import functools
import os
import threading
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dttui.launch.script_imports import MOST_BYTES, MOST_FILES, is_sent, modules_below, script_of
from dttui.planning.needed_module import Demand, NeededModule
from dttui.spec.models import Run

MOST_MODULES = 96
"""That a host is asked for."""
MOST_BYTES_IN_ALL = 4 * MOST_BYTES
_OF_DTTUI = frozenset({"dttui_collectives"})
"""Lies beside what starts the script."""
_IMPLIED = {"torch.utils.tensorboard": "tensorboard"}
"""Modules that import another one which their package does without."""
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_OF_SYS = ("path", "modules", "meta_path", "path_hooks")
"""Of `sys`, what decides where modules come from."""
_SILENCE = threading.Lock()


@dataclass(frozen=True)
class _Import:
    """One import of a file."""

    level: int
    """Of a relative one, how many dots."""
    name: str
    line: int
    demand: Demand
    is_main: bool = False
    """Whether only the script itself comes to it."""


@dataclass(frozen=True)
class _Imports:
    """What a file imports, and whether it changes where modules are looked for."""

    imports: tuple[_Import, ...]
    changes_path: bool


def needed_modules(run: Run, directory: Path) -> tuple[NeededModule, ...]:
    """Return what the script needs beyond what is sent with it, each once, by where it is first wanted.

    Args:
        run: what a job starts; of a command nothing is known.
        directory: that is sent.
    """
    script = script_of(run, directory)
    if script is None:
        return ()
    # The script's own directory comes first of all, or where it runs for a module; both count, which asks for less.
    places = [script.parent, directory, *_own_path(run, directory)]
    found: dict[str, NeededModule] = {}
    demands = {script: Demand.SURE}
    waiting = [script]
    is_certain, bytes_left = True, MOST_BYTES_IN_ALL
    while waiting and bytes_left > 0:
        path = waiting.pop(0)
        told = _imports_in(path)
        if told is None:
            continue
        bytes_left -= path.stat().st_size
        is_certain = is_certain and not told.changes_path
        for item in told.imports:
            if item.is_main and path != script:
                continue
            demand = max(demands[path], item.demand, key=_lateness)
            local = list(_local(item, path, places, directory))
            for module in local:
                known = demands.get(module)
                is_new = known is None and len(demands) < MOST_FILES
                # One that is wanted late may be wanted at once elsewhere.
                if is_new or (known is not None and _lateness(demand) < _lateness(known)):
                    demands[module] = demand
                    waiting.append(module)
            if item.level or local or _is_beside(item.name, places):
                continue
            for name in _wanted(item.name):
                _add(found, NeededModule(module=name, file=_shown(path, directory), line=item.line, demand=demand))
    if not is_certain:
        found = {name: _less_sure(item) for name, item in found.items()}
    return tuple(sorted(found.values(), key=lambda item: _lateness(item.demand))[:MOST_MODULES])


def _add(found: dict[str, NeededModule], item: NeededModule) -> None:
    known = found.get(item.module)
    if known is None or _lateness(item.demand) < _lateness(known.demand):
        found[item.module] = item


def _lateness(demand: Demand) -> int:
    return list(Demand).index(demand)


def _less_sure(item: NeededModule) -> NeededModule:
    return item.model_copy(update={"demand": Demand.LIKELY}) if item.demand is Demand.SURE else item


def _wanted(name: str) -> Iterator[str]:
    """Yield the modules of the first level that a dotted name stands for."""
    first = name.partition(".")[0]
    if first.isascii() and first not in _OF_DTTUI:
        yield first
    yield from (other for below, other in _IMPLIED.items() if f"{name}.".startswith(f"{below}."))


def _own_path(run: Run, directory: Path) -> list[Path]:
    """Return the directories of the job's own PYTHONPATH that are sent."""
    entries = run.env.get("PYTHONPATH", "").split(os.pathsep)
    return [directory / entry for entry in entries if entry and not os.path.isabs(entry) and "$" not in entry]


def _local(item: _Import, path: Path, places: Sequence[Path], directory: Path) -> Iterator[Path]:
    """Yield the files of an import that are sent."""
    if item.level:
        places = [path.parents[item.level - 1]] if item.level <= len(path.parents) else []
    for place in places:
        yield from (module for module in modules_below(place, item.name) if is_sent(directory, module))


def _is_beside(name: str, places: Iterable[Path]) -> bool:
    """Whether something is sent that may be a module, also one without Python's source."""
    first = name.partition(".")[0]
    return any((place / first).is_dir() or any(place.glob(f"{first}.*")) for place in places)


def _shown(path: Path, directory: Path) -> str:
    return os.path.relpath(path, directory)


def _imports_in(path: Path) -> _Imports | None:
    """Return what a file imports, remembered until it changes; `None` where it cannot be read."""
    try:
        info = path.stat()
        return _read(path, info.st_mtime_ns) if info.st_size <= MOST_BYTES else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@functools.lru_cache(maxsize=4 * MOST_FILES)
def _read(path: Path, _changed_at: int) -> _Imports:
    with _SILENCE, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(path.read_bytes())
    return _Imports(tuple(_statements(tree.body, Demand.SURE, is_main=False)), _changes_path(tree))


def _changes_path(tree: ast.Module) -> bool:
    """Whether modules may come from elsewhere than they are found now: by `sys.path`, `site`, or pip."""
    aliases = {"sys"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {item.asname for item in node.names if item.name == "sys" and item.asname is not None}
        elif isinstance(node, ast.ImportFrom) and node.module == "sys" and {n.name for n in node.names} & {*_OF_SYS}:
            return True
    return any(_is_change(node, aliases) for node in ast.walk(tree))


def _is_change(node: ast.AST, aliases: Collection[str]) -> bool:
    if isinstance(node, ast.Attribute):
        is_of_sys = isinstance(node.value, ast.Name) and node.value.id in aliases and node.attr in _OF_SYS
        return is_of_sys or node.attr == "addsitedir"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return "pip install" in node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        words = {item.value for item in node.elts if isinstance(item, ast.Constant)}
        return {"pip", "install"} <= words
    return False


def _statements(body: Iterable[ast.stmt], demand: Demand, *, is_main: bool) -> Iterator[_Import]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (_Import(0, alias.name, node.lineno, demand, is_main) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names if alias.name != "*"] or [""]
            for name in names:
                dotted = ".".join(filter(None, (node.module, name)))
                yield _Import(node.level, dotted, node.lineno, demand, is_main)
        else:
            for inner, of_inner, of_main in _blocks(node, demand):
                yield from _statements(inner, of_inner, is_main=is_main or of_main)


def _blocks(node: ast.stmt, demand: Demand) -> Iterator[tuple[list[ast.stmt], Demand, bool]]:
    """Yield the statements below one, how much their imports are wanted, and whether only the script comes there."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.For, ast.While)):
        yield [*node.body, *getattr(node, "orelse", ())], Demand.LATE, False
    elif isinstance(node, ast.ClassDef):
        yield node.body, demand, False
    elif isinstance(node, ast.With):
        if not any(_suppresses(item.context_expr) for item in node.items):
            yield node.body, demand, False
    elif isinstance(node, ast.If):
        yield from _branches(node, demand)
    elif isinstance(node, ast.Try):
        if not any(map(_catches, node.handlers)):
            yield [*node.body, *node.orelse], demand, False
            yield [line for handler in node.handlers for line in handler.body], Demand.LATE, False
        yield node.finalbody, demand, False


def _branches(node: ast.If, demand: Demand) -> Iterator[tuple[list[ast.stmt], Demand, bool]]:
    words = {item.id for item in ast.walk(node.test) if isinstance(item, ast.Name)}
    words |= {item.attr for item in ast.walk(node.test) if isinstance(item, ast.Attribute)}
    if "TYPE_CHECKING" in words:
        yield node.orelse, demand, False
    elif words == {"__name__"}:
        yield node.body, demand, True
        yield node.orelse, Demand.LATE, False
    else:
        yield [*node.body, *node.orelse], Demand.LATE, False


def _catches(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or _names_import_error(handler.type)


def _suppresses(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and any(map(_names_import_error, expression.args))


def _names_import_error(expression: ast.expr) -> bool:
    return any(isinstance(item, ast.Name) and item.id in _IMPORT_ERRORS for item in ast.walk(expression))
