"""The rounds of a rendezvous, as torchrun goes through them."""

from __future__ import annotations

import contextlib
import json
import socket
from datetime import timedelta

from torch.distributed import (  # type: ignore[attr-defined]  # its own stubs do not say that it exports them
    DistStoreError,
    Store,
    TCPStore,
)
from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, create_handler

from .agreed_state import NAME, SealedBackend
from .errors import Report
from .round_store import ALL_THERE, ARRIVALS, SealedStore
from .seal import Seal
from .shared_table import Listen, Table, connect, open_store, read_timeout

PRESENT = "dttui/present"
"""Where each node of a round tells that it has come out of the rendezvous."""
PRESENT_S = 20.0
"""How long the first one waits for that: longer than `CUT_OFF_S`, so that whoever is gone is no longer counted then."""
MOST_GATHERINGS = 5
"""In a row that come to nothing."""
PLACE = "dttui/store"
"""Where ranks meet, as the first node tells it; empty where not all are there."""
PARTING = "dttui/parting"
"""Where nodes tell at a good end that they ask nothing more."""
PARTING_S = 3.0
"""How long the host waits for that; the others look for its last word every `MOST_PAUSE_S`."""


class Handler(RendezvousHandler):
    """A rendezvous as torchrun has it, whose ranks meet in a store of each round.

    Args:
        inner: does all else.
        backend: what it keeps its state in.
        store: what nodes tell each other in.
        address: of this node, where its ranks' store would be.
        listen: binds it.
        is_host: whether the store is this node's.
    """

    def __init__(
        self,
        inner: DynamicRendezvousHandler,
        backend: SealedBackend,
        store: SealedStore,
        address: str,
        listen: Listen,
        *,
        is_host: bool,
    ) -> None:
        self._inner = inner
        self._backend = backend
        self._store = store
        self._address = address
        self._listen = listen
        self._is_host = is_host
        self._round: Store | None = None
        """What nodes tell each other in this round."""
        self._ranks: TCPStore | None = None
        """Where the ranks of this round meet, on the first node."""

    def get_backend(self) -> str:
        """See base class."""
        return NAME

    @property
    def use_agent_store(self) -> bool:
        """See base class."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """See base class. Raises LeftBehindError, and TamperedError where somebody else wrote to it."""
        for _turn in range(MOST_GATHERINGS):
            self._store.forget()
            found = self._inner.next_rendezvous()
            self._store.number(found.rank, found.world_size)
            self._round = found.store
            if (place := self._place(found)) is not None:
                return RendezvousInfo(found.store, found.rank, found.world_size, RendezvousStoreInfo(*place))
        raise RendezvousTimeoutError(f"{MOST_GATHERINGS} times in a row not all nodes of a round were there")

    def _place(self, found: RendezvousInfo) -> tuple[str, int] | None:
        """Return where the ranks of a round meet; `None` where not all of its nodes are there."""
        found.store.set(f"{PRESENT}/{found.rank}", self._backend.me)
        if found.rank == 0:
            found.store.set(PLACE, json.dumps(self._begin(found)))
        with contextlib.suppress(DistStoreError):  # The first node has gone.
            found.store.wait([PLACE], timedelta(seconds=2 * PRESENT_S))
            address, port = json.loads(found.store.get(PLACE)) or ("", 0)
            return (address, port) if port else None
        return None

    def _begin(self, found: RendezvousInfo) -> tuple[str, int] | None:
        names = [f"{PRESENT}/{rank}" for rank in range(found.world_size)]
        try:
            found.store.wait(names, timedelta(seconds=PRESENT_S))
        except DistStoreError:
            return None
        self._backend.tell_members([bytes(found.store.get(name)).decode() for name in names])
        # The one before goes only then, so that its port is not taken again: rounds are told apart by it.
        self._ranks = open_store(self._address, 0, self._listen)
        return self._address, self._ranks.port

    def is_closed(self) -> bool:
        """See base class."""
        return self._inner.is_closed()

    def set_closed(self) -> None:
        """See base class."""
        self._inner.set_closed()

    def num_nodes_waiting(self) -> int:
        """See base class."""
        return self._inner.num_nodes_waiting()

    def get_run_id(self) -> str:
        """See base class."""
        return self._inner.get_run_id()

    def shutdown(self) -> bool:
        """See base class. The host ends last where all end well, since its store goes with it."""
        is_closed = self._inner.shutdown()
        if self._round is not None and self._store.all_came:
            with contextlib.suppress(RendezvousConnectionError, DistStoreError):
                self._round.add(f"{PARTING}/{ARRIVALS}", 1)
                if self._is_host:
                    self._round.wait([f"{PARTING}/{ALL_THERE}"], timedelta(seconds=PARTING_S))
        return is_closed


def register(key: bytes, listen: Listen, report: Report) -> None:
    """Let torchrun have this rendezvous by its name.

    Args:
        key: of the attempt.
        listen: binds the stores that this node opens.
        report: is told what was altered, how, and whether that was put right.
    """

    def create(parameters: RendezvousParameters) -> Handler:
        store = connect(parameters, listen)
        seal, table = Seal(key, parameters.run_id), Table(store)
        shared = SealedStore(table, seal, report, read_timeout(parameters))
        is_host = bool(parameters.get_as_bool("is_host"))
        backend = SealedBackend(table, seal, parameters.run_id, is_host=is_host, report=report, mend=shared.mend)
        inner = create_handler(shared, backend, parameters)
        address = parameters.local_addr or socket.getfqdn()
        return Handler(inner, backend, shared, address, listen, is_host=is_host)

    rendezvous_handler_registry.register(NAME, create)
