"""Whether the nodes reach each other: all to the master's port, and each to the next, as the job will.

Every node listens for a moment on an ephemeral port, as gloo and NCCL will, and the master on one of its port range.
No node waits for one that does not answer longer than its own deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dtagent.protocol.probes import (
    TOKEN_BYTES,
    HushRequest,
    ListenReply,
    ListenRequest,
    Reached,
    ReachOutcome,
    ReachReply,
    ReachRequest,
    ReachTarget,
)
from dtagent.protocol.rpc import ErrorCode

from dttui.agent_words import agent_text
from dttui.errors import AgentError, HostError, UsageError
from dttui.fleet.known_hardware import record_links
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.jobs.board import Judgement
from dttui.jobs.checks import CheckStatus
from dttui.planning.cost.links import MeasuredLink, between_zones
from dttui.planning.models import Finding
from dttui.rpc.client import AgentClient
from dttui.sanitize import clean
from dttui.spec.findings import error, warning
from dttui.transport.deadline import within

Value = TypeVar("Value")

PROBE_S = 4.0
"""How long a connection may take: a packet lost twice still comes through."""
CALL_MARGIN_S = 5.0
LISTEN_S = 45.0
HUSH_S = 2.0
WAIT_S = 30.0
"""How long a node waits for the one it is to reach to listen: that one may only just be connecting."""
LOAD_BYTES = 128 << 20
LOAD_S = 1.0


@dataclass(frozen=True)
class Listening:
    """A node's open ears."""

    token: str
    port: int


@dataclass
class Peer:
    """One node as the others see it; what is not known yet is awaited."""

    name: str
    address: asyncio.Future[str | None]
    """Where it is to be reached; `None` where it cannot be."""
    main: asyncio.Future[Listening | None]
    """Its listener on a port of the range; of the master alone."""
    ephemeral: asyncio.Future[Listening | None]
    client: AgentClient | None = None
    usual_address: str | None = None
    to_master: Reached | None = None
    to_next: Reached | None = None
    tokens: list[str] = field(default_factory=list)

    @classmethod
    def named(cls, name: str) -> Peer:
        """Return a node of which nothing is known yet."""
        loop = asyncio.get_running_loop()
        return cls(name, loop.create_future(), loop.create_future(), loop.create_future())

    def give_up(self) -> None:
        """Let nobody wait for this node any more."""
        for future in (self.address, self.main, self.ephemeral):
            if not future.done():
                future.set_result(None)


