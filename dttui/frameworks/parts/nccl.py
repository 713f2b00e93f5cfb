"""What NCCL and gloo are told by variables, from what the job says and what its hosts have, and why. Pure."""

from __future__ import annotations

import math
import re

from dttui.frameworks.base import JobLayout, NodeLayout
from dttui.frameworks.bundle import Hole
from dttui.i18n import _, ngettext
from dttui.spec.findings import Finding, info, warning

RDMA_VARIABLES = frozenset({"NCCL_IB_HCA", "NCCL_IB_DISABLE"})
"""A job that sets one of them decides about both."""
LEAST_BUFFER_BYTES, MOST_BUFFER_BYTES = 64 * 1024, 32 * 1024 * 1024
"""A channel's buffer is cut into eight steps, and every channel to every peer has one of its own on the GPU."""
USUAL_BUFFER_BYTES = 4 * 1024 * 1024
"""NCCL's own (its user guide, NCCL_BUFFSIZE)."""
LONG_BUFFER_BYTES = 2 * USUAL_BUFFER_BYTES
"""At most, where the job asks for none: all of them are memory that the model does not have."""
LEAST_CHANNELS = 2
"""NCCL's, which share what is on the way over a link."""
ALGORITHMS = frozenset({"ring", "tree"})
"""NCCL's of all-reduce, of those that a job can name."""
_OF_COLLECTIVES = {"allreduce": ALGORITHMS, "allgather": frozenset({"ring"}), "reduce_scatter": frozenset({"ring"})}
"""NCCL's, of the collectives of which it has one that a job can name."""
PER_COLLECTIVE = (2, 24)
"""The first NCCL that can be told the algorithm of a collective; one before takes it for no algorithm at all."""
HEARTBEAT_S = 480
"""torch's own."""
RECORDED_COLLECTIVES = 2000
DUMP_PREFIX = "nccl_trace_rank_"
"""Name of a dump of torch's flight recorder, relative to the attempt's directory; the rank follows."""
_RENAMED = (2, 10)
"""A torch that has new names for two variables; it takes the old ones too, and prints a note."""
_OTHER_BUFFERS = frozenset({"horovod"})
"""Frameworks that take the job's size for a buffer of their own, whose sizes are none for NCCL."""
_WITHOUT_GLOO = frozenset({"tensorflow"})
"""Frameworks that never use gloo, whatever the backend."""
_KINDS = {"InfiniBand": "InfiniBand", "Ethernet": "RoCE"}
_MAX_NAMES = 8


def network_environment(layout: JobLayout, node: NodeLayout) -> dict[str, str]:
    """Return interface, ports and algorithm of the ranks of a node; nothing of NCCL where that is not used."""
    interface = node.interface or str(Hole.INTERFACE)
    variables = {} if layout.job.framework in _WITHOUT_GLOO else {"GLOO_SOCKET_IFNAME": interface}
    if layout.backend == "nccl":
        # Without the "=" NCCL takes the name for a prefix, and eth1 would also mean eth10.
        variables["NCCL_SOCKET_IFNAME"] = f"={interface}"
        variables |= _rdma(layout, node)
        variables |= _reduction(layout)
    return variables


def torch_environment(layout: JobLayout, node: NodeLayout) -> dict[str, str]:
    """Return what torch's process groups are told where they use NCCL: errors, time-outs, records.

    Where a slot is no GPU, accelerate is told that ranks talk all the same: else it would let each train by itself. Not
    so where it is to use DeepSpeed, which it passes over then.
    """
    if layout.backend != "nccl":
        uses_deepspeed = layout.run.env.get("ACCELERATE_USE_DEEPSPEED", "").casefold() == "true"
        is_told = layout.shared(_slot_without_gpu) and not uses_deepspeed
        return {"ACCELERATE_USE_CPU": "true"} if is_told else {}
    has_new_names = node.torch is not None and version(node.torch) >= _RENAMED
    size, file = (
        ("TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE")
        if has_new_names
        else ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    )
    return {
        # Tears the process down without waiting for communicators that may hang.
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        # Ranks that may come so late must not be ended for waiting.
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": str(
            max(HEARTBEAT_S, math.ceil(layout.job.communication.rendezvous_timeout_s))
        ),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        size: str(RECORDED_COLLECTIVES),
        file: f"{Hole.DIRECTORY}/{DUMP_PREFIX}",
    }


def check_nccl(layout: JobLayout) -> list[Finding]:
    """Return what NCCL cannot be told, and where it cannot use the ports that some nodes have."""
    if layout.backend != "nccl":
        return []
    findings = _check_rdma(layout)
    reduction = layout.job.communication.all_reduce
    if reduction is None:
        return findings
    path = f"communication.{layout.job.communication.all_reduce_place}"
    if reduction.algorithm is not None and reduction.algorithm not in ALGORITHMS:
        message = _("NCCL has no all-reduce by {algorithm}: it chooses one itself").format(
            algorithm=reduction.algorithm
        )
        findings.append(info("nccl-algorithm", f"{path}.algorithm", message))
    size = _buffer_size(layout)
    if size is not None and not _fits(size):
        message = _("NCCL keeps its own size of buffers: {size} bytes are none for it, {least} to {most} are")
        message = message.format(size=size, least=LEAST_BUFFER_BYTES, most=MOST_BUFFER_BYTES)
        findings.append(info("nccl-buffer", f"{path}.buffer_size", message))
    return findings


