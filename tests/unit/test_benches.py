"""Measurements that nobody runs every day still find what they import of dttui."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

BENCHES = sorted((Path(__file__).parents[2] / "bench").glob("*.py"))
OURS = ("dttui", "dtagent")


@pytest.mark.parametrize("bench", BENCHES, ids=lambda path: path.stem)
def test_what_a_measurement_imports_is_there(bench: Path) -> None:
    for node in ast.walk(ast.parse(bench.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            module = importlib.import_module(node.module or "")
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")
