"""What is read of real output of trainers: of each half of tests/material/logs, a share of loss, speed and steps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from dtagent.locations import AttemptFiles
from dtagent.logs import trainer_metrics
from dtagent.logs.trainer_metrics import Training

LOGS = Path(__file__).parents[1] / "material" / "logs"
SPEEDS = ("steps_per_s", "samples_per_s", "tokens_per_s", "tokens_per_s_per_gpu")
LEAST_LOSS, LEAST_SPEED, LEAST_STEPS = 0.95, 0.9, 0.9


class Verdict(NamedTuple):
    """What of a log was read as a careful reader takes it; `None` where it does not print that."""

    loss: bool | None
    speed: bool | None
    step: bool | None
    false: str = ""
    """What was read that is not so."""


def reports_of(log: Path, directory: Path) -> list[dict[str, Any]]:
    """Return what is reported of a log whose lines come one after another."""
    files = AttemptFiles(directory / log.stem / "0")
    files.logs.mkdir(parents=True)
    files.trainer.write_text('{"at": {"0.out": 0}}\n')  # So that the first lines are not looked at once more, together.
    followed = Training()
    with (files.logs / "0.out").open("ab", buffering=0) as stream:
        for line in log.read_bytes().splitlines(keepends=True):
            stream.write(line)
            followed.look(files)
    followed.look(files, is_over=True)
    return [body for body in map(json.loads, files.trainer.read_text().splitlines()) if "at" not in body]


def verdict_of(expect: dict[str, Any], reports: list[dict[str, Any]]) -> Verdict:
    losses = [report["loss"] for report in reports if "loss" in report]
    steps = [report["step"] for report in reports if "step" in report]
    told = {name: report[name] for report in reports for name in SPEEDS if name in report}
    has_loss, has_step = expect["loss_last"] is not None, expect["step_last"] is not None
    has_speed = expect["speed"] is not None and not str(expect["speed"]).startswith("null")
    false = []
    if not has_loss and losses:
        false.append(f"loss {losses[-1]:g}, which it does not print")
    if not has_step and steps:
        false.append(f"step {steps[-1]}, which it does not print")
    if has_loss and losses and not is_loss(losses, expect):
        false.append(f"loss {losses[0]:g} to {losses[-1]:g}")
    if has_step and steps and not is_step(steps[-1], expect):
        false.append(f"step {steps[-1]}")
    if has_speed and told and not is_speed(told, str(expect["speed"])):
        false.append(f"speed {told}")
    return Verdict(
        is_loss(losses, expect) if has_loss else None,
        is_speed(told, str(expect["speed"])) if has_speed else None,
        bool(steps) and is_step(steps[-1], expect) if has_step else None,
        "; ".join(false),
    )


def number_of(text: object) -> float:
    """Return a number as a trainer prints it: `4K`, `1,250`."""
    digits = str(text).replace(",", "")
    return 1000 * float(digits[:-1]) if digits.endswith("K") else float(digits)


def is_loss(losses: list[float], expect: dict[str, Any]) -> bool:
    """Whether the first and last loss are read; beside them may be those that other ranks print for the same step."""
    first, last = number_of(expect["loss_first"]), number_of(expect["loss_last"])
    return any(loss == pytest.approx(first, rel=1e-3) for loss in losses[:4]) and any(
        loss == pytest.approx(last, rel=1e-3) for loss in losses[-4:]
    )


def is_step(step: int, expect: dict[str, Any]) -> bool:
    """Whether it is the last step, as printed or over all epochs."""
    last = int(number_of(expect["step_last"]))
    counts, total = str(expect["step_counts"]), re.match(r"(\d+)[^;]* an epoch", str(expect["total_steps"]))
    if step == last or f"whole bar says {step}" in counts:
        return True
    if total:
        return step > last and (step - last) % int(total[1]) == 0
    return "epoch" in counts and step > last


def is_speed(told: dict[str, float], expected: str) -> bool:
    """Whether one of the speeds is one of the numbers that are told, as they are or as the time of a step."""
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", expected)]
    wanted = [value for number in numbers if number for value in (number, 1 / number, 1000 / number)]
    return any(value == pytest.approx(want, rel=0.02) for value in told.values() for want in wanted)


def judge(half: str, directory: Path) -> dict[str, Verdict]:
    """Return the verdict on each log of a half that lies here."""
    entries = yaml.safe_load((LOGS / half / "index.yaml").read_text())
    return {
        entry["name"]: verdict_of(entry["expect"], reports_of(LOGS / half / entry["file"], directory))
        for entry in entries
        if entry["kept"]
    }


def share(verdicts: dict[str, Verdict], what: str) -> tuple[int, int]:
    """Return how many were read, of how many that print it."""
    known = [value for verdict in verdicts.values() if (value := getattr(verdict, what)) is not None]
    return sum(known), len(known)


@pytest.mark.parametrize("half", ["fit", "end"])
def test_loss_speed_and_steps_are_read_of_what_trainers_print(
    half: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.setattr(trainer_metrics, "LOOK_CPU_S", 60.0)
    verdicts = judge(half, tmp_path)
    shares = {what: share(verdicts, what) for what in ("loss", "speed", "step")}
    missed = {
        name: [what for what in shares if getattr(verdict, what) is False] + [verdict.false]
        for name, verdict in verdicts.items()
        if False in verdict or verdict.false
    }
    said = f"{half}: " + ", ".join(f"{what} {read}/{of}" for what, (read, of) in shares.items()) + f"; {missed}"
    record_property("rates", said)
    print(said)
    for (read, of), least in zip(shares.values(), (LEAST_LOSS, LEAST_SPEED, LEAST_STEPS), strict=True):
        assert read >= least * of, said
    assert not [name for name, verdict in verdicts.items() if verdict.false], said
