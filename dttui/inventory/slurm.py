"""The nodes of a Slurm allocation, from the variables that Slurm sets in it.

Slurm itself is asked only about a node list that is written in a way unknown here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from dttui.i18n import _
from dttui.inventory.models import CpuResources, Environment, GpuResources, Inventory, Resources
from dttui.inventory.ranges import MAX_HOSTS, RangeError, expand_slurm
from dttui.locations import SLURM
from dttui.spec.problems import DocumentError, Problem, printable, shown
from dttui.spec.text import HOST_NAME
from dttui.variables import for_a_process

ASK_TIMEOUT_S = 10.0
"""Longest that Slurm's command may take."""

_NODE_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_COUNTS = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?")
_GPUS = re.compile(r"(?:gpu:)?(?:([A-Za-z_][\w.-]*):)?([0-9]{1,4})")


def slurm_inventory(variables: Mapping[str, str]) -> Inventory:
    """Return the nodes of the allocation whose variables these are.

    Raises:
        DocumentError: there is no allocation, or a variable cannot be read.
    """
    name = next((name for name in _NODE_LISTS if variables.get(name)), None)
    if name is None:
        message = _("this is no Slurm allocation: {name} is not set").format(name=_NODE_LISTS[0])
        raise DocumentError([Problem(SLURM.rstrip(":"), message, _("Run dttui inside salloc or sbatch."))])
    text = variables[name]
    try:
        hosts = expand_slurm(text)
    except RangeError as error:
        hosts = _ask_slurm(text)
        if not hosts:
            raise DocumentError([_problem(name, text, error.column, str(error))]) from error
    for host in hosts:
        if len(host) > 80 or not re.fullmatch(HOST_NAME, host):
            message = _("expected a host name, found {value}").format(value=shown(host))
            raise DocumentError([_problem(name, text, 0, message)])
    gpus = _gpus(variables, len(hosts))
    cores = _counts(variables, "SLURM_JOB_CPUS_PER_NODE", len(hosts))
    return Inventory(
        environments=tuple(
            Environment(
                name=host,
                host=host,
                resources=Resources(
                    gpu=gpus[index] if gpus else None,
                    cpu=CpuResources(cores=cores[index]) if cores and cores[index] else None,
                ),
            )
            for index, host in enumerate(hosts)
        )
    )


def _ask_slurm(text: str) -> list[str]:
    """Return the names that Slurm's own command makes of a node list; nothing where it cannot."""
    try:
        found = subprocess.run(
            ["scontrol", "show", "hostnames", text],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
            env=for_a_process(),
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return list(dict.fromkeys(found.stdout.split()))[:MAX_HOSTS]


def _gpus(variables: Mapping[str, str], nodes: int) -> list[GpuResources]:
    """Return the GPUs of each node; nothing where no variable says. What is said of a task counts for each of them."""
    for name in ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"):
        if variables.get(name):
            return [_gpu(variables, name)] * nodes
    if variables.get("SLURM_JOB_GPUS"):  # Ids of this node's: 0,1,2,3
        count = len([item for item in variables["SLURM_JOB_GPUS"].split(",") if item.strip()])
        return [GpuResources(count=min(count, 1024))] * nodes
    if variables.get("SLURM_GPUS_PER_TASK"):
        each = _gpu(variables, "SLURM_GPUS_PER_TASK")
        tasks = _counts(variables, "SLURM_TASKS_PER_NODE", nodes)
        return [each.model_copy(update={"count": min(each.count * count, 1024)}) for count in tasks]
    return []


def _gpu(variables: Mapping[str, str], name: str) -> GpuResources:
    """Return `4`, `a100:4` or `gpu:a100:4` as GPUs."""
    match = _GPUS.fullmatch(variables[name])
    if match is None or int(match[2]) > 1024:
        message = _("expected a number of GPUs, such as 4 or a100:4, found {value}")
        raise DocumentError([_problem(name, variables[name], 0, message.format(value=shown(variables[name])))])
    kind = match[1] if match[1] and match[1] != "gpu" else None
    return GpuResources(count=int(match[2]), type=kind)


def _counts(variables: Mapping[str, str], name: str, nodes: int) -> list[int]:
    """Return `16(x2),8` as a number for each node; nothing where it is not set."""
    text = variables.get(name)
    if not text:
        return []
    counts: list[int] = []
    for item in text.split(","):
        match = _COUNTS.fullmatch(item)
        if match is None or len(counts) + int(match[2] or 1) > MAX_HOSTS:
            message = _("expected counts such as 8 or 16(x2),8, found {value}").format(value=shown(text))
            raise DocumentError([_problem(name, text, 0, message)])
        counts += [int(match[1])] * int(match[2] or 1)
    if len(counts) != nodes:
        message = _("{there} counts for {nodes} nodes").format(there=len(counts), nodes=nodes)
        raise DocumentError([_problem(name, text, 0, message)])
    return counts


def _problem(name: str, text: str, column: int, message: str) -> Problem:
    return Problem(f"${name}", message, "", (), 1, column + 1, printable(text))
