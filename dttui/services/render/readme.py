"""README.md of a rendered directory: what it is, what starts it, what can be changed, what is not in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dttui.frameworks.parts.bundle import Hole
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.services.render.ejection import Ejection


def readme(ejection: Ejection, start: str) -> str:
    """Return the text; `start` says how it is started."""
    plan = ejection.plan
    what = _(
        "{job}, as `dttui render` has written it: {framework}, backend {backend}, world size {size}. It runs with bash "
        "and the interpreter that the script needs; dttui need not be there."
    ).format(job=_cell(plan.job_name), framework=plan.framework, backend=plan.backend, size=plan.world_size)
    parts = [
        f"# {_cell(plan.job_name)}",
        what,
        _nodes(ejection),
        section(_("Start"), start),
        section(_("What can be changed"), _variables(ejection)),
        section(_("What is in it"), _contents(ejection)),
    ]
    if plan.secrets:
        names = ", ".join(f"`{name}`" for name in plan.secrets)
        told = _("Export {names} on every host before run.sh starts; it stops where one is missing.")
        parts.append(section(_("Secrets"), told.format(names=names)))
    needed = {path: None for node in plan.nodes for path in node.required_paths}
    if plan.container is not None:
        needed = {plan.container.engine: None, plan.container.image: None, **needed}
    if needed:
        told = _("On every host there must be: {paths}.").format(paths=", ".join(f"`{clean(item)}`" for item in needed))
        parts.append(section(_("What it needs"), told))
    return "\n\n".join(parts) + "\n"


def section(heading: str, text: str) -> str:
    """Return a section of a README."""
    return f"## {heading}\n\n{text}"


def code(lines: Iterable[str]) -> str:
    """Return lines of a README to be pasted into a shell."""
    return "\n".join(f"    {line}" for line in lines)


def _nodes(ejection: Ejection) -> str:
    rows = []
    for node, environment in zip(ejection.plan.nodes, ejection.environments, strict=True):
        ranks = f"{node.ranks[0]}–{node.ranks[-1]}" if len(node.ranks) > 1 else str(node.ranks[0])
        gpus = str(node.cuda_slots) if not node.simulated else "0"
        rows.append((f"`node{node.node_rank}`", node.name, environment.training_address, ranks, gpus))
    return table((_("directory"), _("node"), _("address"), _("ranks"), "GPUs"), rows)


def _variables(ejection: Ejection) -> str:
    """Return the table of what `run.sh` takes from outside."""
    plan = ejection.plan
    addresses = " ".join(f"`NODE{node.node_rank}_ADDRESS`" for node in plan.nodes)
    rows = [
        (addresses, _("addresses of the nodes, those of the inventory by default; the same on every node")),
        (
            f"`{Hole.MASTER_PORT.value}`",
            _("a port that is free on the master, {port} by default; the same on every node").format(
                port=plan.port_range[0]
            ),
        ),
    ]
    if ports := [f"`NODE{node.node_rank}_PORT`" for node in plan.nodes if node.port_range is not None]:
        rows.append((" ".join(ports), _("a port that is free on the node; the same on every node")))
    rows += [
        (f"`{Hole.PYTHON.value}`", _("the interpreter of a node")),
        (
            f"`{Hole.INTERFACE.value}`",
            _("the network interface of a node, by default the one that leads to the master"),
        ),
    ]
    if any(node.cuda_slots for node in plan.nodes):
        rows.append((f"`{Hole.GPU_IDS.value}`", _("GPUs of a node, by default CUDA_VISIBLE_DEVICES or the first ones")))
    rows.append((f"`{Hole.JOB_ID.value}` `{Hole.ATTEMPT.value}`", _("what the script is told of itself")))
    told = _(
        "Set them from outside, as in `MASTER_PORT=29600 bash node0/run.sh`. All else stands in run.sh, to be edited."
    )
    return f"{told}\n\n" + table((_("variable"), _("what")), rows)


def _contents(ejection: Ejection) -> str:
    lines = [_("`node<k>/run.sh` writes the generated files beside itself, sets the environment and starts the node.")]
    if ejection.work is not None:
        lines.append(_("`work` is the working directory as dttui would have sent it; `node<k>/work` leads there."))
    if ejection.payload:
        lines.append(_("`payload` holds scripts that the framework is started by; they need Python alone."))
    lines.append(
        _("What a run leaves is in `node<k>`: metrics.jsonl, and checkpoints where the job names no other place.")
    )
    lines.append(_("A script may resume from checkpoints of an earlier run there: remove them for a fresh start."))
    lines.append(_("Nothing secret is in it: of secrets the names, of the working directory nothing that is private."))
    return "\n".join(f"- {line}" for line in lines)


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of a README."""
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows)])


def _cell(text: str) -> str:
    return clean(text).replace("|", "\\|").replace("\n", " ")
