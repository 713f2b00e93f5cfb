"""By how many modules the clients know the rest of dttui. Fewer doors, fewer things that a change has to think of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dttui

ROOT = Path(str(dttui.__file__)).parent.parent
CLIENTS = ("dttui.cli", "dttui.tui")
FREE = {"dttui.errors", "dttui.i18n", "dttui.sanitize", "dttui.locations", "dttui.files"}
"""What everybody uses and nobody is tied by."""
MOST = 30


def is_module(name: str) -> bool:
    """Whether a dotted name is a module of dttui, or one of its packages."""
    root = ROOT if name.split(".")[0] == "dttui" else ROOT / "agent"
    path = root.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, inside functions and for type checkers too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert not node.level, f"{path} imports by a relative name"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if is_module(name) else node.module for name in inner)


def test_the_clients_know_few_modules_of_the_rest() -> None:
    files = [path for client in ("cli", "tui") for path in (ROOT / "dttui" / client).rglob("*.py")]
    known = {name for path in files for name in imported(path) if name.split(".")[0] in ("dttui", "dtagent")}
    doors = sorted(name for name in known - FREE if not name.startswith(CLIENTS) and is_module(name))
    assert "dttui.app" in doors
    assert len(doors) <= MOST, doors
