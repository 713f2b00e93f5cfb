"""A plan as it is printed: as data, and for a person to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dttui.cli.estimate_text import gap_lines
from dttui.cli.printing import distributed_info
from dttui.frameworks import IN_FULL, reason
from dttui.i18n import _, in_a_row, ngettext
from dttui.planning import Aggregate, Plan
from dttui.planning.cost_text import memory_text, step_text
from dttui.sanitize import clean
from dttui.spec import format_bytes
from dttui.words import gpu_numbers, process_name


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as data: each node with its GPUs, its first command and that command's environment beside it."""
    document = plan.model_dump(mode="json", context=IN_FULL)
    document["distributed"] = distributed_info(plan)
    document["aggregate"]["is_distributed"] = document["distributed"]["is_distributed"]
    for node in document["nodes"]:
        first = node["processes"][0] if node["processes"] else {"argv": [], "env": {}}
        node["gpus"] = node["slots"] if node["cuda_slots"] or node["simulated"] else 0
        node["command"], node["env"] = first["argv"], first["env"]
    return document


def plan_text(plan: Plan) -> str:
    """Return a plan for a person to read: the sum, then each node with its command."""
    total = plan.aggregate
    lines = [
        ngettext(
            "{name}: {framework}, backend {backend}, world size {size} on {count} node",
            "{name}: {framework}, backend {backend}, world size {size} on {count} nodes",
            len(plan.nodes),
        ).format(
            name=plan.job_name,
            framework=plan.framework or _("no framework"),
            backend=plan.backend,
            size=plan.world_size,
            count=len(plan.nodes),
        ),
        " · ".join(_totals(total)),
    ]
    if plan.estimate is not None:
        needs = _("{memory} a GPU").format(memory=memory_text(plan.estimate))
        share = _("{share} communication").format(share=f"{plan.estimate.communication_share:.0%}")
        step = _("{time} a step").format(time=step_text(plan.estimate))
        lines.append(_("estimate: {what}").format(what=" · ".join([needs, step, share])))
        lines += [f"  {line}" for line in gap_lines(plan.estimate)]
    lines.append(
        _("rendezvous within {seconds:g} s · at most {size} of each log kept on a host").format(
            seconds=plan.rendezvous_timeout_s, size=format_bytes(plan.log_cap_bytes)
        )
    )
    shown = plan.nodes[:1] if plan.by_count else plan.nodes
    for node in shown:
        mark = "★" if node.node_rank == 0 else " "
        ranks = f"{node.ranks[0]}–{node.ranks[-1]}" if len(node.ranks) > 1 else f"{node.ranks[0]}"
        simulated = _(" (simulated GPUs)") if node.simulated else ""
        lines.append(
            f"{mark} {node.node_rank} {node.name}  {node.address}  "
            + (_("ranks {ranks}") if len(node.ranks) > 1 else _("rank {ranks}")).format(ranks=ranks)
            + simulated
            + (_(", GPU {ids}").format(ids=gpu_numbers(node.gpu_ids)) if node.gpu_ids else "")
        )
        for process in node.processes:
            lines.append(f"      {process_name(process.name)}: {' '.join(process.argv)}")
    if more := len(plan.nodes) - len(shown):
        lines.append(_("… and {count} more").format(count=more))
    lines += _variables(plan)
    return clean("\n".join(lines))


def _totals(total: Aggregate) -> Iterator[str]:
    """Yield what the nodes add up to, and nothing of what the inventory does not say."""
    gpus = total.gpu_count if total.gpus_known else f"≥{total.gpu_count}" if total.gpu_count else "?"
    types = ", ".join(f"{count}×{name}" for name, count in total.gpu_types.items())
    yield (_("GPUs {gpus} ({types})") if types else _("GPUs {gpus}")).format(gpus=gpus, types=types)
    if total.gpu_memory_bytes is not None:
        yield _("GPU memory {memory} GB").format(memory=f"{total.gpu_memory_bytes / 1e9:.0f}")
    if total.cpu_count is not None:
        yield _("CPUs {cpus}").format(cpus=total.cpu_count)
    if total.memory_bytes is not None:
        yield _("memory {memory} GB").format(memory=f"{total.memory_bytes / 1e9:.0f}")
    if total.zones:
        yield _("zones: {zones}").format(zones=in_a_row(total.zones))


def _variables(plan: Plan) -> Iterator[str]:
    """Yield the variables that have a reason to be told: those that all nodes have alike, then what differs."""
    nodes = [
        {name: (value, reason(name, value, plan.own_variables)) for name, value in node.processes[-1].env.items()}
        for node in plan.nodes
        if node.processes
    ]
    told = {name: value for node in nodes for name, value in node.items() if value[1]}
    if told:
        yield _("variables (all others: --output json):")
    for name, (value, why) in told.items():
        if all(node.get(name) == (value, why) for node in nodes):
            yield f"      {name}={value}  # {why}"
        else:
            for planned in plan.nodes:
                if planned.processes and name in (env := planned.processes[-1].env):
                    yield f"      {planned.name}: {name}={env[name]}  # {why}"
