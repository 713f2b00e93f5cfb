"""How the nodes of a job reach each other: backend, zones, addresses. Looks nothing up."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator

from dttui.frameworks import frameworks, get_framework, traits_of
from dttui.i18n import _, in_a_row, ngettext, sentences
from dttui.inventory.models import LOOPBACK, Environment, Reach
from dttui.planning.cost.links import NodeLink, describe_link
from dttui.planning.roster import Member, computing
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.models import Job

MOST_NAMES = 3
"""Nodes that a message names."""
_PROTOCOL = "communication.protocol"
_SSH_PORT = 22
_LOOPBACK_NAMES = {"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "::1"}


def choose_backend(job: Job, members: tuple[Member, ...]) -> tuple[str, list[Finding]]:
    """Return `nccl`, or what the framework's ranks talk by without it, and what is to be said about that.

    NCCL needs a CUDA GPU in every slot that computes.
    """
    protocol = job.communication.protocol
    other = traits_of(job.framework).plain_protocol
    workers = computing(members)
    without = [member.name for member in workers if not member.cuda_slots]
    backend = "nccl" if workers and not without else other.lower()
    findings: list[Finding] = []
    if without and len(without) < len(workers):
        message = _("no CUDA GPU on {nodes}, unlike the others: all talk by {protocol}, which is slower")
        message = message.format(nodes=", ".join(without), protocol=other)
        findings.append(warning("mixed-devices", _PROTOCOL, message, _("Choose environments of one kind.")))
    if members or protocol in ("MPI", "gRPC"):
        findings += _check_protocol(job, backend, other, len(workers))
    if protocol == "MPI" and backend != "nccl" and traits_of(job.framework).has_mpi:
        return "mpi", findings
    if protocol == "gRPC" and other != "gRPC":
        return other.lower(), findings
    if other != "gRPC" or (protocol != "gRPC" and len(workers) == len(members)):
        return backend, findings
    if protocol == "NCCL" and backend == "nccl":
        message = _("gRPC is used instead of NCCL: parameters and gradients go to the servers and back")
        findings.append(info("grpc-instead-of-nccl", _PROTOCOL, message))
    return "grpc", findings


def _check_protocol(job: Job, backend: str, other: str, hosts: int) -> Iterator[Finding]:
    """Yield what there is to say of a protocol that the job names, and that its ranks do not just talk by.

    Args:
        job: the job.
        backend: by which its ranks could talk, as far as their hosts go.
        other: what the framework's ranks talk by without NCCL.
        hosts: on how many they are.
    """
    protocol = job.communication.protocol
    if protocol == "NCCL" and backend != "nccl":
        message = _("{protocol} is used instead of NCCL, which needs a CUDA GPU in every slot").format(protocol=other)
        yield info(f"{backend}-instead-of-nccl", _PROTOCOL, message)
    elif protocol == "MPI" and job.framework is not None and traits_of(job.framework).has_mpi:
        if hosts > 1:
            message = _("between hosts mpirun starts ranks by ssh from one to another, and dttui starts none so")
            hint = _("Leave the protocol out: {framework} runs over Gloo on any number of hosts.")
            yield error("mpi", _PROTOCOL, message, hint.format(framework=get_framework(job.framework).label))
    elif protocol == "MPI":
        message = _("torch as installed from its packages has no MPI")
        if job.framework is not None and not traits_of(job.framework).uses_torch:
            message = _("{framework} has no MPI").format(framework=get_framework(job.framework).label)
        yield error("mpi", _PROTOCOL, message, _("Write protocol: NCCL, or leave it out."))
    elif protocol == "gRPC" and other != "gRPC":
        known = ", ".join(item.label for item in frameworks() if item.plain_protocol == "gRPC")
        message = _("gRPC is for {frameworks}; {protocol} is used").format(frameworks=known, protocol=other)
        yield warning("grpc", _PROTOCOL, message, _("Write protocol: NCCL, or leave it out."))
    elif protocol == "custom":
        message = _("dttui has ranks talk by {protocol}; whatever else the script's own protocol needs, run.env says")
        yield info("custom-protocol", _PROTOCOL, message.format(protocol={"nccl": "NCCL"}.get(backend, other)))


def master_address(members: tuple[Member, ...]) -> str:
    """Return where the rendezvous store is reached; a job of one node does not depend on what others call it."""
    return members[0].address if len(members) > 1 else LOOPBACK


def check_network(
    members: tuple[Member, ...],
    link: NodeLink | None = None,
    communication_share: float | None = None,
    now: float | None = None,
) -> list[Finding]:
    """Return what zones and addresses mean for a job of several nodes.

    Args:
        members: its nodes.
        link: the slowest between them, as far as is known.
        communication_share: what talking takes of a step, 0 to 1; `None` where there is no estimate.
        now: seconds since the epoch, to say how old a measurement is.
    """
    findings = _simulated(members)
    if len(members) < 2:
        return findings
    zones = tuple(dict.fromkeys(member.environment.zone for member in members if member.environment.zone))
    if len(zones) > 1:
        message = _("training across zones may suffer from the latency between them: {zones}")
        message = message.format(zones=in_a_row(zones))
        if link is not None:
            message = _("{what}; {why}").format(what=message, why=describe_link(link, now))
        if communication_share is not None:
            share = _("communication takes {share} of a step").format(share=f"{communication_share:.0%}")
            message = _("{what}; {why}").format(what=message, why=share)
        hint = sentences((_("Choose environments of one zone where you can."), _for_several_zones(members)))
        findings.append(warning("cross-zone", "cluster.nodes", message, hint))
    findings += _same_machines(members)
    return findings + (_without_address(members) or _master(members)) + _public(members)


def _for_several_zones(members: tuple[Member, ...]) -> str:
    """Return what speaks for training across zones: what none of them has by itself."""
    counts: Counter[str] = Counter()
    for member in members:
        counts[member.environment.zone or ""] += member.slots
    zone, most = counts.most_common(1)[0]
    text = _("For it speaks that it has {total} ranks, and what is chosen of {zone} alone has {most}.")
    return text.format(total=counts.total(), zone=zone or "?", most=most)


def _simulated(members: tuple[Member, ...]) -> list[Finding]:
    names = [member.name for member in members if member.environment.simulated]
    if not names:
        return []
    message = _("simulated GPUs: {nodes} train on CPU").format(nodes=in_a_row(names))
    return [info("simulated", "cluster.nodes", message)]


def _without_address(members: tuple[Member, ...]) -> list[Finding]:
    """Find nodes of which nothing says where the others reach them: the way that dttui takes says nothing of that."""
    findings = []
    for member in members:
        if member.environment.has_training_address:
            continue
        message = _("{name}: nothing says by which address the other nodes reach it").format(name=member.name)
        hint = _("Set `address` of {name} in the inventory to one in the hosts' own network.").format(name=member.name)
        own = [address for address in _own_addresses(member) if not _is_loopback(address)]
        if own:
            hint += " " + _("It has {addresses}.").format(addresses=in_a_row(own[:MOST_NAMES]))
        findings.append(error("no-address", member.name, message, hint, path=(*member.path, "id")))
    return findings


def _own_addresses(member: Member) -> list[str]:
    """Return what the host itself says it has."""
    facts = member.facts
    return [] if facts is None else [address for addresses in facts.addresses.values() for address in addresses]


def _master(members: tuple[Member, ...]) -> list[Finding]:
    master = members[0]
    elsewhere = [
        item.name for item in members if item.environment.reach is not Reach.LOCAL and not _is_loopback(item.address)
    ]
    hint = _("Set `address` of {name} in the inventory to one in the hosts' own network.").format(name=master.name)
    if _is_loopback(master.address) and elsewhere:
        message = _("{others} cannot reach the master {name} by {address}, which every host has to itself")
        message = message.format(others=in_a_row(elsewhere), name=master.name, address=master.address)
        return [error("master-loopback", master.name, message, hint, path=(*master.path, "id"))]
    return []


def _public(members: tuple[Member, ...]) -> list[Finding]:
    """Warn of nodes whose listeners the internet may reach; of what a name stands for, only facts of the host tell."""
    found = [(member, address) for member in members if (address := _public_address(member)) is not None]
    if not found:
        return []
    first = found[0][0]
    told = ", ".join(f"{member.name} ({address})" for member, address in found[:MOST_NAMES])
    message = ngettext(
        "{nodes}: a public address, and what a job listens with there asks nobody for a password",
        "{nodes}: public addresses, and what a job listens with there asks nobody for a password",
        len(found),
    ).format(nodes=told + (", …" if len(found) > MOST_NAMES else ""))
    hint = _(
        "Set `address` of {name} in the inventory to an IP address of the hosts' own network, or keep strangers out by "
        "a firewall; docs/reference.md lists what listens."
    ).format(name=first.name)
    return [warning("public-address", first.name, message, hint, path=(*first.path, "id"))]


def _public_address(member: Member) -> str | None:
    """Return the public address that a job listens at; `None` where there is none, or nobody knows."""
    if _ip(_plain(member.address)) is not None:
        return member.address if _is_public(member.address) else None
    if _plain(member.address) == LOOPBACK or member.facts is None:
        return None
    # What the name stands for on the host, only the host knows.
    return next(filter(_is_public, _own_addresses(member)), None)


def _same_machines(members: tuple[Member, ...]) -> list[Finding]:
    """Find environments that are one host; the embedded cluster's are kept apart by their agents' directories."""
    findings: list[Finding] = []
    seen: dict[object, Member] = {}
    for member in members:
        identities, conflicts = _identities(member.environment, _plain(member.address))
        first = next((seen[identity] for identity in conflicts if identity in seen), None)
        if first is not None:
            message = _("two nodes with one address: {one} and {other} are both {address}")
            message = message.format(one=first.name, other=member.name, address=member.address)
            hint = _(
                "Leave one of them out, or set `address` of each in the inventory to the one the others reach it by."
            )
            findings.append(error("same-address", member.name, message, hint, path=(*member.path, "id")))
        for identity in identities:
            seen.setdefault(identity, member)
    return findings


def _identities(environment: Environment, address: str) -> tuple[list[object], list[object]]:
    """Return what an environment is known by, and which of those of another say that both are one host."""
    own: list[object]
    match environment.reach:
        case Reach.LOCAL:
            own = [("agent", environment.agent_root)]
            return [*own, ("local address", address)], [*own, ("remote address", address), ("address inside", address)]
        case Reach.EXEC:
            own = [("command", environment.exec)]
            if not environment.has_training_address:
                return own, own
            # Containers of one machine may share its network, and still be two.
            return [*own, ("address inside", address)], [*own, ("remote address", address), ("local address", address)]
        case Reach.SSH:
            own = [("remote address", address), _ssh_endpoint(environment)]
            return own, [*own, ("local address", address), ("address inside", address)]


def _ssh_endpoint(environment: Environment) -> tuple[str, int, str | None]:
    return _plain(environment.host or ""), environment.port or _SSH_PORT, environment.proxy_jump


def _plain(address: str) -> str:
    """Return one spelling of an address."""
    address = address.strip("[]").rstrip(".").casefold()
    if address in _LOOPBACK_NAMES:
        return LOOPBACK
    ip = _ip(address)
    return str(ip) if ip is not None else address


def _is_loopback(address: str) -> bool:
    ip = _ip(_plain(address))
    return ip is not None and ip.is_loopback


def _is_public(address: str) -> bool:
    ip = _ip(_plain(address))
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip is not None and ip.is_global and not ip.is_multicast


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None
