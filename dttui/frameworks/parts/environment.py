"""The environment that every process of a job finds, whatever its framework."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from dttui.frameworks.base import JobLayout, NodeLayout
from dttui.frameworks.bundle import Hole, PlannedFile
from dttui.frameworks.parts.nccl import network_environment
from dttui.spec.checkpoint import Checkpoint

CONFIG_FILE = "dttui_config.json"
"""The file that `DTTUI_CONFIG` names, relative to the attempt's directory."""
METRICS_FILE = "metrics.jsonl"
"""The file that `DTTUI_METRICS` names, relative to the attempt's directory."""
LOGS_DIRECTORY = "logs"
"""The directory that `DTTUI_LOGS` names, relative to the attempt's directory."""
ADDRESSES_FILE = "node_addresses.txt"
"""The file that `DTTUI_NODE_ADDRESSES_FILE` names, relative to the attempt's directory."""
VARIABLES_DIRECTORY = "variables"
"""Where the values of the variables are that `DTTUI_VARIABLES` names, relative to the attempt's directory."""
MOST_NODES = 1000
"""Up to so many are told of in a variable, and more in a file."""
MOST_BYTES = 64 * 1024
"""Of such a variable: Linux starts nothing with one of 128 KiB (MAX_ARG_STRLEN)."""
FREE = {"DTTUI_BACKEND", "DTTUI_CHECKPOINT_DIR"}
"""Of our own variables, those that a job may set."""
RANK_VARIABLES = {
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
}
"""What torchrun sets on every rank (torch/distributed/elastic/agent/server/local_elastic_agent.py)."""


PLACES = ("NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT")
"""What tells a launcher that is started once a node its place."""
NODE_VARIABLES = {*PLACES, *(f"PET_{name}" for name in PLACES), "NUM_NODES", "GPUS_PER_NODE"}
"""The same, and by other names."""


VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
"""What says which GPUs a process sees, by their numbers."""


def is_reserved(name: str, per: str = "gpu") -> bool:
    """Whether a job must leave a variable alone.

    Args:
        name: of the variable.
        per: how often its command is started, as `run.per` says it.
    """
    is_ours = name.startswith("DTTUI_") and name not in FREE
    return is_ours or name in RANK_VARIABLES or (per == "node" and name in NODE_VARIABLES)


def process_environment(layout: JobLayout, node: NodeLayout, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of a process on a node: common ones, then the framework's `own`, then those of `run.env`.

    A variable whose interface stays unknown is dropped when the plan is bound.
    """
    checkpoint = layout.job.recovery.checkpoint
    default_checkpoints = f"{Hole.DIRECTORY}/checkpoints"
    variables = {
        "PYTHONUNBUFFERED": "1",
        **network_environment(layout, node),
        "DTTUI_JOB_ID": str(Hole.JOB_ID),
        "DTTUI_ATTEMPT": str(Hole.ATTEMPT),
        "DTTUI_NODE_RANK": str(node.node_rank),
        "DTTUI_NODE_COUNT": str(len(layout.nodes)),
        **_addresses(layout),
        "DTTUI_MASTER_ADDRESS": layout.master_address,
        "DTTUI_CHECKPOINT_DIR": posixpath.join(layout.cwd, checkpoint.dir) if checkpoint else default_checkpoints,
        **_interval(checkpoint),
        "DTTUI_METRICS": f"{Hole.DIRECTORY}/{METRICS_FILE}",
        "DTTUI_LOGS": f"{Hole.DIRECTORY}/{LOGS_DIRECTORY}",
        "DTTUI_CONFIG": f"{Hole.DIRECTORY}/{CONFIG_FILE}",
        "DTTUI_BACKEND": layout.backend,
    }
    if layout.job.communication.measure:
        variables["DTTUI_MEASURE_COMMUNICATION"] = "1"
    if len(node.ranks) > 1 or node.simulated:
        # torchrun does the same: a rank a core is the rule, and threads of all ranks would fight for the cores. Nodes
        # with simulated GPUs share a machine, as those of the embedded cluster do; a rank alone may use all cores.
        variables["OMP_NUM_THREADS"] = "1"
    if node.cuda_slots:
        variables[VISIBLE_GPUS] = str(Hole.GPU_IDS)
        # NVML, which the ids come from, counts in the order of the bus; CUDA by itself counts the fastest first.
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return {**variables, **(own or {}), **layout.run.env}


def rank_environment(layout: JobLayout, node: NodeLayout, local_rank: int, rank: int) -> dict[str, str]:
    """Return what torchrun would set on a rank, for one that is started without it."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(layout.world_size),
        "LOCAL_WORLD_SIZE": str(len(node.ranks)),
        "GROUP_RANK": str(node.node_rank),
        "MASTER_ADDR": layout.master_address,
        "MASTER_PORT": str(Hole.MASTER_PORT),
        # Where it is Python, a crash in compiled code leaves a traceback.
        "PYTHONFAULTHANDLER": "1",
    }


