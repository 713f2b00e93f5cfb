"""README.md of a rendered directory: what it is, what starts it, what can be changed, what is not in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dttui.export.contents import Export
from dttui.frameworks import get_framework
from dttui.frameworks.bundle import Hole
from dttui.frameworks.parts.nccl import RDMA_VARIABLES
from dttui.i18n import _, ngettext
from dttui.planning.models import Plan
from dttui.sanitize import clean
from dttui.words import listed

MAX_NAMES = 8
"""Interpreters that are named; the others are counted."""


def readme(export: Export, start: str, *, by_slurm: bool = False) -> str:
    """Return the text.

    Args:
        export: the job.
        start: says how it is started.
        by_slurm: whether hosts and ports are those that Slurm's job has, not the inventory's.
    """
    plan = export.plan
    what = _(
        "{job}, as `dttui render` has written it: {framework}, backend {backend}, world size {size}. It runs with bash "
        "and the interpreter that the script needs; dttui need not be there."
    ).format(job=_cell(plan.job_name), framework=plan.framework, backend=plan.backend, size=plan.world_size)
    parts = [
        f"# {_cell(plan.job_name)}",
        what,
        _nodes(export),
        section(_("Start"), start),
        section(
            _("What can be changed"),
            "\n\n".join(filter(None, [_variables(export, by_slurm=by_slurm), left_to_nccl(plan)])),
        ),
        section(_("What is in it"), _contents(export)),
    ]
    if plan.secrets:
        names = ", ".join(f"`{name}`" for name in plan.secrets)
        told = _("Export {names} where run.sh is started, before it is; it stops where one is missing.")
        parts.append(section(_("Secrets"), told.format(names=names)))
    parts.append(section(_("What it needs"), _needs(plan)))
    return "\n\n".join(parts) + "\n"


def packages_needed(plan: Plan) -> str:
    """Return what the interpreter of a job has to have, as the end of a sentence."""
    packages = get_framework(plan.framework).requires
    if not packages:
        return _("what the script imports")
    return _("{packages}, and what else the script imports").format(packages=", ".join(packages))


def _needs(plan: Plan) -> str:
    lines = []
    if _is_used(plan, Hole.PYTHON):
        told = _("The interpreter is {python} where `PYTHON` names no other; it has to have {packages}.")
        lines.append(told.format(python=_pythons(plan), packages=packages_needed(plan)))
    needed = {path: None for node in plan.nodes for path in node.required_paths}
    if plan.container is not None:
        needed = {plan.container.engine: None, plan.container.image: None, **needed}
    if needed:
        told = ngettext("On the host there must be: {paths}.", "On every host there must be: {paths}.", len(plan.nodes))
        lines.append(told.format(paths=", ".join(f"`{clean(item)}`" for item in needed)))
    return "\n".join(f"- {line}" for line in lines or [_("Nothing but bash and what the job runs.")])


def _pythons(plan: Plan) -> str:
    """Return the interpreters that nodes have by default."""
    found = dict.fromkeys(plan.python_inside or node.python for node in plan.nodes)
    return listed([f"`{clean(path)}`" for path in found], MAX_NAMES)


def left_to_nccl(plan: Plan) -> str | None:
    """Return which settings of NCCL nobody could derive, since no host was asked; `None` where there are none."""
    if plan.backend != "nccl" or len(plan.nodes) < 2 or RDMA_VARIABLES & set(plan.own_variables):
        return None
    return _(
        "No host was asked which InfiniBand and RoCE ports it has: `NCCL_IB_HCA` and `NCCL_IB_DISABLE` are not set, "
        "and NCCL chooses by itself. Where nodes have unequal ports, write one of them into run.env of the job."
    )


def section(heading: str, text: str) -> str:
    """Return a section of a README."""
    return f"## {heading}\n\n{text}"


def code(lines: Iterable[str]) -> str:
    """Return lines of a README to be pasted into a shell."""
    return "\n".join(f"    {line}" for line in lines)


def _nodes(export: Export) -> str:
    rows = []
    for node, environment in zip(export.plan.nodes, export.environments, strict=True):
        ranks = f"{node.ranks[0]}–{node.ranks[-1]}" if len(node.ranks) > 1 else str(node.ranks[0])
        gpus = str(node.cuda_slots) if not node.simulated else "0"
        rows.append((f"`node{node.node_rank}`", node.name, environment.training_address, ranks, gpus))
    return table((_("directory"), _("node"), _("address"), _("ranks"), "GPUs"), rows)


def _variables(export: Export, *, by_slurm: bool) -> str:
    """Return the table of what `run.sh` takes from outside."""
    plan = export.plan
    is_alone = len(plan.nodes) == 1
    rows = []
    if not is_alone:
        addresses = " ".join(f"`NODE{node.node_rank}_ADDRESS`" for node in plan.nodes)
        told = _("addresses of the nodes, those of the inventory by default; the same on every node")
        rows.append((addresses, _("addresses of the nodes, by default those that Slurm gives") if by_slurm else told))
    told = _("a port that is free on the master, {port} by default; the same on every node")
    if by_slurm:
        told = _("a port that is free on the master, by default drawn from the number of Slurm's job")
    elif is_alone:
        told = _("a port that is free there, {port} by default")
    rows.append((f"`{Hole.MASTER_PORT.value}`", told.format(port=plan.port_range[0])))
    ports = [f"`NODE{node.node_rank}_PORT`" for node in plan.nodes if node.port_range is not None]
    if ports and not is_alone:
        rows.append((" ".join(ports), _("a port that is free on the node; the same on every node")))
    leading = _("the network interface of a node, by default the one that leads to the master")
    interface = _("the network interface, by default loopback") if is_alone else leading
    python = _("the interpreter of a node, by default {python}").format(python=_pythons(plan))
    told_of = {Hole.PYTHON: python, Hole.INTERFACE: interface}
    rows += [(f"`{hole.value}`", what) for hole, what in told_of.items() if _is_used(plan, hole)]
    if any(node.cuda_slots for node in plan.nodes):
        rows.append((f"`{Hole.GPU_IDS.value}`", _("GPUs of a node, by default CUDA_VISIBLE_DEVICES or the first ones")))
    rows.append((f"`{Hole.JOB_ID.value}` `{Hole.ATTEMPT.value}`", _("what the script is told of itself")))
    told = _("Set them from outside, as in `{command}`. All else stands in run.sh, to be edited.").format(
        command="MASTER_PORT=29600 " + ("sbatch job.sbatch" if by_slurm else "bash node0/run.sh")
    )
    return f"{told}\n\n" + table((_("variable"), _("what")), rows)


def _is_used(plan: Plan, hole: Hole) -> bool:
    """Whether what runs on the master, which is like the others, depends on it."""
    processes = plan.nodes[0].processes
    return any(str(hole) in text for item in processes for text in (*item.argv, *item.env.values()))


def _contents(export: Export) -> str:
    one = "node0" if len(export.plan.nodes) == 1 else "node<k>"
    told = _("`{node}/run.sh` writes the generated files beside itself, sets the environment and starts the node.")
    lines = [told.format(node=one)]
    if export.work is not None:
        told = _("`work` is the working directory as dttui would have sent it; `{node}/work` leads there.")
        lines.append(told.format(node=one))
    if export.payload:
        lines.append(
            _(
                "`payload` holds scripts that the framework is started by; they need Python alone, and torch for those "
                "of torchrun."
            )
        )
    told = _("What a run leaves is in `{node}`: metrics.jsonl, and checkpoints where the job names no other place.")
    lines.append(told.format(node=one))
    lines.append(_("A script may resume from checkpoints of an earlier run there: remove them for a fresh start."))
    lines.append(_("Nothing secret is in it: of secrets the names, of the working directory nothing that is private."))
    return "\n".join(f"- {line}" for line in lines)


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of a README."""
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows)])


def _cell(text: str) -> str:
    return clean(text).replace("|", "\\|").replace("\n", " ")
