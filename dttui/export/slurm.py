"""The target `slurm`: one batch script that starts the `run.sh` of every node, on hosts that Slurm chooses."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from dttui.export.contents import Export
from dttui.export.process_start import several
from dttui.export.readme import code, readme
from dttui.export.rendered import Rendered
from dttui.export.scripts import node_files
from dttui.export.shell import comment, in_quotes
from dttui.frameworks.bundle import Hole, address_hole, port_hole
from dttui.i18n import _
from dttui.planning.models import PlannedNode

_HOSTS = """\
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")"""
_HOSTS_OF_GROUPS = """\
mapfile -t hosts < <(for ((group = 0; group < SLURM_HET_SIZE; group++)); do
  list=SLURM_JOB_NODELIST_HET_GROUP_$group
  scontrol show hostnames "${!list}"
done)"""
_SRUN = "srun --kill-on-bad-exit=1 --cpu-bind=none"
_SERVING_OUTPUT = "$SLURM_JOB_NAME-$SLURM_JOB_ID-serving.out"


@dataclass(frozen=True)
class _Request:
    """What is asked of Slurm for one node."""

    gpus: int
    cpus: int
    memory_mib: int | None

    def options(self, node_count: int) -> str:
        words = [f"--nodes={node_count}", "--ntasks-per-node=1"]
        words += [f"--gpus-per-node={self.gpus}"] if self.gpus else []
        words.append(f"--cpus-per-task={self.cpus}")
        words += [f"--mem={self.memory_mib}M"] if self.memory_mib is not None else []
        return " ".join(words)


@dataclass(frozen=True)
class _Group:
    """Nodes, one after the other, for which the same is asked: one part of a heterogeneous job, or all of another."""

    request: _Request
    nodes: tuple[PlannedNode, ...]


def render_slurm(export: Export) -> list[Rendered]:
    """Return the directories of all nodes, the batch script, and a README."""
    return [
        *node_files(export),
        Rendered("job.sbatch", _batch_script(export), executable=True),
        Rendered("README.md", readme(export, _start(export), by_slurm=True)),
    ]


def _batch_script(export: Export) -> str:
    groups = _groups(export)
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={export.name} --output=%x-%j.out",
        f"#SBATCH {groups[0].request.options(len(groups[0].nodes))}",
    ]
    for group in groups[1:]:
        lines += ["#SBATCH hetjob", f"#SBATCH {group.request.options(len(group.nodes))}"]
    why = _("What your cluster asks for besides goes before it: sbatch --partition=NAME --time=1:00:00 job.sbatch")
    misplaced = shlex.quote("job.sbatch: " + _("submit it from the directory in which it lies"))
    cpus = _(
        "CPUs: what the job asks for, else what the inventory declares, else one a rank. Slurm itself would give one."
    )
    lines += [
        comment(why),
        comment(cpus),
        "set -euo pipefail",
        'cd "$SLURM_SUBMIT_DIR"',
        f"[ -f node0/run.sh ] || {{ echo {misplaced} >&2; exit 2; }}",
        "",
        comment(_("What run.sh of each node is to know of this allocation. Set from outside, each of these wins.")),
        *([_HOSTS_OF_GROUPS if len(groups) > 1 else _HOSTS] if len(export.plan.nodes) > 1 else []),
        *_exports(export),
        "",
        *_steps(export, groups),
    ]
    return "\n".join(lines) + "\n"


def _groups(export: Export) -> list[_Group]:
    """Return the nodes by what is asked for them; where that differs, they are a heterogeneous job, in order of rank.

    A step of such a job is of whole groups: there, nodes that only serve are groups of their own.
    """
    asked = [(_request(export, node), node) for node in export.plan.nodes]
    is_mixed = len({request for request, _node in asked}) > 1
    found = groupby(asked, lambda item: (item[0], is_mixed and item[1].serves_only))
    return [_Group(request, tuple(node for _request, node in same)) for (request, _serves), same in found]


def _steps(export: Export, groups: Sequence[_Group]) -> list[str]:
    """Return what starts all nodes; those that only serve in a step of their own, which ends with the other."""
    nodes = export.plan.nodes
    serving = [node for node in nodes if node.serves_only]
    if not serving:
        het = [f"--het-group=0-{len(groups) - 1}"] if len(groups) > 1 else []
        told = _("One task a node, on all CPUs that the job has there; the first that fails ends the others.")
        if len(nodes) == 1:
            return [comment(_("One task, on all CPUs that the job has there.")), f"{_SRUN} bash node0/run.sh"]
        run = "bash -c 'exec bash \"node$SLURM_PROCID/run.sh\"'"
        return [comment(told), " ".join([_SRUN, *het, "--label", run])]
    told = _("One task a node, on all CPUs that the job has there; the first that fails ends all.")
    apart = _(
        "Nodes that only serve the others are a step of their own, which is ended once the others have ended well."
    )
    output = f'"{_SERVING_OUTPUT}"'
    commands = {
        "serving": f"{_step(serving, groups)} >{output} 2>&1",
        "training": _step([node for node in nodes if not node.serves_only], groups),
    }
    failed = "job.sbatch: " + in_quotes(
        _("step {name} ended with {code}; what nodes that only serve said is in {file}")
    )
    return [
        comment(told),
        comment(apart),
        several(commands, ["serving"], failed.format(name="$name", code="$code", file=_SERVING_OUTPUT)),
    ]


