"""Whether a host's agent can do what a job cannot do without: older ones know less. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dtagent.protocol.greeting import HelloReply

from dttui.i18n import _
from dttui.planning.models import Plan, PlannedNode, PlannedProcess
from dttui.spec.findings import Finding, error


def requires_group(plan: Plan) -> bool:
    """Whether a job fails where its ranks are not seen to form one process group."""
    return plan.require_process_group is True and plan.world_size > 1


def too_old_for(
    hello: HelloReply | None,
    processes: Sequence[PlannedProcess],
    *,
    is_elastic: bool,
    requires_group: bool,
    fences_itself: bool,
    names_gpus: bool,
) -> str:
    """Return in words, with `{host}`, what an agent lacks that a job needs; empty where it lacks nothing.

    Args:
        hello: what the agent said of itself; `None` where it has said nothing.
        processes: to be started there.
        is_elastic: whether nodes may leave and join while the job runs.
        requires_group: whether the job fails where its ranks are not seen to form one process group.
        fences_itself: whether hosts are to end their ranks by themselves when nobody asks after them.
        names_gpus: whether the job names the GPUs that it wants there.
    """
    if any(item.is_service for item in processes) and not (hello is not None and hello.ends_services):
        return _("{host}: its agent is too old for this framework: it would never end what only serves others")
    if any(item.engine_words for item in processes) and not (hello is not None and hello.removes_containers):
        return _("{host}: its agent is too old for containers: it would never remove one")
    if is_elastic and not (hello is not None and hello.seals_rendezvous):
        return _("{host}: its agent is too old for an elastic job: the rendezvous would run anybody's code")
    if is_elastic and not (hello is not None and hello.gathers_rounds):
        return _("{host}: its agent is too old for an elastic job: the others could wait for it without end")
    if requires_group and not (hello is not None and hello.tells_groups):
        return _("{host}: its agent is too old for require_process_group: true: it does not tell of groups")
    if fences_itself and not (hello is not None and hello.fences_itself):
        return _("{host}: its agent is too old for recovery.self_fence_s: it would never end ranks by itself")
    if names_gpus and not (hello is not None and hello.takes_named_gpus):
        return _("{host}: its agent is too old for resources.gpu.ids: it would give any GPUs that are free")
    return ""


def age_findings(hello: HelloReply | None, node: PlannedNode, plan: Plan) -> list[Finding]:
    """Return as an error of a node what its agent lacks that a plan needs."""
    lack = too_old_for(
        hello,
        node.processes,
        is_elastic=plan.min_nodes is not None,
        requires_group=requires_group(plan),
        fences_itself=plan.recovery.self_fence_s is not None,
        names_gpus=bool(node.gpu_ids),
    )
    hint = _("Upgrade it: dttui agents deploy {host}").format(host=node.name)
    return [error("agent-too-old", node.name, lack.format(host=node.name), hint)] if lack else []
