"""What of a job's checkpoints outlives what, and what its attempts are told of them. Pure."""

from __future__ import annotations

from dttui.frameworks.registry import traits_of
from dttui.i18n import _
from dttui.planning.cost.estimate import Estimate
from dttui.planning.cost.failure_cost import CHECKPOINT_BANDWIDTH
from dttui.planning.resumption import Resumption
from dttui.spec.findings import Finding, info, warning
from dttui.spec.models import Job, RecoveryAction


def resumption_of(job: Job, estimate: Estimate | None) -> Resumption:
    """Return what the commands of a job get besides in an attempt that is not the first, and what checkpoints take."""
    checkpoint, traits = job.recovery.checkpoint, traits_of(job.framework)
    if checkpoint is None:
        return Resumption()
    own, resume = traits.directory_args, checkpoint.resume_args or traits.resume_args
    failures = estimate.failures if estimate is not None else None
    room = None if failures is None else (checkpoint.keep + 1) * failures.checkpoint_s * CHECKPOINT_BANDWIDTH
    return Resumption(
        own_args=tuple(own),
        resume_args=tuple(resume),
        shared=checkpoint.shared,
        room_bytes=None if room is None else int(room),
    )


def check_checkpoints(job: Job, nodes: int) -> list[Finding]:
    """Say which losses the job's checkpoints outlive, where another attempt may follow a failure."""
    recovery, key = job.recovery, "recovery.checkpoint"
    may_follow = recovery.action is not RecoveryAction.STOP and recovery.max_restarts > 0
    if not may_follow or (recovery.checkpoint is not None and recovery.checkpoint.shared):
        return []
    if nodes < 2:
        message = _(
            "checkpoints lie on the disk of the one host: they outlive what ends a process, not the host's loss"
        )
        return [info("checkpoint-on-one-host", key, message)]
    message = _(
        "checkpoints lie on each host's own disk: they outlive what ends a process, "
        "and where a host is lost, those that it wrote are lost with it"
    )
    hint = _("Write recovery.checkpoint.dir, a directory that all hosts see, and shared: true beside it.")
    return [warning("checkpoint-on-one-host", key, message, hint)]
