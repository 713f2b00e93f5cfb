"""How the connections of ranks get on: what a host is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from dtagent.protocol.attempt_key import AttemptKey

MOST_PEERS = 4096
"""Hosts that are told, those first to which most was sent."""


@dataclass(frozen=True)
class TrafficRequest:
    """Asks for the TCP connections of an attempt's ranks here."""

    key: AttemptKey


@dataclass(frozen=True)
class PeerTraffic:
    """What ranks here have sent to one host, over the connections to it that are open now."""

    address: str
    """IPv4 or IPv6, of the host."""
    connections: int
    sent_bytes: int
    """That the host has acknowledged, since its connections were made."""
    busy_s: float
    """Seconds, summed over connections, in which one had something to send and the process there took it in."""


@dataclass(frozen=True)
class TrafficReply:
    """All that, of every host."""

    peers: list[PeerTraffic]