class Network:
    """The probes between the nodes of one job, the master first."""

    def __init__(
        self,
        names: Sequence[str],
        port_range: tuple[int, int],
        master_address: str | None = None,
        *,
        measures_bandwidth: bool,
    ) -> None:
        self.peers = {name: Peer.named(name) for name in names}
        self._master = self.peers[names[0]]
        self._port_range = port_range
        self._master_address = master_address
        """Where the master listens as a job would."""
        self._load_bytes = LOAD_BYTES if measures_bandwidth else 0
        self._no_port: Judgement | None = None
        """Of the master where every port of its range is taken."""

    @property
    def master_port(self) -> int | None:
        """Where the master listened, of its range of ports; `None` where it did not."""
        listening = _done(self._master.main)
        return listening.port if listening is not None else None

    async def try_port(self, name: str, client: AgentClient) -> Judgement:
        """Look for a free port on the only node of a job, which no other is to reach. Raises HostError."""
        peer = self.peers[name]
        peer.client = client
        listening = await self._open_main(peer, client)
        peer.main.set_result(listening)
        if listening is None:
            return self._no_port or Judgement(status=CheckStatus.UNKNOWN)
        return Judgement(_("port {port}").format(port=listening.port))

    async def listen(self, name: str, client: AgentClient, usual_address: str) -> None:
        """Open the listeners of a node. Raises HostError.

        Args:
            name: of the node.
            client: its agent.
            usual_address: where others look for it as long as its own address toward the master is not known.
        """
        peer = self.peers[name]
        peer.client, peer.usual_address = client, usual_address
        if peer is self._master:
            peer.main.set_result(await self._open_main(peer, client))
        peer.ephemeral.set_result(await self._open(peer, client, None))

    async def reach_master(self, name: str, address: str | None) -> Judgement:
        """Let a node, the master too, connect to the master's port. Raises HostError.

        Args:
            name: of the node.
            address: the master's; `None` where it cannot be reached itself.
        """
        peer = self.peers[name]
        listening = await _within(self._master.main, WAIT_S)
        source = None
        try:
            if peer is self._master and self._no_port is not None:
                return self._no_port
            if listening is None or address is None or peer.client is None:
                return Judgement(_("{host} does not listen").format(host=self._master.name), status=CheckStatus.UNKNOWN)
            found = peer.to_master = await self._reach(peer.client, address, listening, 0)
            source = found.source
        finally:
            if not peer.address.done():  # What others will be told is its address on this interface.
                peer.address.set_result(source or peer.usual_address)
        return self.judge_master(name, address)

    def judge_master(self, name: str, address: str) -> Judgement:
        """Say how a node reached the master, by what is known of all nodes so far."""
        peer, master = self.peers[name], self._master
        found, listening = peer.to_master, _done(master.main)
        if found is None or listening is None:
            return Judgement(status=CheckStatus.UNKNOWN)
        where = f"{name} → {master.name}:{listening.port}"
        is_wrong_loopback = is_loopback(found.address) and (
            found.outcome is not ReachOutcome.REACHED or (peer is master and self._is_reached_from_afar())
        )
        if is_wrong_loopback:
            message = _("{where}: the name {address} resolves to loopback ({ip}) on {host}")
            message = message.format(where=where, address=address, ip=clean(found.address or ""), host=name)
            hint = _("Set `address` of {master} in the inventory to its IP address, or correct /etc/hosts of {host}.")
            hint = hint.format(master=master.name, host=name)
            return Judgement(_("loopback"), (error("address-loopback", name, message, hint),))
        if found.outcome is ReachOutcome.REACHED:
            return Judgement(_route(found), () if found.interface else (_no_interface(name),))
        message, hint = connection_failure(where, found, address, master.name)
        code = "address-unknown" if found.outcome is ReachOutcome.UNRESOLVED else "master-unreachable"
        return Judgement(reach_word(found.outcome), (error(code, name, message, hint),))

    async def reach_next(self, name: str) -> Judgement:
        """Let a node connect to the next one, as in a ring. Raises HostError."""
        peer, target = self.peers[name], self._next(name)
        listening = await _within(target.ephemeral, WAIT_S)
        address = await _within(target.address, WAIT_S)
        if listening is None or address is None or peer.client is None:
            return Judgement(_("{host} does not listen").format(host=target.name), status=CheckStatus.UNKNOWN)
        found = peer.to_next = await self._reach(peer.client, address, listening, self._load_bytes)
        if found.outcome is ReachOutcome.REACHED:
            return Judgement(f"{target.name} {_route(found)}")
        where = f"{name} → {target.name}:{listening.port}"
        message, _hint = connection_failure(where, found, address, target.name)
        hint = _("gloo and NCCL take any free port: open all TCP ports between the hosts.")
        finding = warning("peer-unreachable", name, message, hint)
        return Judgement(f"{target.name} " + reach_word(found.outcome), (finding,))

    async def close(self) -> None:
        """End the listeners; those that cannot be told end by themselves."""
        await asyncio.gather(*(self._hush(peer, token) for peer in self.peers.values() for token in peer.tokens))

    def links(self, environments: Iterable[Environment], now: float) -> list[MeasuredLink]:
        """Return what was measured between hosts, and the slowest of it between zones; loopback is no link.

        Args:
            environments: of the inventory, the nodes among them.
            now: seconds since the epoch.
        """
        found: list[MeasuredLink] = []
        known = {item.name: item for item in environments}
        for name, peer in self.peers.items():
            reached, other = peer.to_next, self._next(name).name
            if reached is None or is_loopback(reached.address) or not reached.round_trip_s:
                continue
            there = self.peers[other].to_next
            found.append(
                MeasuredLink(
                    kind="hosts",
                    between=(name, other),
                    addresses=(known[name].training_address, known[other].training_address),
                    interfaces=(reached.interface or "", (there.interface if there is not None else None) or ""),
                    bandwidth=reached.bytes_per_s or None,
                    round_trip_s=reached.round_trip_s,
                    measured_at=now,
                )
            )
        return [*found, *between_zones(found, {item.name: item.zone for item in known.values()})]

    def _next(self, name: str) -> Peer:
        names = list(self.peers)
        return self.peers[names[(names.index(name) + 1) % len(names)]]

    def _is_reached_from_afar(self) -> bool:
        others = (peer.to_master for peer in self.peers.values() if peer is not self._master)
        return any(found is not None and found.address and not is_loopback(found.address) for found in others)

    async def _open_main(self, peer: Peer, client: AgentClient) -> Listening | None:
        """Open the listener on a port of the master's range; `None` where none is free, which is kept as an error."""
        try:
            return await self._open(peer, client, self._port_range)
        except AgentError as failure:
            if failure.code != ErrorCode.REFUSED:
                raise
        self._no_port = Judgement(_("no free port"), (no_free_port(peer.name, self._port_range),))
        return None

    async def _open(self, peer: Peer, client: AgentClient, ports: tuple[int, int] | None) -> Listening:
        token = secrets.token_hex(TOKEN_BYTES)
        # More may be on its way when the probe has what it wanted.
        room = 0 if ports is not None else 2 * self._load_bytes
        own = self._master_address if ports is not None else None
        request = ListenRequest(token, LISTEN_S, ports, room, own)
        reply = await client.call("listen", request, ListenReply, CALL_MARGIN_S)
        peer.tokens.append(token)
        return Listening(token, reply.port)

    async def _reach(self, client: AgentClient, address: str, to: Listening, load_bytes: int) -> Reached:
        target = ReachTarget(address, to.port, to.token, load_bytes=load_bytes, load_s=LOAD_S)
        limit_s = PROBE_S + LOAD_S + CALL_MARGIN_S
        reply = await client.call("reach", ReachRequest([target], PROBE_S), ReachReply, limit_s)
        return reply.results[0] if reply.results else Reached(ReachOutcome.FAILED)

    async def _hush(self, peer: Peer, token: str) -> None:
        if peer.client is not None:
            with contextlib.suppress(HostError):
                await peer.client.call("hush", HushRequest(token), dict, HUSH_S)


