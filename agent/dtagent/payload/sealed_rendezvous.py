"""torchrun's elastic rendezvous, to which only nodes with the key of the attempt can write; torch only.

c10d keeps its state as a pickle in a store that asks nobody who he is. Here whatever is read from that store is
verified before anything is made of it: an envelope holds the HMAC-SHA256 of the rendezvous' id, of the name that it is
kept under, which names the round, and of what is in it. The state also counts how often each node has written it, so
that an earlier one is known by who reads it, and by who wrote what it lacks. What was deleted, replayed or overwritten
is put back at once, and again by whoever has a newer one; where that cannot be done, all ends with `TamperedError`.

The ranks of each round meet in a store of their own, which torchrun of the first node opens once it knows that all
nodes of the round are still there: else all gather anew. A node that was cut off for so long that others went on
without it leaves by itself: torchrun would take it back, and dttui ends what it gave up, in the middle of that.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import math
import secrets
import socket
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

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
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousBackend,
    create_handler,
)

NAME = "dttui"
"""Of the backend, as `--rdzv-backend` takes it."""
ABSENT = b"-"
"""What is never kept under any name: asked whether it is there, the store tells what is, and waits for nothing."""
QUIET_S = 1.5
"""How long nobody writes after a state was put back, so that a node with a newer one can: longer than torchrun lets
pass between two looks."""
MOST_QUIET_S = 4.0
"""How long a write waits for that: else whoever alters the state again and again would keep all nodes silent."""
PATIENCE_S = 15.0
"""How long something that nobody of us has written may stand where a word of another node is awaited."""
PAUSE_S = 0.02
MOST_REPAIRS = 200
"""In one look at the state: whoever overwrites it faster than that cannot be kept out."""
MOST_PAUSE_S = 0.5
"""Between two looks for a word of another node."""
MEND_S = 60.0
"""How long a node looks after what it has told the others."""
ARRIVALS = "num_members"
"""Where torch counts who has come to a barrier."""
ALL_THERE = "last_member"
"""Beside it, what the last one tells there."""
PRESENT = "dttui/present"
"""Where each node of a round tells that it has come out of the rendezvous."""
PRESENT_S = 20.0
"""How long the first one waits for that: longer than `CUT_OFF_S`, so that whoever is gone is no longer counted then."""
CUT_OFF_S = 15.0
"""How long a node may be silent before torchrun counts it no more."""
MOST_GATHERINGS = 5
"""In a row that come to nothing."""
PLACE = "dttui/store"
"""Where ranks meet, as the first node tells it; empty where not all are there."""
PARTING = "dttui/parting"
"""Where nodes tell at a good end that they ask nothing more."""
PARTING_S = 3.0
"""How long the host waits for that; the others look for its last word every `MOST_PAUSE_S`."""

Listen = Callable[[str, int], "socket.socket | None"]
Report = Callable[[str, str, bool], None]


class TamperedError(RendezvousStateError):
    """Somebody without the key wrote, and it cannot be put right.

    Args:
        what: was altered: `state`, or the name of what nodes tell each other.
        how: `forged`, `replayed`, `deleted`, or `split` where two nodes went on from different states.
    """

    def __init__(self, what: str, how: str) -> None:
        super().__init__(f"the rendezvous was tampered with: {what} {how}")
        self.what = what
        self.how = how


class LeftBehindError(RendezvousStateError):
    """Others went on without this node while it could not be heard."""

    def __init__(self, silent_s: float) -> None:
        super().__init__(f"cut off from the rendezvous for {silent_s:.0f} s, in which others went on without this node")


class Seal:
    """Makes envelopes, and opens those that were made with the same key for the same rendezvous and name."""

    def __init__(self, key: bytes, run_id: str) -> None:
        self._key = key
        self._run_id = run_id

    def close(self, name: str, content: bytes) -> bytes:
        """Return content in an envelope."""
        text = b64encode(content)
        return self._code(name, text) + b"." + text

    def open(self, name: str, envelope: bytes) -> bytes | None:
        """Return what is in an envelope; `None` where it is not one of ours for that name."""
        code, _, text = envelope.partition(b".")
        return b64decode(text) if hmac.compare_digest(code, self._code(name, text)) else None

    def _code(self, name: str, text: bytes) -> bytes:
        place = json.dumps([self._run_id, name]).encode()
        return hmac.new(self._key, place + b"\n" + text, hashlib.sha256).hexdigest().encode()


@dataclass(frozen=True)
class State:
    """What the nodes have agreed on, as far as it was written."""

    writes: dict[str, int] = field(default_factory=dict)
    """Node → how often it has written."""
    content: bytes = b""
    """torchrun's own; empty before the first node has come."""
    mark: str = ""
    """Where it was put back, a word that no other one has."""

    def encode(self) -> bytes:
        """Return it as it is put into an envelope."""
        return json.dumps([self.writes, self.mark]).encode() + b"\n" + self.content

    @classmethod
    def decode(cls, text: bytes) -> State:
        """Return what `encode` made."""
        head, _, content = text.partition(b"\n")
        writes, mark = json.loads(head)
        return cls(writes, content, mark)

    def has_seen(self, other: State) -> bool:
        """Whether it was made with knowledge of another."""
        return all(self.writes.get(node, 0) >= count for node, count in other.writes.items())


