"""The sections `cluster` and `resources`: the nodes, what the job uses of them, and how they are connected."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from dttui.i18n import _
from dttui.spec.effects import ESTIMATED, FOR_SCRIPT, LAUNCHED, VERIFIED
from dttui.spec.problems import MAX_PROBLEMS, PathKey, PlacedValueError, did_you_mean, with_hint
from dttui.spec.quantities import BitsPerSecond, Bytes, Nanoseconds
from dttui.spec.section import Section
from dttui.spec.text import INTERFACE_NAME, Label, Text

MOST_GPUS = 1024
"""Of a node."""
GpuIndex = Annotated[int, Field(ge=0, le=MOST_GPUS - 1)]
"""Number of a GPU, as nvidia-smi counts them."""


def gpu_ids_of(text: str) -> tuple[int, ...]:
    """Return the GPUs that a list such as `0,2` names; none where it is anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 5 and int(part) < MOST_GPUS for part in parts):
        return ()
    ids = tuple(map(int, parts))
    return ids if len({*ids}) == len(ids) else ()


class GpuRequest(Section):
    """GPUs a node of the job uses."""

    count: int | None = Field(default=None, ge=0, le=MOST_GPUS)
    """How many; all of the environment's by default."""
    ids: tuple[GpuIndex, ...] | None = Field(default=None, json_schema_extra={"minItems": 1, "uniqueItems": True})
    """Which, by their numbers as nvidia-smi has them, `[0, 2, 5]`; the first rank there gets the first of them. By
    default any that are free."""
    memory: Bytes | None = None
    """Least memory of each, such as 80GB."""
    type: str | None = None
    """Type of GPU, such as A100."""

    @model_validator(mode="after")
    def _agree(self) -> GpuRequest:
        faults: list[tuple[PathKey, str]] = []
        ids = self.ids or ()
        if self.ids == ():
            faults.append((("ids",), _("name at least one GPU, or leave ids out")))
        elif ids and self.count is not None and self.count != len(ids):
            message = _("there are {listed} under ids, and not {count}; leave the count out")
            faults.append((("count",), message.format(listed=len(ids), count=self.count)))
        for place, index in enumerate(ids):
            if index in ids[:place]:
                faults.append((("ids", place), _("GPU {index} is listed twice").format(index=index)))
        if faults:
            raise PlacedValueError(*faults[:MAX_PROBLEMS])
        return self

    @property
    def number(self) -> int | None:
        """How many GPUs this asks for; `None` for all of the environment's."""
        return len(self.ids) if self.ids is not None else self.count


class CpuRequest(Section):
    """CPUs a node of the job uses."""

    cores: int | None = Field(default=None, ge=1)
    """Least logical CPUs."""
    memory: Bytes | None = None
    """Least host memory, such as 64GB."""


class Storage(Section):
    """A place for data: a path that is absolute must be there on every host. The script finds it in DTTUI_CONFIG."""

    path: Text | None = Field(default=None, json_schema_extra=VERIFIED)
    """Directory; where it is absolute, the preflight looks whether it is there on every host."""
    size: Bytes | None = Field(default=None, json_schema_extra=VERIFIED)
    """Least free room; the preflight looks whether it is there on every host. It needs an absolute path."""
    type: str | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """`nfs`, `ssd`, …"""

    @model_validator(mode="after")
    def _has_place(self) -> Storage:
        if self.size is not None and not (self.path or "").startswith("/"):
            message = _("room is looked for at an absolute path; write path: beside it")
            raise PlacedValueError((("size",), message))
        return self


class StorageRequest(Section):
    """Places for data."""

    local: Storage | None = None
    """On each host."""
    shared: Storage | None = None
    """Seen by all hosts."""


class NetworkRequest(Section):
    """The network between nodes, as declared: the estimate counts with it, and ranks talk by its interface."""

    bandwidth: BitsPerSecond | None = Field(default=None, json_schema_extra=ESTIMATED)
    """Bandwidth of a node's link, such as 100Gbps, for the estimate."""
    latency: Nanoseconds | None = Field(default=None, json_schema_extra=ESTIMATED)
    """Latency of a link, one way, such as 5us, for the estimate."""
    interface: str | None = Field(default=None, pattern=INTERFACE_NAME, json_schema_extra=LAUNCHED)
    """Interface to use, instead of the one the route to the master tells."""


class NodeResources(Section):
    """What the job uses of one node."""

    gpu: GpuRequest | None = None
    """GPUs."""
    cpu: CpuRequest | None = None
    """CPUs and memory."""


class Node(Section):
    """An environment chosen for the job."""

    id: Label = Field(max_length=80)
    """Id or name of an environment of the inventory."""
    role: Literal["master", "worker", "parameter_server"] = "worker"
    """Role; without a master the first node is it."""
    resources: NodeResources | None = None
    """What the job uses of it; everything by default."""
    network: NetworkRequest | None = None
    """Its network."""


class NodeGroup(Section):
    """Nodes that are nearer to each other than to all others: a rack, a switch, a room."""

    name: Label = Field(max_length=80, json_schema_extra=ESTIMATED)
    """Name."""
    nodes: tuple[Label, ...] = Field(min_length=1, json_schema_extra=ESTIMATED)
    """Ids of nodes of the job."""


