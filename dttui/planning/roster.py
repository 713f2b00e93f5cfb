"""Who takes part in a job: its nodes found in the inventory, in order of rank, with the slots each has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from dttui.agent_words import agent_text
from dttui.i18n import _, ngettext
from dttui.inventory.models import CpuResources, Environment, GpuResources, Inventory, Resources
from dttui.planning.aggregate import Choice
from dttui.planning.gpu_names import gpu_type
from dttui.spec.findings import Finding, Severity, error, info, warning
from dttui.spec.models import CpuRequest, GpuRequest, Job, Node, NodeResources
from dttui.spec.problems import PathKey, did_you_mean
from dttui.spec.quantities import format_bytes
from dttui.words import gpu_numbers

if TYPE_CHECKING:
    from dtagent.protocol.facts import HostFacts

_MAX_NAMES = 8
_OTHER_TYPE = "gpu-type-differs"
"""Code of a warning: a job runs on another type of GPU, and none is proposed."""
COUNTED_AT: PathKey = ("cluster", "count")
"""Where a job says how many nodes it has, and not which."""


@dataclass(frozen=True)
class Member(Choice):
    """One node of the job: an environment that was chosen, in the place that the job gives it."""

    node: Node = field(kw_only=True)
    """As the job names it."""
    path: PathKey = field(kw_only=True)
    """Where the job names it."""

    @property
    def name(self) -> str:
        """The environment's."""
        return self.environment.name

    @property
    def address(self) -> str:
        """Where other nodes reach it; an IPv6 address without brackets."""
        return self.environment.training_address.strip("[]")


@dataclass(frozen=True)
class Roster:
    """The nodes of a job, the master first."""

    members: tuple[Member, ...]
    findings: tuple[Finding, ...]
    by_count: bool = False
    """Whether the job says how many there are, and not which: they stand for any."""

    @property
    def world_size(self) -> int:
        """Slots in all that compute."""
        return sum(member.slots for member in computing(self.members))


