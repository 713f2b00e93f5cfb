"""What `--apply` prints of steps: one rank's, and each once."""

from __future__ import annotations

import pytest
from dtagent.protocol.events import Event, EventKind

from dttui.cli.printing import METRIC_INTERVAL_S, Printer


def report(number: int, rank: int, step: int) -> Event:
    data = {"step": step}
    return Event(number, number * (METRIC_INTERVAL_S + 1), EventKind.METRIC, "", attempt=0, rank=rank, data=data)


def test_a_step_that_several_ranks_report_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer("human")
    steps = [(0, 1), (1, 1), (0, 2), (2, 2), (0, 2), (0, 3)]
    printer.events(report(number, rank, step) for number, (rank, step) in enumerate(steps, 1))
    lines = [line.split("  ")[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["step 1", "step 2", "step 3"]


def test_a_lower_rank_takes_over(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer("human")
    printer.events(report(number, rank, step) for number, (rank, step) in enumerate([(3, 1), (1, 1), (3, 2)], 1))
    assert len(capsys.readouterr().err.splitlines()) <= 2


def test_a_loss_that_is_no_number_is_printed_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    event = report(1, 0, 5)
    event.data["not_finite"] = ["loss"]
    Printer("human").events([event])
    assert capsys.readouterr().err.splitlines()[0].endswith("step 5  loss nan")
