"""What becomes of a test whose engine is not there, or does not run here."""

from __future__ import annotations

import os
import subprocess
from typing import NoReturn

import pytest

CONTAINER = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "true")
"""What every engine does first, without one."""


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where engines are required."""
    if os.environ.get("DTTUI_REQUIRE_ENGINES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def refused(reason: str) -> NoReturn:
    """As `missing`; but skip it where this host lets nobody make a container, whatever engine there is."""
    if subprocess.run(CONTAINER, capture_output=True, timeout=60, check=False).returncode:
        pytest.skip(f"this host forbids containers; {reason}")
    missing(reason)
