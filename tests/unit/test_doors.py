"""By how many modules the clients know the rest of dttui. Fewer doors, fewer things that a change has to think of."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import dttui

ROOT = Path(str(dttui.__file__)).parent.parent
CLIENTS = ("dttui.cli", "dttui.tui")
FREE = {"dttui.errors", "dttui.i18n", "dttui.sanitize", "dttui.locations", "dttui.files"}
"""What everybody uses and nobody is tied by."""
MOST = 30
MOST_BEHIND = 87
"""Modules that define what the clients import, whichever package they import it from."""
LOOK_UPS = {"dttui.frameworks.registry"}
"""What a package that the clients import offers to others, and the clients have the face look up."""
MADE_BY_CLIENTS = {"App", "Caller"}
LAZY = re.compile(r"^    from (\S+) import (\w+) as \2$", re.MULTILINE)
"""A name of a package that is imported at its first use, and where it is defined."""


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


def client_modules() -> Iterator[ast.Module]:
    """Yield what the clients are made of."""
    for client in ("cli", "tui"):
        for path in (ROOT / "dttui" / client).rglob("*.py"):
            yield ast.parse(path.read_text(encoding="utf-8"))


def names_of_packages() -> dict[tuple[str, str], str]:
    """Return where a name is defined that a package imports at its first use."""
    homes = {}
    for path in (ROOT / "dttui").rglob("__init__.py"):
        package = ".".join(path.parent.relative_to(ROOT).parts)
        homes.update({(package, found[2]): found[1] for found in LAZY.finditer(path.read_text(encoding="utf-8"))})
    return homes


def defining(module: ast.Module, homes: dict[tuple[str, str], str]) -> Iterator[tuple[str, str]]:
    """Yield by which package or module a client knows one that defines what it uses, and that one."""
    packages = {}
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "dttui":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if (node.module, alias.name) in homes:
                    yield node.module, homes[node.module, alias.name]
                elif is_module(inner):
                    packages[alias.asname or alias.name] = inner
                else:
                    yield node.module, node.module
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in packages:
            package = packages[node.value.id]
            yield package, homes.get((package, node.attr), package)


def test_behind_their_doors_the_clients_know_no_more_modules_than_they_did() -> None:
    homes = names_of_packages()
    known = {home for module in client_modules() for _door, home in defining(module, homes)}
    behind = sorted(name for name in known - FREE if not name.startswith(CLIENTS))
    assert len(behind) <= MOST_BEHIND, behind


def test_the_clients_have_the_face_look_up_what_a_plug_in_may_add() -> None:
    homes = names_of_packages()
    found = [(door, home) for module in client_modules() for door, home in defining(module, homes) if home in LOOK_UPS]
    assert found == []


def test_what_the_face_hands_out_is_made_by_no_client() -> None:
    made = set()
    for module in client_modules():
        nodes = list(ast.walk(module))
        given = {
            alias.asname or alias.name: alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module == "dttui.app"
            for alias in node.names
        }
        calls = [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        made |= {given[name] for name in calls if name in given and given[name][0].isupper()}
    assert made == MADE_BY_CLIENTS
