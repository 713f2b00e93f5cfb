"""Metrics that a job finds by expressions of its own: what they give, and that none of them holds anything up."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.locations import AttemptFiles
from dtagent.logs import own_metrics
from dtagent.logs.own_metrics import OwnMetrics
from dtagent.logs.trainer_metrics import Training

from tests.agent.conversation import Conversation

HOSTILE = r"(a+)+$"
SLOW_LINE = "a" * 60 + "b"


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    found = AttemptFiles(tmp_path / "job" / "0")
    found.logs.mkdir(parents=True)
    return found


@pytest.fixture
def searching() -> Iterator[Any]:
    """Return a maker of searches that are closed in the end."""
    made: list[OwnMetrics] = []

    def make(**patterns: str) -> OwnMetrics:
        made.append(OwnMetrics(patterns))
        return made[-1]

    yield make
    for item in made:
        item.close()


def started(files: AttemptFiles, patterns: object) -> None:
    files.start.write_text(json.dumps({"metric_patterns": patterns}))


def told(files: AttemptFiles, text: str, patterns: dict[str, str]) -> list[dict[str, Any]]:
    started(files, patterns)
    (files.logs / "0.out").write_text(text)
    Training().look(files, is_over=True)
    bodies = map(json.loads, files.trainer.read_text().splitlines() if files.trainer.exists() else [])
    return [{k: v for k, v in body.items() if k not in ("rank", "time")} for body in bodies if "at" not in body]


def test_what_an_expression_finds_is_part_of_the_report_of_its_line(files: AttemptFiles) -> None:
    found = told(files, "step 5 loss 2.5 return of -1.5e2\n", {"reward": r"return of ([-+.\deE]+)"})
    assert found == [{"step": 5, "loss": 2.5, "reward": -150.0}]


def test_a_line_of_its_own_is_of_the_step_before_it(files: AttemptFiles) -> None:
    text = "step 5 loss 2.5\nreturn of 3\nstep 6 loss 2.4\nreturn of 4\n"
    assert told(files, text, {"reward": r"return of (\d+)"}) == [
        {"step": 5, "loss": 2.5, "reward": 3.0},
        {"step": 6, "loss": 2.4, "reward": 4.0},
    ]


def test_expressions_for_loss_and_step_make_reports_of_lines_of_any_form(files: AttemptFiles) -> None:
    text = "".join(f"durchgang {step}: verlust={3 - step / 10:.1f}\n" for step in (1, 2, 3))
    patterns = {"loss": r"verlust=(?P<value>[\d.]+)()", "step": r"durchgang (\d+)"}
    assert told(files, text, patterns) == [
        {"loss": 2.9, "step": 1},
        {"loss": 2.8, "step": 2},
        {"loss": 2.7, "step": 3},
    ]


def test_one_that_takes_without_end_is_dropped_and_the_others_go_on(searching: Any) -> None:
    own = searching(bad=HOSTILE, reward=r"return of (\d+)")
    assert [numbers for _at, numbers in own.search(b"return of 6\n")] == [{"reward": 6.0}]  # Python has begun.
    own.begin_look()
    began = time.monotonic()
    found = own.search("".join([f"{SLOW_LINE}\n" * 5, "return of 7\n"]).encode())
    assert time.monotonic() - began < own_metrics.ANSWER_S
    assert found == [(5 * (len(SLOW_LINE) + 1), {"reward": 7.0})]
    assert own.dropped == ["bad"]
    own.begin_look()
    assert [numbers for _at, numbers in own.search(b"return of 8\n")] == [{"reward": 8.0}]


def test_a_dropped_expression_is_told_beside_how_far_all_is_read(files: AttemptFiles) -> None:
    told(files, f"{SLOW_LINE}\n" * 5 + "step 1 loss 2.5\n", {"bad": HOSTILE})
    last = json.loads(files.trainer.read_text().splitlines()[-1])
    assert last["dropped_patterns"] == ["bad"]


def test_expressions_wait_for_an_interpreter_that_takes_long_to_begin(
    searching: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep 0.5\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(own_metrics, "own_python", lambda: str(slow))
    monkeypatch.setattr(own_metrics, "ANSWER_S", 0.3)
    own = searching(reward=r"return of (\d+)")
    assert [numbers for _at, numbers in own.search(b"return of 7\n")] == [{"reward": 7.0}]
    assert own.dropped == []


def test_a_process_that_does_not_answer_is_ended_and_nothing_waits_for_it(
    searching: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_metrics, "ANSWER_S", 0.2)
    monkeypatch.setattr(own_metrics, "START_S", 0.2)
    monkeypatch.setattr(
        own_metrics,
        "_start",
        lambda _patterns: subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE),
    )
    own = searching(reward=r"return of (\d+)")
    began = time.monotonic()
    assert own.search(b"return of 7\n") == []
    assert own.search(b"return of 7\n") == []
    assert time.monotonic() - began < 5
    assert own.dropped == ["reward"]


def test_a_flood_of_lines_takes_no_longer_than_a_look_may(searching: Any) -> None:
    own = searching(reward=r"return of (\d+)", other=r"(x.*x.*x)y")
    block = b"return of 7 and a few words more\n" * 100_000
    began = time.monotonic()
    for _look in range(3):
        own.begin_look()
        own.search(block)
    assert time.monotonic() - began < 10
    assert own.passed_over >= 3 * (100_000 - own_metrics.MAX_LINES)


@pytest.mark.parametrize("patterns", [None, 5, ["a"], {"a": 5}, {"a": "("}, {"a": "x" * 1000}])
def test_what_is_no_expression_finds_nothing(files: AttemptFiles, patterns: object) -> None:
    started(files, patterns)
    (files.logs / "0.out").write_text("step 5 loss 2.5\n")
    Training().look(files, is_over=True)
    assert json.loads(files.trainer.read_text().splitlines()[0])["step"] == 5


def test_an_agent_looks_for_what_it_was_sent(tmp_path: Path) -> None:
    with Conversation(tmp_path / "root") as agent:
        agent.prepare("printing")
        agent.start("printing", [["echo", "return of 7"]], metric_patterns={"reward": r"return of (\d+)"})
        agent.end_of("printing")
        found = agent.streams("printing", wants_trainer=True)
    assert json.loads(found["trainer"].splitlines()[0])["reward"] == 7