class GroupLink(Section):
    """What the network carries between groups, a node."""

    bandwidth: BitsPerSecond | None = Field(default=None, json_schema_extra=ESTIMATED)
    """Bandwidth, such as 100Gbps."""
    latency: Nanoseconds | None = Field(default=None, json_schema_extra=ESTIMATED)
    """Latency, one way, such as 5us."""


class Topology(Section):
    """How the nodes are connected: the estimate, and sizes that follow from the network, count with the slowest link.

    What a node's own link carries is said by `network`. Zones need not be written here: the inventory has them.
    """

    type: str | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """`ring`, `fat_tree`, …; the script finds it in the file that DTTUI_CONFIG names."""
    groups: tuple[NodeGroup, ...] = Field(default=(), json_schema_extra=ESTIMATED)
    """Which nodes are near to each other; a node of none is by itself."""
    between_groups: GroupLink | None = Field(default=None, json_schema_extra=ESTIMATED)
    """What the network carries from one group to another."""

    def groups_of_nodes(self) -> dict[str, str]:
        """Return the name of the group of each node that is in one."""
        return {node: group.name for group in self.groups for node in group.nodes}


def _kind_of_candidates(value: Any) -> str:
    return "a word" if isinstance(value, str) else "names"


Candidates = Annotated[
    Annotated[Literal["any"], Tag("a word")] | Annotated[tuple[Label, ...], Tag("names")],
    Discriminator(_kind_of_candidates),
]
"""Who may take part; told apart first."""


MOST_NODES = 100_000
"""That are planned by their number alone."""


class Cluster(Section):
    """The nodes of the job."""

    nodes: tuple[Node, ...] = ()
    """Nodes; the master first, or marked by its role."""
    count: int | None = Field(default=None, gt=0, le=MOST_NODES, json_schema_extra=ESTIMATED)
    """How many nodes, where none is listed: a plan is made of so many alike, by `resources`; a launch asks which."""
    gpus_per_node: int | None = Field(default=None, gt=0, le=MOST_GPUS, json_schema_extra=ESTIMATED)
    """GPUs of each of these, as `resources.gpu.count` has it."""
    candidates: Candidates = Field(default=(), json_schema_extra=LAUNCHED)
    """Environments, by id or name, that do as well: with `--queue` the job starts on as many of these and of `nodes` as
    it has nodes, once they have room. `any`: all of the inventory but `recovery.spares`."""
    topology: Topology | None = None
    """How they are connected."""

    @model_validator(mode="after")
    def _consistent(self) -> Cluster:
        faults = tuple(islice(chain(self._miscounted(), self._repeated(), self._misgrouped()), MAX_PROBLEMS))
        if faults:
            raise PlacedValueError(*faults)
        return self

    def _miscounted(self) -> Iterator[tuple[PathKey, str]]:
        """Yield where a number of nodes is said beside other nodes, or GPUs of none."""
        if self.nodes and self.count is not None and self.count != len(self.nodes):
            message = _("there are {listed} under nodes, and not {count}; say it once")
            yield ("count",), message.format(listed=len(self.nodes), count=self.count)
        if self.gpus_per_node is not None and (self.nodes or self.count is None):
            yield ("gpus_per_node",), _("this goes with count; of nodes that are listed, write resources.gpu.count")

    def _repeated(self) -> Iterator[tuple[PathKey, str]]:
        """Yield where a node is listed again, or is one master too many."""
        seen: set[str] = set()
        master: str | None = None
        for index, node in enumerate(self.nodes):
            if node.id in seen:
                yield ("nodes", index, "id"), _('node "{node}" is listed twice').format(node=node.id)
            seen.add(node.id)
            if node.role == "master" and master is not None:
                message = _('"{first}" is the master already; one node can be it').format(first=master)
                yield ("nodes", index, "role"), message
            elif node.role == "master":
                master = node.id

    def _misgrouped(self) -> Iterator[tuple[PathKey, str]]:
        """Yield where a group holds what is no node, or a node that another holds already."""
        nodes = {node.id for node in self.nodes}
        grouped: dict[str, str] = {}
        for index, group in enumerate(self.topology.groups if self.topology is not None else ()):
            for place, node in enumerate(group.nodes):
                path = ("topology", "groups", index, "nodes", place)
                if node not in nodes:
                    message = _('"{node}" is no node of the job').format(node=node)
                    near = did_you_mean(node, nodes)
                    yield path, with_hint(message, near)
                elif node in grouped:
                    yield (
                        path,
                        _('node "{node}" is in the group "{group}" already').format(node=node, group=grouped[node]),
                    )
                grouped.setdefault(node, group.name)

    @property
    def master(self) -> Node | None:
        """The node with `role: master`, else the first; `None` without nodes."""
        marked = next((node for node in self.nodes if node.role == "master"), None)
        return marked or (self.nodes[0] if self.nodes else None)


class ResourceDefaults(Section):
    """Defaults for every node."""

    cpu: CpuRequest | None = None
    """CPUs and memory."""
    gpu: GpuRequest | None = None
    """GPUs."""
    storage: StorageRequest | None = None
    """Places for data."""
    network: NetworkRequest | None = None
    """Network."""
