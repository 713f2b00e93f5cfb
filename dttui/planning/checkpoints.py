"""What of a job's checkpoints outlives what, and what its attempts are told of them. Pure."""

from __future__ import annotations

import posixpath

from dttui.frameworks.registry import traits_of
from dttui.frameworks.traits import Spread
from dttui.i18n import _
from dttui.planning.cost.estimate import Estimate
from dttui.planning.resumption import Resumption
from dttui.spec.checkpoint import Checkpoint
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.models import Job, RecoveryAction

MOST_INTERVAL_S = 86_400.0
"""By default, however seldom hosts fail."""


def resumption_of(job: Job, estimate: Estimate | None) -> Resumption:
    """Return what the commands of a job get besides in an attempt that is not the first, and what checkpoints take."""
    checkpoint, traits = job.recovery.checkpoint, traits_of(job.framework)
    if checkpoint is None:
        return Resumption()
    own, resume = traits.directory_args, checkpoint.resume_args or traits.resume_args
    failures = estimate.failures if estimate is not None else None
    room = None if failures is None else (checkpoint.keep + 1) * failures.checkpoint_bytes
    return Resumption(
        own_args=tuple(own),
        resume_args=tuple(resume),
        copies=0 if checkpoint.shared else checkpoint.copies,
        copy_bytes_per_s=checkpoint.copy_bytes_per_s,
        keep=checkpoint.keep,
        interval_s=checkpoint.interval_s,
        place=checkpoint.dir if checkpoint.copies and not checkpoint.shared else None,
        shared=checkpoint.shared,
        is_kept=True,
        room_bytes=None if room is None else int(room),
    )


def with_interval(job: Job, estimate: Estimate | None) -> Job:
    """Return a job that says how often its checkpoints come, where the estimate tells what loses least."""
    checkpoint = job.recovery.checkpoint
    if checkpoint is None or checkpoint.interval is not None or estimate is None:
        return job
    best = f"{max(1, round(min(estimate.failures.checkpoint_interval_s, MOST_INTERVAL_S)))}s"
    recovery = job.recovery.model_copy(update={"checkpoint": checkpoint.model_copy(update={"interval": best})})
    return job.model_copy(update={"recovery": recovery})


def check_checkpoints(job: Job, nodes: int) -> list[Finding]:
    """Say which losses the job's checkpoints outlive, where another attempt may follow a failure."""
    recovery, key = job.recovery, "recovery.checkpoint"
    may_follow = recovery.action is not RecoveryAction.STOP and recovery.max_restarts > 0
    if not may_follow:
        return []
    checkpoint = recovery.checkpoint
    parts = (
        []
        if nodes < 2 or (checkpoint is not None and checkpoint.shared)
        else _check_parts(job, checkpoint.copies if checkpoint is not None else 0)
    )
    shared = [_of_shared(checkpoint)] if checkpoint is not None and checkpoint.shared else []
    if checkpoint is not None and checkpoint.copies:
        return [*_check_copies(checkpoint, nodes), *shared, *parts]
    if shared:
        return shared
    if nodes < 2:
        message = _(
            "checkpoints lie on the disk of the one host: they outlive what ends a process, not the host's loss"
        )
        return [info("checkpoint-on-one-host", key, message)]
    message = _(
        "checkpoints lie on each host's own disk: they outlive what ends a process, "
        "and where a host is lost, those that it wrote are lost with it"
    )
    hint = _("Write recovery.checkpoint.dir with shared: true, a directory that all hosts see, or with copies: 1.")
    hint = parts[0].hint if parts else hint  # Most parts are not copied.
    return [warning("checkpoint-on-one-host", key, message, hint), *parts]


def _of_shared(checkpoint: Checkpoint) -> Finding:
    message = _("checkpoints in {place} outlive any host of the job, and not the loss of what that directory lies on")
    return info("checkpoint-shared", "recovery.checkpoint.shared", message.format(place=checkpoint.dir))


def _check_parts(job: Job, copies: int) -> list[Finding]:
    """Say from which checkpoints none goes on of which hosts write a part each to disks of their own."""
    traits = traits_of(job.framework)
    if not set(traits.spreads) - {Spread.REPLICAS}:
        return []
    message = _(
        "with {framework} each host may write its own part of a checkpoint: what a lost host wrote is lost with it, "
        "and where none is lost, parts of torch.distributed.checkpoint, DeepSpeed, Megatron-LM and Hugging Face's "
        "Trainer are brought together before another attempt, or loaded as they are where each host marks its own by a "
        "file COMPLETE; from others none goes on"
    )
    if copies:
        message = _(
            "with {framework} each host may write its own part of a checkpoint: parts of torch.distributed.checkpoint, "
            "DeepSpeed, Megatron-LM and Hugging Face's Trainer are copied and brought together, and those that it "
            "marks by a file COMPLETE and loads alone are copied; others are lost with a host"
        )
    hint = _(
        "Write recovery.checkpoint.dir with shared: true, a directory that all hosts see, or let one rank write all."
    )
    told = message.format(framework=job.framework)
    return [warning("checkpoint-in-parts", "recovery.checkpoint", told, hint)]


def _check_copies(checkpoint: Checkpoint, nodes: int) -> list[Finding]:
    key = "recovery.checkpoint.copies"
    if checkpoint.shared:
        return [info("copies-in-vain", key, _("all hosts see the same checkpoints, and none is copied"))]
    if not posixpath.isabs(checkpoint.dir):
        message = _("copies lie in the same place on all hosts: recovery.checkpoint.dir has to be an absolute path")
        return [error("copies-place", "recovery.checkpoint.dir", message)]
    if checkpoint.copies >= nodes:
        message = _("{count} copies want as many other hosts, and the job has {nodes} in all")
        hint = _("Write at most one less than there are nodes.")
        return [warning("too-many-copies", key, message.format(count=checkpoint.copies, nodes=nodes), hint)]
    message = _(
        "each complete checkpoint is copied to {count} of the other hosts: the newest that was copied outlives the "
        "loss of any {count} at once, and not of {more}; where several hosts write a part each of what is complete "
        "only together, it is copied where it is of torch.distributed.checkpoint, DeepSpeed, Megatron-LM or Hugging "
        "Face's Trainer, or marked by a file COMPLETE, and otherwise no host may be lost"
    )
    return [info("checkpoint-copies", key, message.format(count=checkpoint.copies, more=checkpoint.copies + 1))]
