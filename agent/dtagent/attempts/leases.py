"""GPUs, simulated GPUs and ports that are set aside for a start: whose they are, and for how long."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dtagent.attempts import history, preparation
from dtagent.attempts.gpu_turns import GpuOffer, in_the_way, offer
from dtagent.attempts.shared_gpus import SharedGpus
from dtagent.attempts.waiting_line import PLACE_S, WaitingLine, told
from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.preparation import PrepareReply, PrepareRequest
from dtagent.protocol.queueing import QueueReply, QueueRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.protocol.said import Said
from dtagent.system import users
from dtagent.system.gpu_line import Ticket, Waiter
from dtagent.system.gpu_locks import Holder, Purpose
from dtagent.system.interfaces import reserve_port

LEASE_S = 60.0
"""How long what was prepared keeps its GPUs and its port from the last word of its client on."""


@dataclass(frozen=True)
class Claim:
    """What one attempt has."""

    key: AttemptKey
    gpu_ids: tuple[int, ...]
    simulated_slots: int
    is_started: bool
    since_s: float
    """Unix time at which they were set aside for it."""


class Leases:
    """What the attempts under one root have set aside. Callers see to it that one at a time asks."""

    def __init__(
        self, root: Path, free_gpus: Callable[[], list[int]], shared_gpus: SharedGpus, line: WaitingLine
    ) -> None:
        self._root = root
        self._line = line
        self._shared_gpus = shared_gpus
        self._free_gpus = free_gpus
        self._ports: dict[AttemptKey, socket.socket] = {}
        self._heard: dict[AttemptKey, float] = {}
        """Monotonic time of the last word on an attempt that is only prepared."""
        self._lined_up: set[AttemptKey] = set()
        """Attempts that have come to an end, and whose jobs were given the places that such have."""
        self._since = time.monotonic()

    def renew(self, key: AttemptKey) -> None:
        """Begin the lease anew."""
        self._heard[key] = time.monotonic()

    def release(self, key: AttemptKey) -> None:
        """End the lease, and let go of the port."""
        self._heard.pop(key, None)
        self._shared_gpus.release(key)
        self._release_port(key)

    @contextlib.contextmanager
    def handed_over(self, key: AttemptKey) -> Iterator[list[int]]:
        """End the lease of an attempt whose supervisor is about to start, which is to inherit what is yielded."""
        self._heard.pop(key, None)
        self._release_port(key)
        held = self._shared_gpus.hand_over(key)
        try:
            yield held
        finally:
            for descriptor in held:
                os.close(descriptor)

    @contextlib.contextmanager
    def kept_on_success(self, key: AttemptKey) -> Iterator[None]:
        """Let go of what is set aside meanwhile if nothing comes of it."""
        try:
            yield
        except BaseException:
            self.release(key)
            raise

    def _release_port(self, key: AttemptKey) -> None:
        held = self._ports.pop(key, None)
        if held is not None:
            held.close()

    def expire(self) -> None:
        """Let go of the ports and GPUs of those who have fallen silent."""
        for key in {*self._ports, *self._shared_gpus.keys()}:
            if not self._is_live(key):
                self.release(key)

    def take_gpus(self, request: PrepareRequest) -> list[int]:
        """Choose the GPUs of an attempt, and see to it that there are simulated ones.

        Raises:
            RpcError: REFUSED where there are not enough but for who waits since before that, or not those that it
                names, with the jobs that have them; CONTENDED where all of those are only being prepared, and go
                second.
        """
        claims = self._claims(request.key)
        asked_at = time.time() if request.asked_at is None else request.asked_at
        before = self._line.before(asked_at, request.key.job_id)
        if request.simulated_total:
            _check_simulated(request, claims, before)
        if not request.cuda_slots:
            self._line.leave(request.key.job_id)
            return []
        self._check_named(request.gpu_ids)
        self.expire()
        found = self._offer(self._free(claims), request.gpu_ids, before)
        chosen = self._shared_gpus.take(
            request.key, found.indices, request.cuda_slots, request.for_s, leaves=found.leaves
        )
        self.renew(request.key)
        if len(chosen) < request.cuda_slots:
            self.release(request.key)
            raise self._too_few(request, chosen, claims, in_the_way(before, request.gpu_ids, self._named))
        self._line.leave(request.key.job_id)
        return chosen if request.gpu_ids else sorted(chosen)

    def _free(self, claims: Sequence[Claim]) -> list[int]:
        """Return the GPUs that nobody has or uses."""
        held = {*self._shared_gpus.holders([]), *(index for claim in claims for index in claim.gpu_ids)}
        return [index for index in self._free_gpus() if index not in held]

    def _offer(self, free: Sequence[int], wanted: Sequence[int], before: Sequence[Waiter]) -> GpuOffer:
        return offer(free, wanted, before, self._line.waiters(), self._named)

    def _named(self, waiter: Waiter) -> frozenset[int]:
        return self._shared_gpus.indices(waiter.ticket.named)

    def _check_named(self, gpu_ids: Sequence[int]) -> None:
        """Raise RpcError REFUSED for GPUs that this host does not have."""
        there = self._shared_gpus.there()
        lacking = [index for index in gpu_ids if there and index not in there]
        if lacking:
            raise RpcError(ErrorCode.REFUSED, sentences.NO_SUCH_GPU(gpus=", ".join(map(str, lacking))))

    def _too_few(
        self, request: PrepareRequest, free: Sequence[int], claims: list[Claim], before: Sequence[Waiter]
    ) -> RpcError:
        """Return the refusal where just these GPUs could be had, with who has the others."""
        wanted = {*request.gpu_ids} - {*free}
        owners = {index: claim.key.job_id for claim in claims for index in claim.gpu_ids}
        others = self._shared_gpus.holders([*owners])
        if wanted:
            owners = {index: job for index, job in owners.items() if index in wanted}
            others = {index: holder for index, holder in others.items() if index in wanted}
        who = [
            sentences.JOB_HAS_GPUS_SINCE(job=job, gpus=gpus, since=_since(claims, job))
            for job, gpus in _gpus_by_job(owners).items()
        ]
        who += others_have(others) + _waiting([(waiter, waiter.ticket.gpus) for waiter in before])
        if wanted:
            named, taken = (", ".join(map(str, indices)) for indices in (request.gpu_ids, sorted(wanted)))
            refusal = sentences.NAMED_GPUS_WANTED(wanted=named, taken=taken)
            if who:
                refusal = sentences.NAMED_GPUS_HELD(wanted=named, taken=taken, who=who)
        elif who:
            refusal = sentences.GPUS_HELD(wanted=request.cuda_slots, free=len(free), who=who)
        else:
            refusal = sentences.GPUS_WANTED(wanted=request.cuda_slots, free=len(free))
        holders = [claim for claim in claims if owners.keys() & {*claim.gpu_ids}]
        holders += [_claim(*item) for item in others.items()]
        return RpcError(_refused_by(holders, request.key, before), refusal)

    def line_up(self, request: QueueRequest) -> QueueReply:
        """Keep a job's place in the line, or end it; tell how things stand.

        Raises:
            RpcError: REFUSED where there are not even as many GPUs as it waits for, or not those that it names.
        """
        key, claims = request.key, self._claims()
        self._keep_places_of_ended({claim.key.job_id for claim in claims})
        is_set_aside = any(claim.key.job_id == key.job_id for claim in claims) or self._has_begun(key)
        if is_set_aside or request.leaves:
            self._line.leave(key.job_id)
            return QueueReply(time.time(), has_room=is_set_aside, is_set_aside=is_set_aside)
        wanted, simulated = request.cuda_slots, request.simulated_slots
        there = len(self._shared_gpus.there())
        if simulated > request.simulated_total:
            refusal = sentences.SIMULATED_WANTED(wanted=simulated, free=request.simulated_total)
            raise RpcError(ErrorCode.REFUSED, refusal)
        if wanted > there > 0:
            raise RpcError(ErrorCode.REFUSED, sentences.GPUS_WANTED(wanted=wanted, free=there))
        self._check_named(request.gpu_ids)
        named = self._shared_gpus.names(request.gpu_ids)
        self._line.keep(Ticket(key.job_id, request.asked_at, wanted, simulated, request.stands_aside, named))
        before = self._line.before(request.asked_at, key.job_id)
        in_way = in_the_way(before, request.gpu_ids, self._named)
        free = free_simulated = 0
        has_room = True
        if simulated:
            free_simulated = max(0, request.simulated_total - sum(claim.simulated_slots for claim in claims))
        if wanted:
            self.expire()
            there_free = self._free(claims)
            free = len([index for index in there_free if not request.gpu_ids or index in request.gpu_ids])
            has_room = self._offer(there_free, request.gpu_ids, before).number >= wanted
        has_room = has_room and (not simulated or free_simulated - _simulated_of(before) >= simulated)
        return QueueReply(time.time(), has_room, False, free or free_simulated, [told(waiter) for waiter in in_way])

    def take_port(self, request: PrepareRequest) -> int:
        """Reserve a port. Raises RpcError REFUSED where all are taken."""
        self.expire()
        first, last = request.port_range
        wanted, used = request.preferred_port, self._used_ports(request.key)
        is_wanted = wanted is not None and first <= wanted <= last and wanted not in used
        held = reserve_port(wanted, wanted) if wanted is not None and is_wanted else None
        held = held or reserve_port(first, last, used)
        if held is None:
            raise RpcError(ErrorCode.REFUSED, sentences.PORTS_TAKEN(first=first, last=last))
        self._ports[request.key] = held
        return int(held.getsockname()[1])

    def confirm(self, request: PrepareRequest, reply: PrepareReply) -> None:
        """See to it that what was set aside is still there, after whatever time.

        Raises:
            RpcError: WRONG_STATE where another job has some of it by now.
        """
        claims = self._claims(request.key)
        owners = {index: claim.key.job_id for claim in claims for index in claim.gpu_ids if index in reply.gpu_ids}
        if owners:
            who = [sentences.JOB_HAS_GPUS(job=job, gpus=gpus) for job, gpus in _gpus_by_job(owners).items()]
            raise RpcError(ErrorCode.WRONG_STATE, sentences.TOO_LATE_FOR_GPUS(who=who))
        if request.cuda_slots and not self._shared_gpus.is_held(request.key):  # The daemon was another one then.
            kept = self._shared_gpus.take(request.key, reply.gpu_ids, len(reply.gpu_ids), request.for_s)
            if len(kept) < len(reply.gpu_ids):
                self._shared_gpus.release(request.key)
                others = self._shared_gpus.holders([])
                wanted_by_others = {index: others[index] for index in reply.gpu_ids if index in others}
                who = others_have(wanted_by_others)
                raise RpcError(ErrorCode.WRONG_STATE, sentences.TOO_LATE_FOR_GPUS(who=who))
        taken = sum(claim.simulated_slots for claim in claims)
        if request.simulated_total and taken + request.simulated_slots > request.simulated_total:
            jobs = ", ".join(sorted(claim.key.job_id for claim in claims if claim.simulated_slots))
            raise RpcError(ErrorCode.WRONG_STATE, sentences.TOO_LATE_FOR_SIMULATED(jobs=jobs))
        if reply.master_port is not None and request.key not in self._ports:
            held = reserve_port(reply.master_port, reply.master_port)
            if held is None:
                raise RpcError(ErrorCode.WRONG_STATE, sentences.TOO_LATE_FOR_PORT(port=reply.master_port))
            self._ports[request.key] = held

    def _used_ports(self, key: AttemptKey) -> set[int]:
        """Return the ports of other attempts of the job: who is left of one must not find a later store there."""
        found = set()
        for files in preparation.known(self._root, key.job_id):
            if preparation.key_of(files) != key:
                with contextlib.suppress(RpcError, OSError):
                    found.add(preparation.read(files)[1].master_port or 0)
        return found

    def _has_begun(self, key: AttemptKey) -> bool:
        """Whether the attempt that somebody asks for has had its GPUs: it may be over before he has heard of it."""
        attempts = preparation.known(self._root, key.job_id)
        return any(preparation.key_of(files) == key and preparation.was_started(files) for files in attempts)

    def _keep_places_of_ended(self, holding: set[str]) -> None:
        """Line up jobs that may be about to begin their next attempt before one that waits asks whether it is its turn.

        Whoever does not wait is kept from nothing by them: controllers tell those alone who wait that a job is over.

        Args:
            holding: jobs that have GPUs set aside here: their next attempt has begun.
        """
        ended = {
            preparation.key_of(files): files
            for files in preparation.known(self._root)
            if preparation.was_started(files) and not preparation.is_running(files)
        }
        self._lined_up &= ended.keys()
        for key in ended.keys() - self._lined_up:
            files = ended[key]
            self._lined_up.add(key)
            if key.job_id in holding:
                continue
            with contextlib.suppress(RpcError, OSError):  # Where that is damaged, its controller asks for a place.
                request, told = preparation.read(files)[0], history.read(files)
                is_recent = time.time() - files.journal.stat().st_mtime < PLACE_S
                if request.may_restart and request.asked_at is not None and is_recent and not told.is_good_end:
                    named = self._shared_gpus.names(request.gpu_ids)
                    ticket = Ticket(key.job_id, request.asked_at, request.cuda_slots, request.simulated_slots)
                    self._line.keep(replace(ticket, named=named))

    def _claims(self, asking: AttemptKey | None = None) -> list[Claim]:
        """Return what attempts have, but for one that asks."""
        found = []
        for files in preparation.known(self._root):
            key = preparation.key_of(files)
            is_started = preparation.was_started(files)
            holds = preparation.is_running(files) if is_started else not files.discarded.exists() and self._is_live(key)
            if key != asking and holds:
                # Where that is damaged, what runs on the GPUs shows.
                with contextlib.suppress(RpcError, FileNotFoundError):
                    request, reply = preparation.read(files)
                    since_s = files.prepared.stat().st_mtime
                    found.append(Claim(key, tuple(reply.gpu_ids), request.simulated_slots, is_started, since_s))
        return found

    def _is_live(self, key: AttemptKey) -> bool:
        # After a restart of the daemon nobody knows better than that somebody may just have asked.
        return time.monotonic() - self._heard.get(key, self._since) < LEASE_S


def _check_simulated(request: PrepareRequest, claims: Sequence[Claim], before: Sequence[Waiter]) -> None:
    """Raise RpcError where there are not enough simulated GPUs, with the jobs that have them."""
    holders = [claim for claim in claims if claim.simulated_slots]
    taken = {claim.key.job_id: claim.simulated_slots for claim in holders}
    free = max(0, request.simulated_total - sum(taken.values()) - _simulated_of(before))
    wanted = request.simulated_slots
    if free >= wanted:
        return
    who = [
        sentences.JOB_HAS_SIMULATED_SINCE(job=job, count=count, since=_since(claims, job))
        for job, count in sorted(taken.items())
    ]
    who += _waiting([(waiter, waiter.ticket.simulated) for waiter in before])
    refusal = sentences.SIMULATED_WANTED(wanted=wanted, free=free)
    if who:
        refusal = sentences.SIMULATED_HELD(wanted=wanted, free=free, who=who)
    raise RpcError(_refused_by(holders, request.key, before), refusal)


def _refused_by(holders: list[Claim], asking: AttemptKey, before: Sequence[Waiter]) -> ErrorCode:
    """Of two jobs that are being prepared on the same hosts the one whose id comes first stays, the other gives way."""
    goes_first = (
        bool(holders)
        and not before
        and all(
            not claim.is_started and (asking.job_id, asking.attempt) < (claim.key.job_id, claim.key.attempt)
            for claim in holders
        )
    )
    return ErrorCode.CONTENDED if goes_first else ErrorCode.REFUSED


def _claim(index: int, holder: Holder) -> Claim:
    purpose = holder.purpose
    key = AttemptKey(purpose.job_id, purpose.attempt)
    # Who does not say for what gives way to nobody.
    return Claim(key, (index,), 0, purpose.is_started or not purpose.job_id, purpose.since_s)


def others_have(holders: Mapping[int, Holder]) -> list[Said]:
    """Say who has GPUs by the locks of this host, since when, and for how long they are meant to."""
    by_purpose: dict[tuple[int, Purpose], list[int]] = {}
    for index, holder in sorted(holders.items()):
        by_purpose.setdefault((holder.uid, holder.purpose), []).append(index)
    return [
        sentences.USER_HAS_GPUS_SINCE(
            user=users.name_of(uid),
            job=purpose.job_id or "?",
            gpus=", ".join(map(str, indices)),
            since=_point(purpose.since_s),
        )
        for (uid, purpose), indices in by_purpose.items()
    ]


def _waiting(waiters: Sequence[tuple[Waiter, int]]) -> list[Said]:
    """Say who waits for how many GPUs, and since when."""
    return [
        sentences.JOB_WAITS_FOR_GPUS(
            job=waiter.ticket.job_id, user=users.name_of(waiter.uid), count=count, since=_point(waiter.ticket.asked_s)
        )
        for waiter, count in waiters
        if count
    ]


def _simulated_of(waiters: Sequence[Waiter]) -> int:
    return sum(waiter.ticket.simulated for waiter in waiters)


def _since(claims: Sequence[Claim], job_id: str) -> str:
    """Return when a job that has claims got the first."""
    return _point(min(claim.since_s for claim in claims if claim.key.job_id == job_id))


def _point(time_s: float) -> str:
    """Return a point in time as text that means the same on every host."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time_s))


def _gpus_by_job(owners: dict[int, str]) -> dict[str, str]:
    by_job: dict[str, list[str]] = {}
    for index, job in sorted(owners.items()):
        by_job.setdefault(job, []).append(str(index))
    return {job: ", ".join(indices) for job, indices in by_job.items()}
