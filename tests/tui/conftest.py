"""What all TUI tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from dttui.i18n import set_language
from dttui.tui.screens import compose, job_files

_parsed: dict[object, list[RuleSet]] = {}
_parse = Stylesheet._parse_rules  # noqa: SLF001 - there is no other place at which all apps meet


def _parse_once(sheet: Stylesheet, css: str, *where: Any, **more: Any) -> list[RuleSet]:
    """Parse what apps before this one had in their style sheets no more: it took a tenth of the time of these tests."""
    key = (css, where, *more.items(), *sorted(sheet._variables.items()))  # noqa: SLF001
    if key not in _parsed:
        _parsed[key] = _parse(sheet, css, *where, **more)
    return _parsed[key]


@pytest.fixture(autouse=True, scope="session")
def one_style_sheet() -> Iterator[None]:
    """Let all apps share what is parsed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", _parse_once)
        yield


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