def computing(members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Return those that compute: where there are parameter servers, neither they nor the master."""
    if all(member.node.role != "parameter_server" for member in members):
        return members
    return tuple(member for member in members[1:] if member.node.role != "parameter_server")


def make_roster(job: Job, inventory: Inventory, facts: Mapping[str, HostFacts]) -> Roster:
    """Find the job's nodes: the master is node rank 0, the others follow as listed."""
    findings: list[Finding] = []
    members: dict[str, Member] = {}
    if not job.cluster.nodes:
        findings.append(no_nodes(job, inventory))
        if job.cluster.count is not None:
            counted = _counted(job, job.cluster.count)
            return Roster(counted, (*findings, *_not_said(counted, by_count=True)), by_count=True)
    master = job.cluster.master
    known = {item.name: item for item in inventory.environments}
    known |= {item.id: item for item in inventory.environments if item.id is not None}
    for index, node in sorted(enumerate(job.cluster.nodes), key=lambda item: item[1] is not master):
        path: PathKey = ("cluster", "nodes", index)
        environment = known.get(node.id)
        if environment is None:
            findings.append(_unknown(node, inventory, (*path, "id")))
        elif environment.name in members:
            message = _("{node} is the environment {name}, which is listed already")
            message = message.format(node=node.id, name=environment.name)
            hint = _("Remove one of the two.")
            findings.append(error("same-environment", node.id, message, hint, path=(*path, "id")))
        else:
            asked = _Asked.of(job, node, path)
            gpu = asked.gpu
            member = Member(environment, facts.get(environment.name), gpu.number, gpu.ids or (), node=node, path=path)
            findings += [*_check_gpus(member, asked), *_shortages(member, asked)]
            members[environment.name] = member
    findings += _not_said(members.values())
    return Roster(tuple(members.values()), tuple(findings))


def no_nodes(job: Job, inventory: Inventory | None = None) -> Finding:
    """Return the error of a job without nodes, or of one that says only how many."""
    count = job.cluster.count
    if count is None:
        hint = _("List at least one under cluster.nodes.")
        return error("no-nodes", "cluster.nodes", _("no environment is chosen"), hint)
    message = _("this says how many nodes, and not which: {count}").format(count=count)
    hint = _("List environments of the inventory under cluster.nodes.")
    fitting = [item.name for item in inventory.environments if _fits(item, job)] if inventory is not None else []
    if fitting:
        names = ", ".join(fitting[:_MAX_NAMES]) + (", …" if len(fitting) > _MAX_NAMES else "")
        hint = _("List them under cluster.nodes; {there} of the inventory fit: {names}").format(
            there=len(fitting), names=names
        )
    return error("no-nodes", "cluster.nodes", message, hint, path=COUNTED_AT)


def _gpus_a_node(job: Job) -> int | None:
    gpu = job.resources.gpu
    return job.cluster.gpus_per_node or (gpu.number if gpu is not None else None)


def _fits(environment: Environment, job: Job) -> bool:
    """Whether an environment has what the job asks of each node, as far as it says."""
    node = Node.model_construct(id=environment.name)
    asked = _Asked.of(job, node, ())
    asked = replace(asked, gpu=asked.gpu.model_copy(update={"count": _gpus_a_node(job)}))
    member = Member(environment, None, asked.gpu.number, asked.gpu.ids or (), node=node, path=COUNTED_AT)
    found = [*_check_gpus(member, asked), *_shortages(member, asked)]
    return all(item.severity is not Severity.ERROR and item.code != _OTHER_TYPE for item in found)


def _counted(job: Job, count: int) -> tuple[Member, ...]:
    """Return so many nodes alike, of what the job asks of each."""
    gpu, cpu = job.resources.gpu or GpuRequest(), job.resources.cpu or CpuRequest()
    gpus = _gpus_a_node(job)
    # As the job has them, which is checked: a type that no inventory could name is told with the estimate.
    declared = GpuResources.model_construct(count=gpus or 0, type=gpu.type, memory=gpu.memory, simulated=False)
    resources = Resources.model_construct(
        gpu=declared if gpus is not None else None,
        cpu=CpuResources.model_construct(cores=cpu.cores, memory=cpu.memory),
    )
    names = [f"node-{number}" for number in range(1, count + 1)]
    return tuple(
        Member(
            Environment(name=name, host=name).model_copy(update={"resources": resources}),
            None,
            gpus,
            node=Node(id=name),
            path=COUNTED_AT,
        )
        for name in names
    )


def _not_said(members: Iterable[Member], *, by_count: bool = False) -> list[Finding]:
    """Say where the number of processes is no more than a guess."""
    unknown = [member.name for member in members if member.gpus_used is None]
    if not unknown:
        return []
    if by_count:
        message = _("nothing says how many GPUs each of the {count} nodes has: planned with one process each")
        hint = _("Write cluster.gpus_per_node, or resources.gpu.count.")
        told = message.format(count=len(unknown))
        return [warning("gpus-not-declared", "cluster.count", told, hint, path=COUNTED_AT)]
    message = _("how many GPUs {nodes} have is not known: planned with one process each; the hosts decide at launch")
    names = ", ".join(unknown[:_MAX_NAMES]) + (", …" if len(unknown) > _MAX_NAMES else "")
    hint = _("Write resources.gpu.count into the inventory, or resources.gpu.count into the job.")
    return [warning("gpus-not-declared", "resources.gpu.count", message.format(nodes=names), hint)]


def _unknown(node: Node, inventory: Inventory, path: PathKey) -> Finding:
    names = [name for item in inventory.environments for name in (item.name, item.id) if name]
    hint = did_you_mean(node.id, names) or _("Environments there are: {names}.").format(names=", ".join(names[:10]))
    if not names:
        hint = _("The inventory has no environments; add some, or use the embedded cluster by --demo.")
    message = _('the inventory has no environment "{name}"').format(name=node.id)
    return error("unknown-environment", node.id, message, hint, path=path)


@dataclass(frozen=True)
class _Asked:
    """What the job asks of a node; what the node itself does not say comes from the job's `resources`."""

    gpu: GpuRequest
    cpu: CpuRequest
    own: NodeResources
    """As the node says it."""
    node_path: PathKey

    @classmethod
    def of(cls, job: Job, node: Node, node_path: PathKey) -> _Asked:
        own = node.resources or NodeResources()
        gpu, cpu = job.resources.gpu or GpuRequest(), job.resources.cpu or CpuRequest()
        if own.gpu is not None and own.gpu.number is not None:  # How many and which are said together.
            gpu = gpu.model_copy(update={"count": None, "ids": None})
        return cls(
            gpu.model_copy(update=own.gpu.model_dump(exclude_none=True) if own.gpu else {}),
            cpu.model_copy(update=own.cpu.model_dump(exclude_none=True) if own.cpu else {}),
            own,
            node_path,
        )

    def path(self, section: Literal["gpu", "cpu"], field: str) -> PathKey:
        """Return where the job says it: at the node, or in its `resources`."""
        is_own = getattr(getattr(self.own, section), field, None) is not None
        return (*(self.node_path if is_own else ()), "resources", section, field)


def _check_gpus(member: Member, asked: _Asked) -> list[Finding]:
    """Compare the number of GPUs that is asked for, declared and found."""
    name, wanted, path = member.name, asked.gpu.number, asked.path("gpu", "ids" if asked.gpu.ids else "count")
    available = member.gpu_count
    findings: list[Finding] = [*_check_ids(member, path)]
    declared = member.environment.resources.gpu
    if declared is not None and available is not None and available != declared.count:
        note = agent_text(member.facts.gpu_note, member.facts.gpu_note_notice) if member.facts is not None else ""
        message = _("{node} is declared with {declared} GPUs and has {available}")
        message = message.format(node=name, declared=declared.count, available=available)
        findings.append(warning("gpu-count-differs", name, message, note or _("Correct it in the inventory.")))
    if wanted is None:
        return findings
    if wanted == 0:
        message = _("{node}: no GPU is asked for, so one process runs there on the CPU").format(node=name)
        findings.append(info("no-gpu-asked", name, message, path=path))
    elif available is None:
        message = _("nothing is known of the GPUs of {node}; {wanted} are taken to be there")
        findings.append(warning("gpus-unknown", name, message.format(node=name, wanted=wanted), path=path))
    elif wanted > available and not member.gpu_ids:
        message = ngettext(
            "{wanted} GPU is asked of {node}, which has {available}",
            "{wanted} GPUs are asked of {node}, which has {available}",
            wanted,
        ).format(wanted=wanted, node=name, available=available)
        hint = _("Ask for fewer, or choose another environment.")
        findings.append(error("too-many-gpus", name, message, hint, path=path))
    return findings


def _check_ids(member: Member, path: PathKey) -> Iterator[Finding]:
    """Say which of the GPUs that are named there are none of."""
    name, available = member.name, member.gpu_count
    if member.ids_asked and member.environment.simulated:
        message = _("{node}: simulated GPUs have no numbers: {count} are used, any of them")
        hint = _("Write count: {count} in the place of ids.").format(count=len(member.ids_asked))
        told = message.format(node=name, count=len(member.ids_asked))
        yield warning("gpu-ids-simulated", name, told, hint, path=path)
    elif available is not None:
        there = member.gpu_numbers
        hint = _("It has {ids}: choose of these.").format(ids=gpu_numbers(there)) if there else ""
        hint = hint or _("It has no GPU: choose another environment.")
        for place, index in enumerate(member.gpu_ids):
            if index not in there:
                message = _("{node} has no GPU {index} that can be used").format(node=name, index=index)
                yield error("no-such-gpu", name, message, hint, path=(*path, place))


def _shortages(member: Member, asked: _Asked) -> list[Finding]:
    """Compare least amounts with what is known; what is not known is not complained of."""
    name, gpu, cpu = member.name, asked.gpu, asked.cpu
    findings: list[Finding] = []
    amounts = (
        (
            "gpu-memory",
            asked.path("gpu", "memory"),
            _("memory a GPU"),
            gpu.memory,
            member.gpu_memory_bytes,
            format_bytes,
        ),
        ("cpu-cores", asked.path("cpu", "cores"), _("logical CPUs"), cpu.cores, member.cpu_count, str),
        ("host-memory", asked.path("cpu", "memory"), _("host memory"), cpu.memory, member.memory_bytes, format_bytes),
    )
    for code, path, what, wanted, available, shown in amounts:
        if wanted is not None and available is not None and wanted > available:
            message = _("{node}: {what}: {wanted} asked for, {available} there")
            message = message.format(node=name, what=what, wanted=shown(wanted), available=shown(available))
            hint = _("Ask for less, or choose another environment.")
            findings.append(error(f"too-little-{code}", name, message, hint, path=path))
    if gpu.type and member.gpu_types and gpu_type(gpu.type).casefold() not in map(str.casefold, member.gpu_types):
        message = _("the job asks for {wanted}, and {node} has {there}")
        message = message.format(wanted=gpu.type, node=name, there=", ".join(dict.fromkeys(member.gpu_types)))
        findings.append(warning(_OTHER_TYPE, name, message, path=asked.path("gpu", "type")))
    return findings
