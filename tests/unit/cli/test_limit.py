"""`--timeout` ends a verb wherever it is, also where Python lets nothing be raised."""

from __future__ import annotations

import sys
import time
from argparse import Namespace

import pytest

from dttui.cli.limit import TimeLimit
from dttui.errors import NotFinishedError
from tests.waiting import PATIENCE_S


def limited(seconds: float | None) -> TimeLimit:
    return TimeLimit(Namespace(timeout=seconds, unfinished="", tells_late=False))


class LetGo:
    """Takes its time when it is let go: what is raised then goes nowhere."""

    def __del__(self) -> None:
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            pass


def test_what_rings_where_nothing_can_be_raised_rings_again(capsys: pytest.CaptureFixture[str]) -> None:
    hook, until = sys.unraisablehook, time.monotonic() + PATIENCE_S

    def work() -> None:
        with limited(0.2):
            LetGo()
            while time.monotonic() < until:
                pass

    with pytest.raises(NotFinishedError, match=r"not finished within 0\.2 s"):
        work()
    assert "Traceback" not in capsys.readouterr().err
    assert sys.unraisablehook is hook


def test_who_ends_in_time_is_not_rung_for() -> None:
    hook = sys.unraisablehook
    with limited(30.0):
        pass
    with limited(None):
        assert sys.unraisablehook is hook
    assert sys.unraisablehook is hook
