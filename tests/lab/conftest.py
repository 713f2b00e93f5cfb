"""The lab's own tests look at what a host is like when it is new, so they do not share one with the other tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.fixtures import three_hosts
from tests.lab.hosts import Lab


@pytest.fixture(scope="module")
def lab3(can_have_lab: None) -> Iterator[Lab]:
    """Three fresh hosts for one module."""
    with three_hosts() as lab:
        yield lab
