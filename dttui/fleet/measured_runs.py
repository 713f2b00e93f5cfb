"""What jobs of this login node have taken, kept beside what it was estimated from: estimates to come learn from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from dttui import locations
from dttui.files import alone, write_atomic
from dttui.fleet.kept_measurements import read_measurements
from dttui.i18n import _
from dttui.planning.cost.calibration import MeasuredRun

MAX_BYTES = 16 << 20
"""A file that is larger is none of dttui's."""
KEPT_RUNS = 64
"""The newest so many of each kind of host and precision: hosts change, and so do drivers."""
KEPT_IN_ALL = 4096


class _RunsFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    runs: tuple[MeasuredRun, ...] = ()


def measured_runs() -> tuple[MeasuredRun, ...]:
    """Return what was kept, the oldest first. Raises UsageError where the file cannot be read."""
    remedy = _("It holds nothing but what jobs have taken, for estimates to learn from: move it away to go on without.")
    kept = read_measurements(locations.measured_runs_file(), _RunsFile, MAX_BYTES, remedy)
    return kept.runs if kept is not None else ()


def record_run(run: MeasuredRun) -> None:
    """Keep what a job has taken, in place of what was kept of the same job.

    Raises:
        UsageError: the file that is there cannot be read, or not be written; it stays as it is.
    """
    _change(lambda runs: [*(item for item in runs if item.job != run.job), run])


def drop_runs(kind: str | None = None) -> tuple[MeasuredRun, ...]:
    """Forget what jobs have taken on one kind of host, or on all; return what was forgotten.

    Raises:
        UsageError: as `record_run`.
    """
    dropped: list[MeasuredRun] = []

    def without(runs: Iterable[MeasuredRun]) -> list[MeasuredRun]:
        kept: list[MeasuredRun] = []
        for run in runs:
            (dropped if kind in (None, run.basis.kind) else kept).append(run)
        return kept

    if measured_runs():
        _change(without)
    return tuple(dropped)


def _change(change: Callable[[Iterable[MeasuredRun]], list[MeasuredRun]]) -> None:
    """Read, change and write the file, one dttui after the other."""
    path = locations.measured_runs_file()
    with alone(path.with_suffix(".lock"), path):
        kept = _newest(change(measured_runs()))
        lines = ",\n".join(run.model_dump_json(exclude_defaults=True) for run in kept)
        try:
            write_atomic(path, f'{{"version": 1, "runs": [\n{lines}\n]}}\n')
        except OSError as fault:
            raise locations.unwritable(path, fault) from fault


def _newest(runs: Iterable[MeasuredRun]) -> list[MeasuredRun]:
    """Return the newest of each kind and precision, the oldest first."""
    count: Counter[tuple[str, str]] = Counter()
    kept = []
    for run in sorted(runs, key=lambda run: run.ended_at, reverse=True):
        key = run.basis.kind, run.basis.layout.precision
        count[key] += 1
        if count[key] <= KEPT_RUNS:
            kept.append(run)
    return kept[:KEPT_IN_ALL][::-1]
