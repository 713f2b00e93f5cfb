"""A public class has its name to itself: who searches for one finds what it stands for, in dttui and in the agent."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import dttui

ROOT = Path(str(dttui.__file__)).parent.parent
SHARED: dict[str, str] = {}
"""Names that several classes have all the same, each with the reason."""


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted([*ROOT.glob("dttui/**/*.py"), *ROOT.glob("agent/dtagent/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    shared = {name: found for name, found in homes.items() if len(found) > 1}
    assert len(homes) > 500
    assert shared.keys() == SHARED.keys(), {name: shared.get(name) for name in shared.keys() ^ SHARED.keys()}
