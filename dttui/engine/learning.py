"""What a job that is over leaves for estimates to come: what it has taken, beside what it was estimated from."""

from __future__ import annotations

import contextlib
import math

from dtagent.protocol.events import JobState

from dttui.errors import UsageError
from dttui.fleet.measured_runs import record_run
from dttui.i18n import msg
from dttui.jobs import JobDirectory
from dttui.jobs.figures import GPU_MEMORY, SAMPLES, STEP_TIME, TOKENS
from dttui.jobs.outcome import AttemptOutcome, NodeEnd
from dttui.planning.cost.calibration import CostBasis, MeasuredRun
from dttui.planning.models import Plan
from dttui.spec.findings import Finding, warning

SAME_BATCH = 1.5
"""How many times what a plan takes a step for may be in a step as ranks count them: beyond it they count others."""


def learn_from(directory: JobDirectory, outcome: AttemptOutcome, now: float) -> Finding | None:
    """Keep what the last attempt of a job has taken; return what is to be said where that cannot be.

    Nothing is kept of one that failed, or from which a host went: its steps may have taken longer for that.

    Args:
        directory: of the job.
        outcome: of it.
        now: Unix time.
    """
    is_whole = all(node.end is NodeEnd.CLEAN for node in outcome.nodes.values())
    if outcome.state not in (JobState.SUCCEEDED, JobState.CANCELLED) or not is_whole or not outcome.figures:
        return None
    plan = None
    with contextlib.suppress(OSError, ValueError):
        plan = directory.read_bound_plan(outcome.attempt).plan
    run = measured_run(directory.job_id, plan, outcome, now) if plan is not None else None
    if run is None:
        return None
    try:
        record_run(run)
    except UsageError as fault:
        message = msg("what the job has taken is not kept for estimates to come: {reason}", reason=fault.message)
        return warning("runs-file", directory.job_id, message, fault.hint)
    return None


def measured_run(job_id: str, plan: Plan, outcome: AttemptOutcome, now: float) -> MeasuredRun | None:
    """Return what an attempt has taken; `None` where nothing of it was measured, or the plan has no estimate."""
    basis = plan.cost_basis
    if basis is None:
        return None
    told = {name: figure.measured for name, figure in outcome.figures.items()}
    measured = {name: value for name, value in told.items() if value is not None and 0 < value < math.inf}
    step_s, memory = measured.get(STEP_TIME), measured.get(GPU_MEMORY)
    if step_s is not None and not _counts_same_steps(basis, step_s, measured):
        step_s = None
    if step_s is None and memory is None:
        return None
    return MeasuredRun(
        job=job_id,
        ended_at=now,
        basis=basis,
        step_time_s=step_s,
        memory_bytes=memory * 1e9 if memory is not None else None,
    )


def _counts_same_steps(basis: CostBasis, step_s: float, measured: dict[str, float]) -> bool:
    """Whether a step as ranks count them is one of the plan, by what they say they train on in a second."""
    batch = basis.layout.global_batch
    for name, planned in ((TOKENS, batch * basis.shape.seq_length), (SAMPLES, batch)):
        if name in measured and not 1 / SAME_BATCH <= measured[name] * step_s / planned <= SAME_BATCH:
            return False
    return True