def record(links: Iterable[MeasuredLink]) -> Finding | None:
    """Keep measurements for plans to come, where there are any; return what is to be said where that fails."""
    try:
        if kept := list(links):
            record_links(kept)
    except UsageError as refusal:
        return warning("links-not-kept", "links", refusal.message, refusal.hint)
    return None


def no_free_port(host: str, ports: tuple[int, int]) -> Finding:
    """Return what is to be said of a host where a master would find no port of its range."""
    first, last = ports
    message = _("{host}: no port is free for the master: {first} to {last} are all taken")
    hint = _("Widen port_range of {host} in the inventory, or free one of these ports.").format(host=host)
    return error("no-free-port", host, message.format(host=host, first=first, last=last), hint)


def reach_word(outcome: ReachOutcome) -> str:
    """Return in a word how an attempt to connect failed."""
    return {
        ReachOutcome.REACHED: _("reached"),
        ReachOutcome.REFUSED: _("refused"),
        ReachOutcome.TIMED_OUT: _("timed out"),
        ReachOutcome.NO_ROUTE: _("no route"),
        ReachOutcome.UNRESOLVED: _("name not known"),
        ReachOutcome.STRANGER: _("somebody else answers"),
        ReachOutcome.FAILED: _("failed"),
    }[outcome]


def connection_failure(where: str, found: Reached, address: str, host: str) -> tuple[str, str]:
    """Return message and hint of an attempt that failed."""
    tried = found.address if found.address and found.address != address else None
    place = f"{address} = {clean(tried)}" if tried else address
    message = f"{where} " + reach_word(found.outcome) + f" ({place})"
    if found.detail and found.outcome in (ReachOutcome.FAILED, ReachOutcome.UNRESOLVED):
        message += ": " + agent_text(found.detail, found.detail_notice)
    wrong = _("`address` of {host} in the inventory must be its own, in a network that all nodes share.")
    hints = {
        ReachOutcome.REFUSED: _("A firewall refuses it, or {address} is another host."),
        ReachOutcome.TIMED_OUT: _("A firewall drops it, or {address} is not reached from there."),
        ReachOutcome.NO_ROUTE: _("A firewall refuses it, or there is no route to {address} from there."),
        ReachOutcome.UNRESOLVED: _("That name has no address there."),
        ReachOutcome.STRANGER: _("{address} leads to another host, or something answers in its place."),
    }
    wrong = wrong.format(host=host)
    if found.outcome not in hints:
        return message, wrong
    return message, hints[found.outcome].format(address=address) + " " + wrong


def _route(found: Reached) -> str:
    parts = [clean(found.interface or "?")]
    if found.round_trip_s is not None:
        parts.append(f"{found.round_trip_s * 1e3:.2g} ms")
    if found.bytes_per_s is not None:
        parts.append(f"{found.bytes_per_s * 8 / 1e9:.3g} Gbit/s")
    return " ".join(parts)


def _no_interface(name: str) -> Finding:
    message = _("{host}: it cannot be told which interface leads to the master").format(host=name)
    return warning("no-interface", name, message, _("Set resources.network.interface in the job."))


def is_loopback(address: str | None) -> bool:
    """Whether an address is this host's alone."""
    with contextlib.suppress(ValueError):
        ip = ipaddress.ip_address((address or "").partition("%")[0])
        mapped = getattr(ip, "ipv4_mapped", None)
        return bool((mapped or ip).is_loopback)
    return False


def _done(future: asyncio.Future[Listening | None]) -> Listening | None:
    return future.result() if future.done() else None


async def _within(future: asyncio.Future[Value | None], limit_s: float) -> Value | None:
    with contextlib.suppress(asyncio.TimeoutError):
        return await within(asyncio.shield(future), limit_s)
    return None
