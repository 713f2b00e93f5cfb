"""What the nodes of a round tell each other."""

from __future__ import annotations

import math
import threading
import time
from datetime import timedelta

from torch.distributed import (  # type: ignore[attr-defined]  # its own stubs do not say that it exports them
    DistStoreError,
    Store,
)

from .errors import Report, TamperedError
from .seal import Seal
from .shared_table import PATIENCE_S, Table

ARRIVALS = "num_members"
"""Where torch counts who has come to a barrier."""
ALL_THERE = "last_member"
"""Beside it, what the last one tells there."""
MEND_S = 60.0
"""How long a node looks after what it has told the others."""
MOST_PAUSE_S = 0.5
"""Between two looks for a word of another node."""


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
