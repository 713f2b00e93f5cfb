"""Whether the script that is sent was written for what the job wants of it: told by what it imports and names."""

from __future__ import annotations

import ast
import functools
import os
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from dttui.frameworks import get_framework
from dttui.frameworks.parts.config_file import SHARES_KEY
from dttui.i18n import _
from dttui.planning.models import Plan
from dttui.planning.resumption import CHECKPOINT_DIR, RESUME_FROM
from dttui.spec.findings import Finding, warning
from dttui.spec.models import Job, Run

MOST_FILES = 64
"""The script and modules beside it, that are read."""
MOST_BYTES = 1024 * 1024
"""Of one."""

_VARIABLE = re.compile(rf"DTTUI_[A-Z_]+|{SHARES_KEY}")
_SILENCE = threading.Lock()
_Name = tuple["int | None", str]
"""Level of an import and what it names; `None` for a name that is used, and leads to no file."""


def check_imports(framework: str, run: Run, directory: Path) -> list[Finding]:
    """Return a warning where a script uses nothing of its framework; nothing where that cannot be told.

    Args:
        framework: that was chosen.
        run: what it starts.
        directory: that is sent.
    """
    expected = get_framework(framework).script_imports
    script = script_of(run, directory)
    if expected is None or script is None:
        return []
    found = imports_of(script, directory)
    if found is None or any(_is_below(name, module) for name in found for module in expected.modules):
        return []
    message = _("{script} does not import {module}: {consequence}").format(
        script=script.relative_to(directory), module=expected.modules[0], consequence=expected.otherwise
    )
    hint = _(
        "Choose the framework that it was written for, or see what `dttui init --framework {framework}` writes. Where "
        "a package of yours does so, nothing is wrong."
    )
    return [warning("script-imports", "framework", message, hint.format(framework=framework), path=("framework",))]


def check_resuming(plan: Plan, run: Run, directory: Path) -> list[Finding]:
    """Return a warning where a job may be started again and its script only writes checkpoints.

    Args:
        plan: of the job.
        run: what it starts.
        directory: that is sent.
    """
    script = script_of(run, directory)
    if script is None or not plan.recovery.may_restart or plan.resumption.resume_args:
        return []
    found = imports_of(script, directory)
    if found is None or CHECKPOINT_DIR not in found or RESUME_FROM in found:
        return []
    message = _("{script} reads {written} and never {read}: another attempt begins training anew").format(
        script=script.relative_to(directory), written=CHECKPOINT_DIR, read=RESUME_FROM
    )
    hint = _("Load what {read} names where that is set, or write recovery.checkpoint.resume_args.").format(
        read=RESUME_FROM
    )
    return [warning("script-never-resumes", "recovery", message, hint, path=("recovery",))]


def check_sharing(job: Job, run: Run, directory: Path) -> list[Finding]:
    """Return a warning where samples are shared out by speed and the script never asks how.

    Args:
        job: the job.
        run: what it starts.
        directory: that is sent.
    """
    data = job.strategy.data_parallel
    script = script_of(run, directory)
    if data is None or data.has_equal_shares or script is None:
        return []
    found = imports_of(script, directory)
    if found is None or SHARES_KEY in found:
        return []
    message = _('{script} never asks for "{key}", by which ranks have unequal shares: all train on as many samples')
    message = message.format(script=script.relative_to(directory), key=SHARES_KEY)
    hint = _(
        "Take the rank's number from it in the file that DTTUI_CONFIG names, and weight the loss by it, as "
        "examples/gpt does. Where a package of yours does so, nothing is wrong."
    )
    path = ("strategy", "data_parallel", "shares")
    return [warning("script-never-shares", "strategy.data_parallel.shares", message, hint, path=path)]


def is_without(module: str, run: Run, directory: Path) -> bool:
    """Whether the script that is sent is known to import nothing of a module."""
    script = script_of(run, directory)
    found = imports_of(script, directory) if script is not None else None
    return found is not None and not any(_is_below(name, module) for name in found)


def imports_of(script: Path, directory: Path) -> frozenset[str] | None:
    """Return the modules that a script, and those in the directory that it imports, speak of; `None` if one is unread.

    Variables of dttui's that they name are among them, and the key of a step's shares.

    Args:
        script: a Python file.
        directory: where its own modules are, beside those that lie next to it.
    """
    found: set[str] = set()
    waiting, seen = [script], {script}
    while waiting:
        path = waiting.pop()
        names = _names_in(path)
        if names is None or len(seen) > MOST_FILES:
            return None
        found |= {name for level, name in names if not level}
        for level, name in names:
            if level is None:
                continue
            # A relative import begins above its own package, a usual one wherever modules are looked for.
            places = [path.parents[level - 1]] if 0 < level <= len(path.parents) else [script.parent, directory]
            local = {
                module for place in places for module in modules_below(place, name) if is_sent(directory, module)
            } - seen
            seen |= local
            waiting.extend(sorted(local))
    return frozenset(found)


def script_of(run: Run, directory: Path) -> Path | None:
    """Return the script or module of a job among what is sent; `None` where it is elsewhere, or a command."""
    if run.script is not None:
        candidates = [run.script]
    elif run.module is not None:
        place = run.module.replace(".", "/")
        candidates = [f"{place}.py", f"{place}/__main__.py"]
    else:
        return None
    paths = (directory / candidate for candidate in candidates if not os.path.isabs(candidate))
    return next((path for path in paths if path.is_file() and is_sent(directory, path)), None)


def is_sent(directory: Path, path: Path) -> bool:
    """Whether a file would be sent with a directory, as far as links and `..` go."""
    return path.resolve().is_relative_to(directory.resolve())


def modules_below(place: Path, name: str) -> Iterator[Path]:
    """Yield the files of a dotted name that lie below a directory, those of its packages among them."""
    for part in name.split("."):
        place = place / part
        yield from (path for path in (place.with_name(f"{part}.py"), place / "__init__.py") if path.is_file())


def _names_in(path: Path) -> tuple[_Name, ...] | None:
    """Return what a file imports or uses, remembered until it changes; `None` where it cannot be read."""
    try:
        info = path.stat()
        return _read(path, info.st_mtime_ns) if info.st_size <= MOST_BYTES else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@functools.lru_cache(maxsize=4 * MOST_FILES)
def _read(path: Path, _changed_at: int) -> tuple[_Name, ...]:
    # What is changed meanwhile is the whole process's: of two threads at a time, one would undo what the other one did.
    with _SILENCE, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What Python has to say of a script it says where that runs.
        tree = ast.parse(path.read_bytes())
    return tuple(dict.fromkeys(_names(ast.walk(tree))))


def _names(nodes: Iterable[ast.AST]) -> Iterator[_Name]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = f"{node.module}." if node.module else ""
            yield from ((node.level, prefix + alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _VARIABLE.fullmatch(node.value):
            yield None, node.value
        elif isinstance(node, ast.Attribute):  # `torch.distributed.fsdp.…` with no more than `import torch`.
            yield None, _dotted(node)
        elif isinstance(node, ast.Call) and _dotted(node.func).endswith("import_module"):
            named = (word.value for word in node.args if isinstance(word, ast.Constant))
            yield from ((None, word) for word in named if isinstance(word, str))


def _dotted(node: ast.expr) -> str:
    """Return `a.b.c`; empty for what is no plain name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *parts[::-1]]) if isinstance(node, ast.Name) else ""


def _is_below(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")