def reason(name: str, value: str, given: tuple[str, ...] = ()) -> str:
    """Return where a variable's value comes from, in a few words; empty for one that explains itself.

    Args:
        name: of the variable.
        value: as planned; may hold holes.
        given: names of the variables that the job sets itself.
    """
    if name in given:
        return "run.env"
    if name.endswith("_SOCKET_IFNAME"):
        return _("the interface that leads to the master") if str(Hole.INTERFACE) in value else "network.interface"
    return {
        "NCCL_IB_HCA": _("the active ports of the kind that all nodes have"),
        "NCCL_IB_DISABLE": _("not all nodes have ports of one kind"),
        "NCCL_ALGO": _("the algorithms that communication names"),
        "NCCL_BUFFSIZE": _("communication.allreduce.buffer_size, or what a long link holds at once"),
        "ACCELERATE_USE_CPU": _("some slots are no GPU; without it accelerate distributes nothing there"),
        "DEEPSPEED_TIMEOUT": _("communication.collective_timeout, or rendezvous_timeout where that is longer"),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": _("a rank whose collective failed ends"),
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": _("torch's own, or communication.rendezvous_timeout where that is longer"),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": _("a rank that waited too long for the others writes down what it did"),
        "TORCH_FR_BUFFER_SIZE": _("its last collectives, so many"),
        "TORCH_NCCL_TRACE_BUFFER_SIZE": _("its last collectives, so many"),
        "TORCH_FR_DUMP_TEMP_FILE": _("where it writes them; the rank follows"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": _("where it writes them; the rank follows"),
    }.get(name, "")


def version(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def told_algorithms(layout: JobLayout) -> dict[str, str]:
    """Return the algorithms that the job names and NCCL has, by collective; none where it is not used."""
    if layout.backend != "nccl":
        return {}
    named = {place.rpartition(".")[2]: name for place, name in layout.job.communication.algorithms().items()}
    return {kind: name for kind, name in named.items() if name in _OF_COLLECTIVES.get(kind, ())}


def _slot_without_gpu(layout: JobLayout) -> str:
    """Return the name of a node that has one; empty where every slot is a GPU."""
    return next((node.name for node in layout.nodes if node.cuda_slots < node.slots), "")


def _fits(size: int) -> bool:
    return LEAST_BUFFER_BYTES <= size <= MOST_BUFFER_BYTES


def _reduction(layout: JobLayout) -> dict[str, str]:
    size, named, told = _buffer_size(layout), told_algorithms(layout), {}
    if named:
        told["NCCL_ALGO"] = ";".join(f"{kind.replace('_', '')}:{name}" for kind, name in named.items())
    of_channel = layout.tuning.window_bytes // LEAST_CHANNELS
    if size is None and of_channel > USUAL_BUFFER_BYTES:
        size = min(1 << (of_channel - 1).bit_length(), LONG_BUFFER_BYTES)
    if size is not None and _fits(size):
        told["NCCL_BUFFSIZE"] = str(size)
    return told


def _buffer_size(layout: JobLayout) -> int | None:
    reduction = layout.job.communication.all_reduce
    return None if reduction is None or layout.job.framework in _OTHER_BUFFERS else reduction.buffer_size


def _rdma(layout: JobLayout, node: NodeLayout) -> dict[str, str]:
    """Return the ports that NCCL is to use, which are of one kind on all nodes, or that it is to use none."""
    told = _kinds_there(layout)
    if not told or RDMA_VARIABLES & layout.run.env.keys():
        return {}
    common = frozenset.intersection(*told)
    if not common:
        return {"NCCL_IB_DISABLE": "1"}
    ports = [port for port in node.rdma or () if _kind(port.link_layer) == _best(common)]
    active = [port for port in ports if port.state == "ACTIVE"]
    idle = {port.device for port in ports if port.state != "ACTIVE"}
    names = [f"{port.device}:{port.port}" if port.device in idle else port.device for port in active]
    # As above: mlx5_1 would also mean mlx5_10.
    return {"NCCL_IB_HCA": "=" + ",".join(dict.fromkeys(names))}


def _check_rdma(layout: JobLayout) -> list[Finding]:
    told = _kinds_there(layout)
    if not told or RDMA_VARIABLES & layout.run.env.keys() or frozenset.intersection(*told):
        return []
    best = _best(frozenset.union(*told))
    without = [node.name for node in layout.nodes if best not in _active_kinds(node).split(",")]
    message = ngettext(
        "{nodes} has no active port of {kind}, unlike the others: NCCL talks by TCP on all nodes, which is slower",
        "{nodes} have no active port of {kind}, unlike the others: NCCL talks by TCP on all nodes, which is slower",
        len(without),
    ).format(nodes=", ".join(without[:_MAX_NAMES]) + (", …" if len(without) > _MAX_NAMES else ""), kind=best)
    hint = _("Choose environments of one kind, or see why the ports are down.")
    return [warning("rdma-mixed", "cluster.nodes", message, hint)]


def _kinds_there(layout: JobLayout) -> set[frozenset[str]]:
    """Return what kinds of active ports there are on nodes, each set once.

    It is empty where nothing follows from it: one node, a node of which it is not known, or no such port at all.
    """
    if len(layout.nodes) < 2 or any(node.rdma is None for node in layout.nodes):
        return set()
    told = {frozenset(text.split(",")) - {""} for text in set(map(_active_kinds, layout.nodes))}
    return told if any(told) else set()


def _active_kinds(node: NodeLayout) -> str:
    return ",".join(sorted({_kind(port.link_layer) for port in node.rdma or () if port.state == "ACTIVE"}))


def _kind(link_layer: str | None) -> str:
    return _KINDS.get(link_layer or "InfiniBand", "InfiniBand")


def _best(kinds: frozenset[str]) -> str:
    return min(kinds)  # InfiniBand before RoCE.