class Table:
    """The store that all can write to, as the nodes of the job use it: nothing waits, and a failure is the rendezvous'.

    Args:
        store: a connection.
    """

    def __init__(self, store: TCPStore) -> None:
        self._store = store

    def read(self, name: str) -> bytes | None:
        """Return what is there; `None` for nothing."""
        found = self.exchange(name, ABSENT, ABSENT)
        return None if found == ABSENT else found

    def exchange(self, name: str, expected: bytes, wanted: bytes) -> bytes:
        """Put something in the place of what is expected, empty for nothing; return what is there then.

        Where nothing is, and something was expected, that is what the store returns.
        """
        with _as_connection_error():
            return bytes(self._store.compare_set(name, expected, wanted))  # type: ignore[arg-type]  # it takes both

    def put(self, name: str, value: bytes) -> None:
        """Write, whatever is there."""
        with _as_connection_error():
            self._store.set(name, value)  # type: ignore[arg-type]  # as above


@contextlib.contextmanager
def _as_connection_error() -> Iterator[None]:
    try:
        yield
    except (ValueError, RuntimeError, TimeoutError) as error:
        raise RendezvousConnectionError("The connection to the store of the rendezvous has failed.") from error


class SealedBackend(RendezvousBackend):
    """Keeps the state of a rendezvous.

    Args:
        table: where.
        seal: of the attempt.
        run_id: of the rendezvous.
        is_host: whether the store is this node's, which alone may find it empty.
        report: is told of what was altered.
        mend: is called with each look.
    """

    def __init__(
        self, table: Table, seal: Seal, run_id: str, *, is_host: bool, report: Report, mend: Callable[[], None]
    ) -> None:
        self._table = table
        self._seal = seal
        self._report = report
        self._mend = mend
        self.me = secrets.token_hex(8)
        """What this node is called in there."""
        self._key = f"torch.rendezvous.{run_id}"
        self._members_key = f"{self._key}.members"
        self._looked_at: float | None = None
        self._silent_s = 0.0
        """How long it was silent when others went on without it; 0 where they did not."""
        self._newest: State | None = None
        self._envelope = b""
        """Of the newest."""
        self._quiet_until = 0.0
        self._lock = threading.Lock()
        if is_host:
            self._newest = State({self.me: 1})
            self._envelope = self._seal.close(self._key, self._newest.encode())
            self._table.put(self._key, self._envelope)

    @property
    def name(self) -> str:
        """See base class."""
        return NAME

    def tell_members(self, members: Sequence[str]) -> None:
        """Tell who is in the round that begins."""
        self._table.put(self._members_key, self._seal.close(self._members_key, json.dumps(members).encode()))

    def get_state(self) -> tuple[bytes, Any] | None:
        """See base class. Raises LeftBehindError, and TamperedError where it cannot be put right."""
        with self._lock:
            self._mend()
            state = self._look()
            return (state.content, state.writes) if state.content else None

    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        """See base class. Raises as `get_state` does."""
        with self._lock:
            self._mend()
            for _turn in range(MOST_REPAIRS):
                before = self._look_in_quiet()
                if token != (before.writes if before.content else None):
                    return (before.content, before.writes, False) if before.content else None
                count = before.writes.get(self.me, 0)
                after = State({**before.writes, self.me: count + 1}, state)
                wanted = self._seal.close(self._key, after.encode())
                if self._table.exchange(self._key, self._envelope, wanted) == wanted:
                    self._newest, self._envelope = after, wanted
                    return state, after.writes, True
            raise self._given_up("forged")

    def _look_in_quiet(self) -> State:
        """Return the newest state, once a node that has a newer one would have put it back."""
        limit = time.monotonic() + MOST_QUIET_S
        while True:
            state = self._look()
            if time.monotonic() >= min(self._quiet_until, limit):
                return state
            time.sleep(PAUSE_S)

    def _look(self) -> State:
        """Return the newest state, after putting right whatever had to be."""
        since, repairs = time.monotonic(), 0
        while how := self._judge(found := self._table.read(self._key)):
            if self._newest is None:
                if time.monotonic() - since > PATIENCE_S:
                    raise self._given_up(how)
            else:
                if repairs == MOST_REPAIRS:
                    raise self._given_up(how)
                repairs += 1
                wanted = self._seal.close(self._key, replace(self._newest, mark=secrets.token_hex(8)).encode())
                if self._table.exchange(self._key, found or b"", wanted) == wanted:
                    self._report("state", how, True)
                    continue
            time.sleep(PAUSE_S)
        assert self._newest is not None  # noqa: S101 - there is one once what was found is good
        self._check_left_behind()
        return self._newest

    def _check_left_behind(self) -> None:
        """Raise LeftBehindError from the look on by which a round has begun without this node while it was silent."""
        now = time.monotonic()
        silent_s = now - self._looked_at if self._looked_at is not None else 0.0
        self._looked_at = now
        if silent_s > CUT_OFF_S and not self._silent_s:
            found = self._table.read(self._members_key)
            told = self._seal.open(self._members_key, found) if found is not None else None
            if told is not None and self.me not in json.loads(told):
                self._silent_s = silent_s
        if self._silent_s:
            raise LeftBehindError(self._silent_s)

    def _judge(self, found: bytes | None) -> str:
        """Take what was found for the newest state where it is; else return what is the matter with it."""
        if found is None:
            return "deleted"
        if found == self._envelope:
            return ""
        content = self._seal.open(self._key, found)
        if content is None:
            return "forged"
        state = State.decode(content)
        if self._newest is None or state.has_seen(self._newest):
            self._newest, self._envelope = state, found
            if state.mark:
                self._quiet_until = time.monotonic() + QUIET_S
            return ""
        if self._newest.has_seen(state):
            return "replayed"
        raise self._given_up("split")

    def _given_up(self, how: str) -> TamperedError:
        self._report("state", how, False)
        return TamperedError("state", how)


