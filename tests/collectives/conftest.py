"""What all tests here have in common: they need torch, so `make torch` runs them, and `make test` does not."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is of this directory, so that no file of it is left to nobody."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.torch)
