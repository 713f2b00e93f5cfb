"""What estimates have learned from jobs that are over: shown with each job before and after, and forgotten."""

from __future__ import annotations

from dttui.compose.draft_answers import CalibrationAnswer
from dttui.errors import UsageError
from dttui.fleet.known_hardware import gpu_types
from dttui.fleet.measured_runs import drop_runs, measured_runs
from dttui.i18n import _
from dttui.planning.cost.calibration import check, learn
from dttui.spec.problems import did_you_mean, shown


def calibration() -> CalibrationAnswer:
    """Return what was learned, and each job it was learned from. Raises UsageError where what is kept is damaged."""
    runs, table = measured_runs(), gpu_types()
    learned = learn(runs, table)
    kinds = dict.fromkeys(run.basis.kind for run in runs)
    return CalibrationAnswer(learned, check(runs, table, learned), [kind for kind in kinds if kind not in learned])


def drop_calibration(kind: str | None, *, dry_run: bool = False) -> tuple[str, ...]:
    """Forget what was learned of a kind of host, or of all, and return the jobs that it was learned from.

    Args:
        kind: name of a type, or what the table takes for one.
        dry_run: forget nothing.

    Raises:
        UsageError: nothing is known of that kind, or what is kept cannot be read or written.
    """
    runs = measured_runs()
    kinds = list(dict.fromkeys(run.basis.kind for run in runs))
    if kind is not None and kind not in kinds:
        found = gpu_types().find(kind)
        if found is None or found.name not in kinds:
            message = _("nothing was learned of {kind}").format(kind=shown(kind))
            known = _("Something was of: {kinds}.").format(kinds=", ".join(kinds)) if kinds else ""
            raise UsageError(message, did_you_mean(kind, kinds) or known)
        kind = found.name
    dropped = [run for run in runs if kind in (None, run.basis.kind)] if dry_run else drop_runs(kind)
    return tuple(run.job for run in dropped)
