"""Files that training scripts log to, each read from where it was read last: what is new, as numbers by their names."""

from __future__ import annotations

import csv
import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dtagent.logs.event_records import MAX_RECORD_BYTES, MalformedError, Scalars, event_records, wandb_records
from dtagent.logs.trainer_names import key_of, meaning_of
from dtagent.system import untrusted_files

MAX_READ_BYTES = 2 * MAX_RECORD_BYTES
"""Of one file at a time."""
MAX_SKIPPED_TO_BYTES = 64 * 1024 * 1024
"""Of a longer file of lines only the end is read, and of one of records nothing."""
MAX_LINE_BYTES = 64 * 1024
MAX_STATE_BYTES = 8 * 1024 * 1024
"""Longest trainer_state.json."""
MAX_COLUMNS = 256
MAX_NUMBERS = 64
"""Of one report."""
_HUGE = 1 << 62

Report = dict[str, float]


@dataclass
class _Steps:
    """Joins what several records tell of one step."""

    step: int | None = None
    values: dict[str, float] = field(default_factory=dict)

    def take(self, scalars: Scalars) -> Report | None:
        """Take a record; return the report of the step before, once another one begins."""
        done = None
        if scalars.step != self.step:
            done = self.report()
            self.step, self.values = scalars.step, {}
        self.values.update(scalars.values)
        return done

    def report(self) -> Report | None:
        """Return what is known of the step now."""
        return report_of(self.values, self.step) if self.values else None


class MetricSource:
    """One file. What cannot be read, or is no such file, is given up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_given_up = False
        self._offset = 0
        self._inode: int | None = None
        self._written = 0
        """Bytes of the file that are not read yet."""
        self._header: list[str] | None = None
        self._steps = _Steps()
        self._read: Callable[[bytes], tuple[list[Report], int]] = {
            ".jsonl": self._lines,
            ".json": self._lines,
            ".csv": self._rows,
            ".wandb": self._wandb,
        }.get(path.suffix, self._events)

    @property
    def is_of_lines(self) -> bool:
        """Whether it can be read from anywhere."""
        return self.path.suffix in (".jsonl", ".json")

    def new(self) -> list[Report]:
        """Return the reports of what was written since the last call."""
        try:
            if self.path.name == "trainer_state.json":
                return self._state()
            return self._piece()
        except (OSError, MalformedError):
            self.is_given_up = True
            return []

    def _piece(self) -> list[Report]:
        number = untrusted_files.descriptor(self.path)
        try:
            info = os.fstat(number)
            if not stat.S_ISREG(info.st_mode):
                raise MalformedError("no file")
            if info.st_ino != self._inode or info.st_size < self._offset:
                self._inode, self._offset, self._header, self._steps = info.st_ino, 0, None, _Steps()
            if info.st_size - self._offset > MAX_SKIPPED_TO_BYTES:
                if not self.is_of_lines:
                    raise MalformedError("too long")
                self._offset = info.st_size - MAX_READ_BYTES
            self._written = info.st_size - self._offset
            data = os.pread(number, MAX_READ_BYTES, self._offset)
        finally:
            os.close(number)
        reports, taken = self._read(data)
        if not taken and len(data) == MAX_READ_BYTES:
            raise MalformedError("a record without end")
        self._offset += taken
        return reports

    def _lines(self, data: bytes) -> tuple[list[Report], int]:
        end = data.rfind(b"\n") + 1
        found = []
        for line in data[:end].splitlines():
            body = _object(line)
            report = report_of(body) if body is not None else None
            if report is not None:
                found.append(report)
        return found, end

    def _rows(self, data: bytes) -> tuple[list[Report], int]:
        end = data.rfind(b"\n") + 1
        found = []
        for line in data[:end].decode(errors="replace").splitlines():
            if len(line) > MAX_LINE_BYTES:
                continue
            try:
                cells = next(csv.reader([line]), [])
            except csv.Error:
                continue
            if self._header is None:
                self._header = [cell.strip() for cell in cells[:MAX_COLUMNS]]
                continue
            numbers = {name: _number(cell) for name, cell in zip(self._header, cells, strict=False)}
            report = report_of({name: number for name, number in numbers.items() if number is not None})
            if report is not None:
                found.append(report)
        return found, end

    def _events(self, data: bytes) -> tuple[list[Report], int]:
        scalars, taken = event_records(data, self._written)
        return self._joined(scalars), taken

    def _wandb(self, data: bytes) -> tuple[list[Report], int]:
        scalars, taken = wandb_records(data, self._offset)
        return self._joined(scalars), taken

    def _joined(self, scalars: list[Scalars]) -> list[Report]:
        found = [report for item in scalars if (report := self._steps.take(item)) is not None]
        last = self._steps.report() if scalars else None
        return found if last is None else [*found, last]

    def _state(self) -> list[Report]:
        """Read `trainer_state.json` of Hugging Face's Trainer as a whole: it is written anew each time."""
        info = os.lstat(self.path)
        if (info.st_ino, info.st_mtime_ns) == (self._inode, self._offset):
            return []
        self._inode, self._offset = info.st_ino, info.st_mtime_ns
        body = _object(untrusted_files.read(self.path, MAX_STATE_BYTES), MAX_STATE_BYTES)
        history = body.get("log_history") if body is not None else None
        if not isinstance(history, list):
            raise MalformedError("no state of a trainer")
        return [report for item in history if isinstance(item, dict) and (report := report_of(item)) is not None]


def report_of(values: Mapping[str, Any], step: int | None = None) -> Report | None:
    """Return numbers by the names of `DTTUI_METRICS`; `None` where no loss of a training is among them.

    Args:
        values: by the script's own names; what is no number is left out.
        step: what they are of, where that is known.
    """
    found: Report = {}
    losses: dict[int, float] = {}
    parts: list[float] = []
    rank = 0 if step is None else 2  # W&B's own counts calls; a `global_step` beside it is the training's.
    for name, value in list(values.items())[:MAX_COLUMNS]:
        number = _number(value)
        key = key_of(str(name)).lstrip("_")
        meaning = meaning_of(key)
        if number is None:
            continue
        if key == "epoch":
            found["epoch"] = number
        elif meaning is None:
            continue
        elif meaning.step > rank and math.isfinite(number) and abs(number) < _HUGE:
            step, rank = int(number), meaning.step
        elif meaning.loss is not None:
            losses.setdefault(meaning.loss, number)
        elif meaning.is_part:
            parts.append(number)
        elif len(found) < MAX_NUMBERS and (told := meaning.held_out or meaning.metric) and not told.startswith("_"):
            found.setdefault(told, number)
    if not losses and not parts:
        return None
    found["loss"] = losses[min(losses)] if losses else parts[0]
    epoch = found.get("epoch")
    if step is None and epoch is not None and math.isfinite(epoch) and epoch == int(epoch):
        step = int(found["epoch"])
    return found if step is None else {**found, "step": step}


def _object(line: bytes, most: int = MAX_LINE_BYTES) -> dict[str, Any] | None:
    if len(line) > most:
        return None
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
