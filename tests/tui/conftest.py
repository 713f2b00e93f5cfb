"""What all TUI tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from textual.app import App

from dttui.i18n import set_language
from dttui.tui.screens import compose, job_files


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    """Begin and end in English, whatever a test chose."""
    set_language("en")
    yield
    set_language("en")


@pytest.fixture(autouse=True)
def no_pause_for_thought(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan at once: nobody waits here for a person to go on typing."""
    monkeypatch.setattr(compose, "LOOK_AHEAD_DELAY_S", 0.0)


@pytest.fixture(autouse=True)
def toasts_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a toast would go before the test has counted it."""
    monkeypatch.setattr(App, "NOTIFICATION_TIMEOUT", 600.0)
    monkeypatch.setattr(job_files, "ERROR_TIMEOUT_S", 600.0)
