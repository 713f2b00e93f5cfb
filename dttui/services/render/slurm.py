"""The target `slurm`: one batch script that starts the `run.sh` of every node, on hosts that Slurm chooses."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from itertools import groupby

from dttui.frameworks.parts.bundle import Hole, address_hole, port_hole
from dttui.i18n import _
from dttui.planning.models import PlannedNode
from dttui.services.render.ejection import Ejection
from dttui.services.render.readme import readme
from dttui.services.render.rendered import Rendered
from dttui.services.render.scripts import node_files
from dttui.services.render.shell import comment

_HOSTS = """\
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")"""
_HOSTS_OF_GROUPS = """\
mapfile -t hosts < <(for ((group = 0; group < SLURM_HET_SIZE; group++)); do
  list=SLURM_JOB_NODELIST_HET_GROUP_$group
  scontrol show hostnames "${!list}"
done)"""


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


def render_slurm(ejection: Ejection) -> list[Rendered]:
    """Return the directories of all nodes, the batch script, and a README."""
    return [
        *node_files(ejection),
        Rendered("job.sbatch", _batch_script(ejection), executable=True),
        Rendered("README.md", readme(ejection, _start())),
    ]


def _batch_script(ejection: Ejection) -> str:
    """Return the script; where nodes ask for unequal things, a heterogeneous job, whose groups are in order of rank."""
    requests = (_request(ejection, node) for node in ejection.plan.nodes)
    groups = [(request, len(list(same))) for request, same in groupby(requests)]
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={ejection.name} --output=%x-%j.out",
        f"#SBATCH {groups[0][0].options(groups[0][1])}",
    ]
    for request, count in groups[1:]:
        lines += ["#SBATCH hetjob", f"#SBATCH {request.options(count)}"]
    why = _("What your cluster asks for besides, such as --partition and --time, goes into the lines above.")
    misplaced = shlex.quote("job.sbatch: " + _("submit it from the directory in which it lies"))
    is_mixed = len(groups) > 1
    step = [
        "srun",
        *([f"--het-group=0-{len(groups) - 1}"] if is_mixed else []),
        "--kill-on-bad-exit=1",
        "--cpu-bind=none",
        "bash -c 'exec bash \"node$SLURM_PROCID/run.sh\"'",
    ]
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
        _HOSTS_OF_GROUPS if is_mixed else _HOSTS,
        *_exports(ejection),
        "",
        comment(_("One task a node, on all CPUs that the job has there; the first that fails ends the others.")),
        " ".join(step),
    ]
    return "\n".join(lines) + "\n"


def _exports(ejection: Ejection) -> list[str]:
    nodes = ejection.plan.nodes
    names = [address_hole(node.node_rank) for node in nodes]
    found = [(name, f"${{hosts[{index}]}}") for index, name in enumerate(names)] if len(nodes) > 1 else []
    ports = [port_hole(node.node_rank) for node in nodes if node.port_range is not None and node.node_rank > 0]
    count = len(ports) + 1
    first, last = ejection.plan.port_range
    choices = max(1, last - first + 2 - count)
    # Jobs that follow each other may share a host, and then need different ports.
    drawn = f"SLURM_JOB_ID * {count} % {choices}" if count > 1 else f"SLURM_JOB_ID % {choices}"
    found.append((Hole.MASTER_PORT.value, f"$(({first} + {drawn}))"))
    found += [(name, f"$((MASTER_PORT + {index}))") for index, name in enumerate(ports, start=1)]
    found.append((Hole.JOB_ID.value, f"{ejection.name}-$SLURM_JOB_ID"))
    found.append((Hole.ATTEMPT.value, "${SLURM_RESTART_COUNT:-0}"))
    return [f'export {name}="${{{name}:-{value}}}"' for name, value in found]


def _request(ejection: Ejection, node: PlannedNode) -> _Request:
    """Return what the job asks of a node; what the node itself does not say, the job's `resources` do."""
    cores, memory = ejection.asked_of(node)
    cores = _cores(ejection, node) if cores is None else cores
    return _Request(node.cuda_slots, cores, math.ceil(memory / 2**20) if memory is not None else None)


def _cores(ejection: Ejection, node: PlannedNode) -> int:
    """Return what to ask for where the job says nothing: the same for all nodes with so many GPUs."""
    alike = [item for item in ejection.plan.nodes if item.cuda_slots == node.cuda_slots]
    declared = [ejection.environments[item.node_rank].resources.cpu for item in alike]
    found = [cpu.cores for cpu in declared if cpu is not None and cpu.cores is not None]
    return min(found) if found else max(item.slots for item in alike)


def _start() -> str:
    where = _("Have this directory on a file system that all nodes see, and in it run:")
    then = _("Slurm chooses the hosts: the addresses above do not count. `squeue` and `scancel` go on from there.")
    return f"{where}\n\n    sbatch job.sbatch\n\n{then}"