def node_environment(layout: JobLayout, node: NodeLayout) -> dict[str, str]:
    """Return what launchers that are started once a node read: by their usual names, and torchrun's own defaults.

    torchrun takes each of its arguments from `PET_…` where it is not given (torch/distributed/argparse_util.py).
    """
    place = {
        "NNODES": str(len(layout.nodes)),
        "NODE_RANK": str(node.node_rank),
        "NPROC_PER_NODE": str(node.slots),
        "MASTER_ADDR": layout.master_address,
        "MASTER_PORT": str(Hole.MASTER_PORT),
    }
    return {
        **place,
        **{f"PET_{name}": value for name, value in place.items()},
        "NUM_NODES": place["NNODES"],
        "GPUS_PER_NODE": place["NPROC_PER_NODE"],
        "DTTUI_OWN_RANKS": f"{node.ranks[0]}:{len(node.ranks)}",
        "PYTHONFAULTHANDLER": "1",
    }


def addresses_file(layout: JobLayout) -> PlannedFile | None:
    """Return the file that `DTTUI_NODE_ADDRESSES_FILE` names: an address a line; `None` where a variable holds them."""
    if fits_in_a_variable(layout, layout.shared(_listed)):
        return None
    return PlannedFile(path=ADDRESSES_FILE, shared=layout.shared(_lines))


def variable_files(layout: JobLayout, variables: Mapping[str, PlannedFile]) -> tuple[dict[str, str], list[PlannedFile]]:
    """Return variables that programs read and nothing else will do for, and files of those that would be too long.

    The process itself takes those from `VARIABLES_DIRECTORY`, once it runs: of its own environment the length is free.

    Args:
        layout: of the job.
        variables: name → value, as a file of any path.
    """
    long = [name for name, value in variables.items() if not fits_in_a_variable(layout, value.text)]
    files = [variables[name].model_copy(update={"path": f"{VARIABLES_DIRECTORY}/{name}"}) for name in long]
    given = {name: value.text for name, value in variables.items() if name not in long}
    return {**given, **({"DTTUI_VARIABLES": " ".join(long)} if long else {})}, files


def fits_in_a_variable(layout: JobLayout, text: str) -> bool:
    """Whether what tells of all nodes is given as a variable, and not by a file."""
    return len(layout.nodes) <= MOST_NODES and len(text.encode()) <= MOST_BYTES


def _interval(checkpoint: Checkpoint | None) -> dict[str, str]:
    interval_s = checkpoint.interval_s if checkpoint is not None else None
    return {} if interval_s is None else {"DTTUI_CHECKPOINT_INTERVAL_S": f"{interval_s:g}"}


def _addresses(layout: JobLayout) -> dict[str, str]:
    addresses = layout.shared(_listed)
    if fits_in_a_variable(layout, addresses):
        return {"DTTUI_NODE_ADDRESSES": addresses}
    return {"DTTUI_NODE_ADDRESSES_FILE": f"{Hole.DIRECTORY}/{ADDRESSES_FILE}"}


def _listed(layout: JobLayout) -> str:
    return ",".join(node.address for node in layout.nodes)


def _lines(layout: JobLayout) -> str:
    return "".join(f"{node.address}\n" for node in layout.nodes)