def _step(nodes: Sequence[PlannedNode], groups: Sequence[_Group]) -> str:
    """Return what starts some of the nodes; tasks of a step are in the order of its hosts, which is that of ranks."""
    if len(groups) > 1:
        chosen = [str(index) for index, group in enumerate(groups) if group.nodes[0] in nodes]
        where = f"--het-group={','.join(chosen)}"
    else:
        hosts = ",".join(f"${{hosts[{node.node_rank}]}}" for node in nodes)
        where = f'--nodelist="{hosts}" --nodes={len(nodes)} --ntasks={len(nodes)}'
    ranks = " ".join(str(node.node_rank) for node in nodes)
    run = 'nodes=("$@"); exec bash "node${nodes[SLURM_PROCID]}/run.sh"'
    return f"{_SRUN} {where} --label \\\n  bash -c '{run}' bash {ranks}"


def _exports(export: Export) -> list[str]:
    nodes = export.plan.nodes
    names = [address_hole(node.node_rank) for node in nodes]
    found = [(name, f"${{hosts[{index}]}}") for index, name in enumerate(names)] if len(nodes) > 1 else []
    ports = [port_hole(node.node_rank) for node in nodes if node.port_range is not None and node.node_rank > 0]
    count = len(ports) + 1
    first, last = export.plan.port_range
    choices = max(1, last - first + 2 - count)
    # Jobs that follow each other may share a host, and then need different ports.
    drawn = f"SLURM_JOB_ID * {count} % {choices}" if count > 1 else f"SLURM_JOB_ID % {choices}"
    found.append((Hole.MASTER_PORT.value, f"$(({first} + {drawn}))"))
    found += [(name, f"$((MASTER_PORT + {index}))") for index, name in enumerate(ports, start=1)]
    found.append((Hole.JOB_ID.value, f"{export.name}-$SLURM_JOB_ID"))
    found.append((Hole.ATTEMPT.value, "${SLURM_RESTART_COUNT:-0}"))
    return [f'export {name}="${{{name}:-{value}}}"' for name, value in found]


def _request(export: Export, node: PlannedNode) -> _Request:
    """Return what the job asks of a node; what the node itself does not say, the job's `resources` do."""
    cores, memory = export.asked_of(node)
    # The same for all nodes with so many GPUs, so that they are one group.
    alike = (item.slots for item in export.plan.nodes if item.cuda_slots == node.cuda_slots)
    cores = cores or export.declared_for(node)[0] or max(alike)
    return _Request(node.cuda_slots, cores, math.ceil(memory / 2**20) if memory is not None else None)


def _start(export: Export) -> str:
    """Return how it is submitted, and where what it writes will be."""
    nodes = export.plan.nodes
    where = _("Have this directory on a file system that all nodes see, and in it run:")
    then = _("Slurm chooses the hosts: the addresses above do not count.")
    output = _("What nodes write is in `{file}`, each line after the number of its node.")
    if len(nodes) == 1:
        where = _("Have this directory on a file system that the node sees, and in it run:")
        then = _("Slurm chooses the host: the address above does not count.")
        output = _("What the job writes is in `{file}`.")
    more = _("What your cluster asks for besides goes before it: `sbatch --partition=NAME --time=1:00:00 job.sbatch`.")
    if len(_groups(export)) > 1:
        more += " " + _(
            "That holds for all groups of this heterogeneous job; in job.sbatch each would have to have it."
        )
    then += " " + _("`squeue` and `scancel` go on from there.")
    parts = [where, code(["sbatch job.sbatch"]), more, then, output.format(file=f"{export.name}-<id>.out")]
    if serving := [f"`node{node.node_rank}`" for node in nodes if node.serves_only]:
        told = _(
            "Nodes that only serve the others, {nodes}, are ended once these have ended well. What they write, numbered"
            " among themselves, is in `{file}`."
        )
        parts.append(told.format(nodes=", ".join(serving), file=f"{export.name}-<id>-serving.out"))
    return "\n\n".join(parts)
