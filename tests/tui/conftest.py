"""What all TUI tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dttui.i18n import set_language


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    """Begin and end in English, whatever a test chose."""
    set_language("en")
    yield
    set_language("en")
