"""What of a job's `recovery` cannot be done, and what is said there in vain. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dttui.frameworks import traits_of
from dttui.frameworks.base import Framework
from dttui.frameworks.parts.elastic import ElasticOptions
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.planning.recovery import LEAST_HANG_S, LEAST_HEARTBEAT_S, LEAST_STRAGGLER_S
from dttui.planning.reserves import check_reserves
from dttui.planning.roster import Member
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.models import Job, Recovery, RecoveryAction
from dttui.spec.problems import PathKey

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
        *_check_alerts(job),
        *_check_hang(recovery),
        *_check_straggler(recovery, framework),
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


def _check_alerts(job: Job) -> Iterator[Finding]:
    """Name the alerts that are to restart the job where no other attempt follows."""
    if job.recovery.action is not RecoveryAction.STOP and job.recovery.max_restarts:
        return
    for index, alert in enumerate(job.monitoring.alerts):
        if alert.action == "restart":
            message = _("an alert is to restart the job, and recovery allows no other attempt: it is only told")
            hint = _("Write recovery.on_node_failure: restart and recovery.max_restarts, or leave the action out.")
            path: PathKey = ("monitoring", "alerts", index, "action")
            yield warning("recovery-in-vain", f"monitoring.alerts[{index}].action", message, hint, path=path)


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
    taken = _("{name} takes part already, and cannot be a spare besides")
    yield from check_reserves("spare", recovery.spares, inventory, members, (_SECTION, "spares"), taken)


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


def _check_hang(recovery: Recovery) -> Iterator[Finding]:
    path: PathKey = (_SECTION, "on_hang")
    for key, seconds in (("hang_s", recovery.hang_s), ("hang_first_s", recovery.hang_first_s)):
        if seconds is not None and seconds < LEAST_HANG_S:
            message = _("{key} is {seconds:g}, and counts as {least:g}: lines take their time to come from busy hosts")
            told = message.format(key=key, seconds=seconds, least=LEAST_HANG_S)
            yield warning("hang-short", f"{_SECTION}.{key}", told, path=(_SECTION, key))
    if recovery.hang_s is not None and recovery.hang_first_s is None:
        message = _(
            "nothing is a hang before the first step, and in a script that reports none: hang_first_s is not given"
        )
        hint = _("Write hang_first_s: 1800, say: longer than it loads and compiles without a line.")
        yield info("hang-first", f"{_SECTION}.hang_s", message, hint, path=(_SECTION, "hang_s"))
    if recovery.hang_s is None and recovery.hang_first_s is None:
        if "on_hang" in recovery.model_fields_set:
            message = _("without effect, since neither hang_s nor hang_first_s is given: {keys}")
            yield _finding(message, ["on_hang"], _("Write hang_s: 600, say."))
    elif recovery.on_hang == "restart" and not (recovery.max_restarts and recovery.action is not RecoveryAction.STOP):
        message = _("a hang ends the job: no other attempt follows a failure")
        hint = _("Write on_node_failure: restart, or on_hang: report.")
        yield warning("hang-ends-job", f"{_SECTION}.on_hang", message, hint, path=path)


def _check_straggler(recovery: Recovery, framework: Framework | None) -> Iterator[Finding]:
    if recovery.on_straggler == "replace":
        hint = _("It wants straggler_s, on_node_failure: replace, and spares.")
        lacks = [] if recovery.straggler_s is not None else ["straggler_s"]
        lacks += [] if recovery.action is RecoveryAction.REPLACE else ["on_node_failure: replace"]
        lacks += [] if recovery.spares else ["spares"]
        if lacks:
            message = _("on_straggler: replace replaces nobody without {keys}").format(keys=", ".join(lacks))
            path: PathKey = (_SECTION, "on_straggler")
            yield warning("straggler-in-vain", f"{_SECTION}.on_straggler", message, hint, path=path)
    if recovery.straggler_s is not None and recovery.straggler_s < LEAST_STRAGGLER_S:
        message = _("straggler_s is {seconds:g}, and counts as {least:g}: ranks are asked four times in it")
        told = message.format(seconds=recovery.straggler_s, least=LEAST_STRAGGLER_S)
        yield warning("straggler-short", f"{_SECTION}.straggler_s", told, path=(_SECTION, "straggler_s"))
    traits = traits_of(framework.name) if framework is not None else None
    if recovery.straggler_s is not None and traits and not (traits.uses_torch and traits.process_group.is_torchs):
        message = _("the ranks of {framework} cannot be asked who waits for whom: one is named by the steps that it "
                    "reports, or by its GPU; where ranks train in step, all take as long for a step")  # fmt: skip
        told = message.format(framework=framework.label if framework is not None else "")
        hint = _("Have every rank report its steps to DTTUI_METRICS; of ranks in step `dttui stacks` tells more.")
        yield warning("straggler-by-steps", f"{_SECTION}.straggler_s", told, hint, path=(_SECTION, "straggler_s"))


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
