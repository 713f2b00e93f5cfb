"""The state of a rendezvous: what its nodes have agreed on, as torchrun reads and writes it."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend

from .errors import LeftBehindError, Report, TamperedError
from .seal import Seal
from .shared_table import PATIENCE_S, Table

NAME = "dttui"
"""Of the backend, as `--rdzv-backend` takes it."""
CUT_OFF_S = 15.0
"""How long a node may be silent before torchrun counts it no more."""
QUIET_S = 1.5
"""How long nobody writes after a state was put back, so that a node with a newer one can: longer than torchrun lets
pass between two looks."""
MOST_QUIET_S = 4.0
"""How long a write waits for that: else whoever alters the state again and again would keep all nodes silent."""
PAUSE_S = 0.02
MOST_REPAIRS = 200
"""In one look at the state: whoever overwrites it faster than that cannot be kept out."""


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
