"""How the ranks that are left of a group make a new one: they find each other as they found out who is missing.

The lowest of them decides, opens a store of its own for it and tells the others where; no store of before is needed,
whose host may be lost. Two parts of a group that do not reach each other never both go on: a part needs more than half
of the ranks that are not known to have ended, or half of them and the lowest among those. A new group begins with
all of its ranks connecting to each other; where one does not, nobody has it.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # they are in no `__all__`

from .errors import START_AGAIN, CollectiveError, CollectiveTimeoutError, named
from .rank_status import Door, RankAbsence, RankStanding, ask, own_address

_POLL_S = 0.05
_ANSWER_S = 0.5
_SILENT_S = 1.5
"""For how long a rank has to be silent before the others go on without it."""


class Regrouping:
    """One rank's way from a group that is lost to the next one.

    Args:
        standing: of this process in the group that is lost.
        world_size: of that.
    """

    def __init__(self, standing: RankStanding, world_size: int) -> None:
        self._standing = standing
        self._everyone = range(world_size)
        self._tried: set[str] = set()
        self._store: Any = None
        """Kept where this rank opened it."""
        self._silent_since: dict[int, float] = {}

    def meet(self, *, everyone: bool, timeout_s: float) -> tuple[Any, RankStanding, list[int]]:
        """Return a gloo group, how this process stands in it, and the ranks of before that it has, by new numbers.

        Args:
            everyone: whether all have to come; else those that are left, once each of the others has ended, has been
                silent for a while, or has not come in time.
            timeout_s: how long others are waited for.

        Raises:
            CollectiveTimeoutError: ranks did not come that are needed; they are its `missing`.
            CollectiveError: ranks want different things, have gone on without this one, or nobody knows where others
                answer.
        """
        standing = self._standing
        deadline = time.monotonic() + timeout_s
        if not standing.is_introduced and standing.find is None:
            raise CollectiveError(
                f"this group was lost before its ranks had told each other where they answer: {START_AGAIN}"
            )
        standing.wants, standing.decision = "rebuild" if everyone else "shrink", None
        self._silent_since.clear()
        try:
            decision = self._decision(deadline)
            self._tried.add(decision["id"])
            return *self._connected(decision, deadline), decision["members"]
        finally:
            standing.wants = ""

    def _decision(self, deadline: float) -> dict[str, Any]:
        """Wait for the decision of one rank, or make it; look at the ranks again and again."""
        own, wants = self._standing.rank, self._standing.wants
        while True:
            self._standing.look_up()
            told = ask(self._standing.doors, _ANSWER_S)
            answers = {rank: answer for rank, answer in told.items() if not isinstance(answer, RankAbsence)}
            made = self._made_elsewhere(answers)
            if made is not None:
                return _own_part(made, own)
            ready = self._ready(answers)
            gone = {rank for rank, answer in told.items() if answer is RankAbsence.GONE}
            awaited = set(self._everyone) - ready
            if wants != "rebuild":
                awaited = self._awaited(awaited - gone, answers)
            elif gone:
                raise CollectiveTimeoutError(f"{named(gone)} ended: `shrink` goes on without", gone)
            is_over = time.monotonic() > deadline
            if is_over and (wants == "rebuild" or min(ready) != own):
                missing = sorted(awaited) or [min(ready)]
                raise CollectiveTimeoutError(f"{wants} timed out: {named(missing)} did not come", missing)
            if min(ready) == own and (is_over or not awaited):
                return self._decided(ready, gone, deadline)
            time.sleep(_POLL_S)

    def _made_elsewhere(self, answers: Mapping[int, Any]) -> dict[str, Any] | None:
        """Return the decision that another rank has made and this one has not tried; `None` where there is none."""
        made = [answer["decision"] for answer in answers.values() if answer["decision"]]
        return next((decision for decision in made if decision["id"] not in self._tried), None)

    def _ready(self, answers: Mapping[int, Any]) -> set[int]:
        """Return the ranks that have come for a new group. Raises CollectiveError where they want different things."""
        own, wants = self._standing.rank, self._standing.wants
        ready = {rank for rank, answer in answers.items() if answer["wants"]}
        others = [rank for rank in ready if rank != own and answers[rank]["wants"] != wants]
        if others:
            raise CollectiveError(f"this rank wants to {wants} the group, and {named(others)} not")
        return {own} | ready

    def _awaited(self, absent: set[int], answers: Mapping[int, object]) -> set[int]:
        """Return who may still come: those that answer, and those that have not been silent for long."""
        now = time.monotonic()
        silent = absent - set(answers)
        for rank in list(self._silent_since):
            if rank not in silent:
                del self._silent_since[rank]
        return {
            rank for rank in absent if rank in answers or now - self._silent_since.setdefault(rank, now) < _SILENT_S
        }

    def _decided(self, ready: set[int], gone: set[int], deadline: float) -> dict[str, Any]:
        """Decide for all that are ready: have a store, and tell where it is."""
        left = set(self._everyone) - gone
        decision: dict[str, Any] = {"id": secrets.token_hex(8), "members": sorted(ready)}
        if 2 * len(ready) > len(left) or (2 * len(ready) == len(left) and min(left) in ready):
            host = self._standing.door.host if self._standing.door is not None else own_address()
            self._store = _store_at(host, max(1.0, deadline - time.monotonic()))
            decision["store"] = [host, self._store.port]
        else:
            decision["absent"] = sorted(left - ready)
        self._standing.decision = decision
        return _own_part(decision, self._standing.rank)

    def _connected(self, decision: Mapping[str, Any], deadline: float) -> tuple[Any, RankStanding]:
        members: list[int] = decision["members"]
        own = members.index(self._standing.rank)
        standing = RankStanding(own)
        host, port = decision["store"]
        # All have decided by now, and what is left to wait for is the network.
        limit = timedelta(seconds=max(5.0, deadline - time.monotonic()))
        try:
            if own:
                self._store = TCPStore(host, port, is_master=False, timeout=limit)
            store = PrefixStore(decision["id"], self._store)
            store.set(f"door {own}", json.dumps(standing.open()))
            made = dist.ProcessGroupGloo(store, own, len(members), limit)
            # All have connected to each other, and had written that before.
            others = {rank: Door(*json.loads(store.get(f"door {rank}"))) for rank in range(len(members)) if rank != own}
            standing.know({rank: door for rank, door in others.items() if door.host})
            return made, standing
        except RuntimeError as error:
            told = ask({rank: door for rank, door in self._standing.doors.items() if rank in members}, _ANSWER_S)
            missing = [rank for rank, answer in told.items() if isinstance(answer, RankAbsence)]
            raise CollectiveTimeoutError(f"the new group did not come together: {error}", missing) from error


def _own_part(decision: dict[str, Any], own: int) -> dict[str, Any]:
    """Return a decision that is for this rank. Raises where it is not."""
    members = decision["members"]
    if own not in members:
        raise CollectiveError(f"{named(members)} went on without this rank, which did not answer them")
    if "absent" in decision:
        absent = decision["absent"]
        raise CollectiveTimeoutError(
            f"{named(members)} cannot go on without {named(absent)}, who may go on without them: too few are left",
            absent,
        )
    return decision


def _store_at(host: str, timeout_s: float) -> Any:
    """Return a new store, at a port of the system's choice, on one address alone."""
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    port = listener.getsockname()[1]
    return TCPStore(
        host,
        port,
        is_master=True,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
