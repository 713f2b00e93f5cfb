"""What of a job's `recovery` cannot be done, and what is said there in vain. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dttui.frameworks.base import Framework
from dttui.frameworks.parts.elastic import ElasticOptions
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.planning.recovery import LEAST_HEARTBEAT_S
from dttui.planning.roster import Member
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.models import Job, Recovery, RecoveryAction
from dttui.spec.problems import PathKey, did_you_mean

_SECTION = "recovery"


def check_recovery(
    job: Job, inventory: Inventory, members: Sequence[Member], framework: Framework | None
) -> list[Finding]:
    """Return what of a job's `recovery` cannot be done, and what is said there in vain."""
    recovery = job.recovery
    return [
        *_in_vain(recovery),
        *_check_spares(recovery, inventory, members),
        *_check_min_nodes(recovery, len(members)),
        *_check_continue(recovery, framework),
        *_check_causes(recovery),
        *_check_heartbeat(recovery),
        *_check_fence(recovery),
    ]


def _in_vain(recovery: Recovery) -> Iterator[Finding]:
    """Name what has no effect beside the rest of the section."""
    action = recovery.action
    written = [name for name in ("max_restarts", "spares", "min_nodes", "retry_on", "no_retry_on")
               if name in recovery.model_fields_set and getattr(recovery, name)]  # fmt: skip
    if action is RecoveryAction.STOP and written:
        message = _("without effect, since on_node_failure is stop: {keys}")
        hint = _("Write on_node_failure: restart, or leave them out.")
        yield _finding(message, written, hint)
        return
    if action is not RecoveryAction.REPLACE and recovery.spares:
        message = _("without effect, since on_node_failure is not replace: {keys}")
        yield _finding(message, ["spares"], _("Write on_node_failure: replace."))
    if action is not RecoveryAction.STOP and not recovery.max_restarts:
        message = _("max_restarts is 0: no other attempt follows a failure")
        yield info("recovery-in-vain", f"{_SECTION}.max_restarts", message, path=(_SECTION, "max_restarts"))


def _finding(message: str, keys: Sequence[str], hint: str) -> Finding:
    named = ", ".join(f"{_SECTION}.{key}" for key in keys)
    path: PathKey = (_SECTION, keys[0])
    return warning("recovery-in-vain", f"{_SECTION}.{keys[0]}", message.format(keys=named), hint, path=path)


def _check_spares(recovery: Recovery, inventory: Inventory, members: Sequence[Member]) -> Iterator[Finding]:
    subject = f"{_SECTION}.spares"
    if recovery.action is RecoveryAction.REPLACE and not recovery.spares:
        message = _("a node can be replaced only where there is a spare")
        hint = _("Name environments that wait for that: spares: [gpu7, gpu8].")
        yield error("replace-needs-spares", subject, message, hint, path=(_SECTION, "on_node_failure"))
    taken = {member.name for member in members}
    most = max((member.slots for member in members), default=0)
    for index, spare in enumerate(recovery.spares):
        path: PathKey = (_SECTION, "spares", index)
        environment = inventory.find(spare)
        if environment is None:
            names = [key for item in inventory.environments for key in (item.name, item.id) if key is not None]
            message = _("there is no environment {name}").format(name=spare)
            yield error("unknown-spare", spare, message, did_you_mean(spare, names), path=path)
            continue
        if environment.name in taken:
            message = _("{name} takes part already, and cannot be a spare besides").format(name=environment.name)
            yield error("same-environment", spare, message, _("Name each environment once."), path=path)
        taken.add(environment.name)
        gpu = environment.resources.gpu
        if gpu is not None and gpu.count < most:
            message = _("{name} has {count} GPUs, and a node of the job uses {most}: it can take no such node's place")
            yield warning(
                "small-spare", spare, message.format(name=environment.name, count=gpu.count, most=most), path=path
            )


def _check_min_nodes(recovery: Recovery, count: int) -> Iterator[Finding]:
    if recovery.min_nodes is not None and recovery.min_nodes > count:
        message = _("min_nodes is {least}, and the job has {count}").format(least=recovery.min_nodes, count=count)
        hint = _("Write at most the number of nodes.")
        yield error("min-nodes", f"{_SECTION}.min_nodes", message, hint, path=(_SECTION, "min_nodes"))


def _check_causes(recovery: Recovery) -> Iterator[Finding]:
    for index, cause in enumerate(recovery.no_retry_on):
        if cause in recovery.retry_on:
            message = _("{cause} is under retry_on and no_retry_on").format(cause=cause)
            hint = _("Leave it out of one of them.")
            path: PathKey = (_SECTION, "no_retry_on", index)
            yield error("retried-or-not", f"{_SECTION}.no_retry_on", message, hint, path=path)


def _check_heartbeat(recovery: Recovery) -> Iterator[Finding]:
    if recovery.heartbeat_s < LEAST_HEARTBEAT_S:
        message = _("heartbeat_s is {seconds:g}, and counts as {least:g}: a busy host would be taken for a lost one")
        told = message.format(seconds=recovery.heartbeat_s, least=LEAST_HEARTBEAT_S)
        yield warning("heartbeat-short", f"{_SECTION}.heartbeat_s", told, path=(_SECTION, "heartbeat_s"))


def _check_fence(recovery: Recovery) -> Iterator[Finding]:
    least = max(recovery.heartbeat_s, LEAST_HEARTBEAT_S)
    if recovery.self_fence_s is not None and recovery.self_fence_s < least:
        message = _("self_fence_s is {seconds:g}, and counts as {least:g}, as heartbeat_s: hosts that are heard of "
                    "would end their ranks")  # fmt: skip
        told = message.format(seconds=recovery.self_fence_s, least=least)
        yield warning("fence-short", f"{_SECTION}.self_fence_s", told, path=(_SECTION, "self_fence_s"))


def _check_continue(recovery: Recovery, framework: Framework | None) -> Iterator[Finding]:
    if recovery.action is not RecoveryAction.CONTINUE or framework is None:
        return
    if not issubclass(framework.options, ElasticOptions):
        message = _("the framework {name} cannot go on without a node: its ranks are started once").format(
            name=framework.name
        )
        hint = _("Write on_node_failure: restart and min_nodes: another attempt then goes on with fewer nodes.")
        path: PathKey = (_SECTION, "on_node_failure")
        yield error("continue-framework", f"{_SECTION}.on_node_failure", message, hint, path=path)
