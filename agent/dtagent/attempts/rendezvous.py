"""Whether the processes of an attempt have found the other nodes: what their sockets say of the rendezvous port."""

from __future__ import annotations

import contextlib

import psutil

from dtagent.attempts import adoption
from dtagent.attempts.preparation import key_of
from dtagent.locations import AttemptFiles, rank_of
from dtagent.protocol.meeting import RendezvousReply
from dtagent.supervision.family import Family
from dtagent.system import untrusted_files


def look(files: AttemptFiles, node_rank: int, port: int) -> RendezvousReply:
    """Look at the sockets of all processes of an attempt.

    Args:
        files: of the attempt.
        node_rank: of this node.
        port: where the master listens.
    """
    supervisor = adoption.identity(files)
    family = Family(key_of(files), node_rank, supervisor.pid if supervisor is not None else None)
    is_listening = is_connected = False
    ranks = _ranks(files, port)
    connected = set()
    for process in family.scan():
        rank, store_port = ranks.get((process.pid, process.start_time), (None, port))
        with contextlib.suppress(psutil.Error, OSError):  # It has ended meanwhile.
            for link in psutil.Process(process.pid).net_connections("tcp"):
                is_listening |= link.status == psutil.CONN_LISTEN and link.laddr.port == port
                if link.status == psutil.CONN_ESTABLISHED and link.raddr:
                    is_connected |= link.raddr.port == port
                    if rank is not None and link.raddr.port == store_port:
                        connected.add(rank)
    return RendezvousReply(is_listening, is_connected, sorted(connected))


def _ranks(files: AttemptFiles, port: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Return which process, by pid and start time, is which rank, and where its store is: as the ranks wrote it."""
    found = {}
    for path in files.ranks.glob("*.json"):
        rank = rank_of(path)
        if rank is not None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
                told = untrusted_files.read_object(path)
                found[int(told["pid"]), int(told["start_time"])] = rank, int(told.get("port", port))
    return found
