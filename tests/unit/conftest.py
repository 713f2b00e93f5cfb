"""What unit tests of several rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dttui.i18n import set_language
from tests.tui.catalogue import compile_catalogues


@pytest.fixture
def english() -> Iterator[None]:
    """Begin and end in English, with the catalogues there for a test that chooses another language."""
    compile_catalogues()
    set_language("en")
    yield
    set_language("en")