class SealedStore(Store):
    """What nodes tell each other within a round: each name is written by one node, which puts it back where it is gone.

    A count that all keep cannot be put back, so that at a barrier each node has a name of its own too, and waits for
    those of all others.

    Args:
        table: where.
        seal: of the attempt.
        report: is told of what was altered.
        timeout: how long a word of another node is awaited.
    """

    def __init__(self, table: Table, seal: Seal, report: Report, timeout: timedelta) -> None:
        super().__init__()
        self.set_timeout(timeout)
        self._table = table
        self._seal = seal
        self._report = report
        self._told: dict[str, tuple[bytes, float]] = {}
        """Name → envelope that this node has put there, and until when it looks after that."""
        self._lock = threading.RLock()
        """torch's thread that keeps the rendezvous alive looks after what another one is just telling."""
        self._counted: dict[str, int] = {}
        self._rank, self._size = 0, 1
        self.all_came = False
        """Whether all nodes of the round have come to a barrier, as they do at a good end."""

    def set(self, name: str, value: bytes | str) -> None:
        """Tell the others something."""
        self._tell(name, value.encode() if isinstance(value, str) else value, MEND_S)

    def get(self, name: str) -> bytes:
        """Return what a node has told, as soon as it has. Raises TamperedError where somebody else keeps its place."""
        return self._awaited(name, time.monotonic() + self._limit_s)

    def wait(self, names: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all of it is told. Raises TamperedError as `get` does."""
        deadline = time.monotonic() + (timeout.total_seconds() if timeout is not None else self._limit_s)
        for name in names:
            self._awaited(name, deadline)

    def add(self, name: str, amount: int) -> int:
        """Count something up; return the count of all nodes of the round."""
        self._counted[name] = count = self._counted.get(name, 0) + amount
        self._tell(f"{name}/{self._rank}", str(count).encode(), math.inf)
        found = (self._open(each) for each in self._shares(name))
        return sum(int(content) for content in found if content is not None)

    def forget(self) -> None:
        """Look no more after what was told: that round is over."""
        with self._lock:
            self._told.clear()
        self._counted.clear()
        self.all_came = False

    def number(self, rank: int, size: int) -> None:
        """Take a number among the nodes of the round."""
        self._rank, self._size = rank, size

    def mend(self) -> None:
        """Put back what this node has told of late and somebody has altered."""
        with self._lock:
            for name, (envelope, until) in list(self._told.items()):
                if time.monotonic() > until:
                    self._told.pop(name, None)
                elif (found := self._table.read(name)) != envelope:
                    self._table.put(name, envelope)
                    self._report(_short(name), "deleted" if found is None else "forged", True)

    @property
    def _limit_s(self) -> float:
        return float(self.timeout.total_seconds())  # type: ignore[attr-defined]  # torch's stubs lack it

    def _tell(self, name: str, content: bytes, mend_s: float) -> None:
        envelope = self._seal.close(name, content)
        with self._lock:
            self._told[name] = envelope, time.monotonic() + mend_s
            self._table.put(name, envelope)

    def _shares(self, name: str) -> list[str]:
        return [f"{name}/{rank}" for rank in range(self._size)]

    def _open(self, name: str) -> bytes | None:
        found = self._table.read(name)
        return self._seal.open(name, found) if found is not None else None

    def _awaited(self, name: str, deadline: float) -> bytes:
        stem, _, last = name.rpartition("/")
        if last != ALL_THERE:
            return self._read_entry(name, deadline, PATIENCE_S)
        # Nodes may come to a barrier minutes apart: what a stranger puts there before is no reason to leave them.
        for each in self._shares(f"{stem}/{ARRIVALS}"):
            self._read_entry(each, deadline, math.inf)
        self.all_came = True
        return b""

    def _read_entry(self, name: str, deadline: float, patience_s: float) -> bytes:
        pause_s, strange_since = 0.01, math.inf
        while True:
            found = self._table.read(name)
            content = self._seal.open(name, found) if found is not None else None
            if content is not None:
                return content
            now = time.monotonic()
            strange_since = min(strange_since, now) if found is not None else math.inf
            if now - strange_since > patience_s:
                raise self._tampered(name)
            if now > deadline:
                raise DistStoreError(f"no node has told {_short(name)} in time")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, MOST_PAUSE_S)
            self.mend()

    def _tampered(self, name: str) -> TamperedError:
        self._report(_short(name), "forged", False)
        return TamperedError(_short(name), "forged")


def _short(name: str) -> str:
    """Return a name without the rendezvous and the round that it is of."""
    return name.partition("/")[2] or name


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


def open_store(address: str, port: int, listen: Listen, **options: Any) -> TCPStore:
    """Open a store that listens on one address, or where that cannot be, on all.

    Args:
        address: of this host.
        port: 0 for any that is free.
        listen: binds it.
        **options: more of `TCPStore`.

    Raises:
        OSError: the port is taken.
        RuntimeError: torch cannot listen, or cannot reach itself there.
    """
    bound = listen(address, port)
    if bound is not None:
        port = bound.getsockname()[1]
        options["master_listen_fd"] = bound.detach()
    return TCPStore(address, port, is_master=True, wait_for_workers=False, **options)


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
        shared = SealedStore(table, seal, report, _read_timeout(parameters))
        is_host = bool(parameters.get_as_bool("is_host"))
        backend = SealedBackend(table, seal, parameters.run_id, is_host=is_host, report=report, mend=shared.mend)
        inner = create_handler(shared, backend, parameters)
        address = parameters.local_addr or socket.getfqdn()
        return Handler(inner, backend, shared, address, listen, is_host=is_host)

    rendezvous_handler_registry.register(NAME, create)


def connect(parameters: RendezvousParameters, listen: Listen) -> TCPStore:
    """Open the store, or connect to it. Raises RendezvousConnectionError."""
    host, _, port = parameters.endpoint.strip().rpartition(":")
    host, timeout = host.strip("[]"), _read_timeout(parameters)
    try:
        if parameters.get_as_bool("is_host"):
            return open_store(host, int(port), listen, timeout=timeout)
        return TCPStore(host, int(port), is_master=False, timeout=timeout)
    except (OSError, ValueError, RuntimeError) as error:
        raise RendezvousConnectionError(f"The store of the rendezvous cannot be had: {error}") from error


def _read_timeout(parameters: RendezvousParameters) -> timedelta:
    return timedelta(seconds=parameters.get_as_int("read_timeout") or 60)
