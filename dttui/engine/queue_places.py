"""Waiting for the GPUs of a job's hosts to be free, in the order of asking: a place in the line of each host.

The first of all who wait is so on each of its hosts, since the order is the same everywhere: so nobody waits in a ring.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind, JobState
from dtagent.protocol.queueing import QueueReply, QueueRequest
from dtagent.protocol.rpc import ErrorCode

from dttui.engine.context import JobContext
from dttui.errors import REFUSALS, AgentError, HostError, LaunchError
from dttui.fleet.occupants import occupant_of, occupant_text
from dttui.i18n import Message, msg, nmsg
from dttui.inventory.models import Environment
from dttui.jobs.event_log import QUEUED
from dttui.planning.models import Plan, PlannedNode
from dttui.rpc.client import AgentClient
from dttui.transport.base import CONNECT_TIMEOUT_S, Nobody
from dttui.transport.deadline import within
from dttui.words import gpu_numbers, listed

POLL_S = 2.0
"""Between two words to a host, which keeps a place for 15 s."""
ASK_DEADLINE_S = 10.0
LEAVE_S = 2.0
RETRY_S, MOST_RETRY_S = 5.0, 600.0
"""Between two attempts to reach a host; the longest where one that is not named lets nobody in."""
ASIDE_S = 20.0
"""How long a host may be out of reach until the job lets others by on the rest of its hosts."""
TELL_S = 5.0
"""Between two words on how things stand."""
MOST_HOSTS, MOST_NAMES = 3, 2


@dataclass
class _Seat:
    """The place on one host."""

    environment: Environment
    planned: PlannedNode
    silent_since: float
    """Time of the loop since which it has not answered."""
    reply: QueueReply | None = None
    """The newest answer; `None` where the host is out of reach."""
    error: str = ""
    is_named: bool = True
    """Whether the job names the host; another one only does as well."""
    is_unfit: bool = False
    """Whether it has refused to let the job wait there."""
    is_refused: bool = False
    """Whether it did not let us in, of one that the job does not name: it is tried ever less often."""

    @property
    def is_free(self) -> bool:
        return self.reply is not None and self.reply.has_room

    @property
    def has_nothing(self) -> bool:
        """Whether nobody uses or waits for its GPUs, and none is free all the same, as where it has none."""
        reply = self.reply
        return reply is not None and not (reply.has_room or reply.free or reply.holds or reply.before)


@dataclass(frozen=True)
class _Standing:
    """What is told when it changes."""

    before: tuple[str, ...]
    away: tuple[str, ...]
    taken: tuple[tuple[str, tuple[object, ...]], ...]
    message: Message = field(compare=False)


class QueuePlaces:
    """The places of a job in the lines of its hosts; kept from `wait` to `leave`.

    Args:
        job: that waits.
        plan: of it.
        attempt: number of the attempt that is to begin.
        asked_at: Unix time at which its person asked.
        hosts: at which it stands; at all of its own without.
        others: that do as well, the best first; the job then starts on as many hosts as it has nodes.
        pass_over: called with the name of such another one that lets the job not even wait, why, and what to do.
    """

    def __init__(
        self,
        job: JobContext,
        plan: Plan,
        attempt: int,
        asked_at: float,
        hosts: Collection[str] | None = None,
        others: Sequence[str] = (),
        pass_over: Callable[[str, str, str], None] | None = None,
    ) -> None:
        self._job = job
        self._pass_over = pass_over
        self._key = AttemptKey(job.directory.job_id, attempt)
        self._asked_at = asked_at
        now = asyncio.get_running_loop().time()
        nodes = [node for node in plan.nodes if hosts is None or node.name in hosts]
        found = [(job.inventory.find(node.name), node) for node in nodes]
        self._seats = [_Seat(environment, node, now) for environment, node in found if environment is not None]
        self._count = len(self._seats)
        """On so many hosts the job starts."""
        widest = max(plan.nodes, key=lambda node: node.slots, default=None)
        if widest is not None:
            chosen = [item for name in others if (item := job.inventory.find(name)) is not None]
            self._seats += [_Seat(item, _in_place_of(widest, item), now, is_named=False) for item in chosen]
        self.is_narrowed = False
        """Whether of several hosts that do some were chosen, and the others' places given up."""
        self._changed = asyncio.Event()
        self._retry = asyncio.Event()
        self._fault: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._told: _Standing | None = None

    async def wait(self, stopping: asyncio.Event) -> bool:
        """Wait for the turn; return whether it has come: no stop was asked for.

        Raises:
            DttuiError: a host can give no place.
        """
        self.stand()
        loop = asyncio.get_running_loop()
        told_at, began = float("-inf"), loop.time()
        while not stopping.is_set():
            if self._fault is not None:
                raise self._fault
            is_known = self._is_known or loop.time() - began > TELL_S
            if self.have_room and (is_known or len(self._seats) == self._count):
                return True
            left_s = told_at + TELL_S - loop.time()
            if is_known and left_s <= 0 and self._tell():
                told_at, left_s = loop.time(), TELL_S
            await self._change(stopping, left_s if left_s > 0 else TELL_S)
        return False

    async def look(self, stopping: asyncio.Event) -> bool:
        """Return whether it is the job's turn everywhere, once each host has told or is out of reach, or at a stop."""
        self.stand()
        while not self._is_known and self._fault is None and not stopping.is_set():
            await self._change(stopping)
        return self.have_room

    async def _change(self, stopping: asyncio.Event, timeout_s: float | None = None) -> None:
        """Wait until there is something new, or a stop was asked for."""
        self._changed.clear()
        waiting = [asyncio.create_task(event.wait()) for event in (stopping, self._changed)]
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    def stand(self) -> None:
        """Take the places, and wait for nothing."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._keep(seat)) for seat in self._seats]
            for task in self._tasks:
                task.add_done_callback(self._ended)

    @property
    def _is_known(self) -> bool:
        return all(seat.reply is not None or seat.error for seat in self._seats)

    @property
    def have_room(self) -> bool:
        """Whether it is the job's turn on as many hosts as it wants, as far as is known."""
        return sum(seat.is_free for seat in self._seats) >= self._count

    def choice(self) -> dict[str, str]:
        """Return host that the job names and that has no room → other that stands for it."""
        lacking = [seat.environment.name for seat in self._seats if seat.is_named and not seat.is_free]
        free = [seat.environment.name for seat in self._seats if not seat.is_named and seat.is_free]
        return dict(zip(lacking, free, strict=False))

    def retry_now(self) -> None:
        """Try at once to reach the hosts that are silent."""
        self._retry.set()
        self._retry = asyncio.Event()

    async def narrow(self, hosts: Collection[str]) -> None:
        """Give up all places but those at some hosts, on which the job begins."""
        await self.leave([name for seat in self._seats if (name := seat.environment.name) not in hosts])
        self.is_narrowed = True

    async def leave(self, hosts: Collection[str] | None = None) -> None:
        """Give the places up where the job has not got its GPUs: those at some hosts; all of them without."""
        pairs = [*zip(self._seats, self._tasks, strict=False)]
        leaving = [task for seat, task in pairs if hosts is None or seat.environment.name in hosts]
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        if hosts is not None:
            staying = [(seat, task) for seat, task in pairs if task not in leaving]
            self._seats, self._tasks = [seat for seat, _task in staying], [task for _seat, task in staying]

    async def give_up(self) -> None:
        """Give up the places that hosts keep by themselves, for seconds, for a job whose attempt has failed.

        Nobody is asked for a password for that, and no host is waited for longer than a place is worth.
        """

        async def give_up(seat: _Seat) -> None:
            with contextlib.suppress(HostError):
                client = await AgentClient.connect(seat.environment, self._job.transport, Nobody(), LEAVE_S)
                try:
                    await client.call("queue", replace(self._request(seat), leaves=True), QueueReply, LEAVE_S)
                finally:
                    await client.close()

        with contextlib.suppress(asyncio.TimeoutError):
            await within(asyncio.gather(*(give_up(seat) for seat in self._seats)), 2 * LEAVE_S)

    async def _keep(self, seat: _Seat) -> None:
        """Stand in the line of a host until the job has its GPUs there, or nobody waits any more."""
        pause_s = RETRY_S
        while self._fault is None:
            try:
                await self._stand(seat)
                return
            except HostError as error:
                self._lose(seat, error)
            if seat.is_unfit:
                return
            pause_s = min(2 * pause_s, MOST_RETRY_S) if seat.is_refused else RETRY_S
            retry = self._retry
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(retry.wait(), pause_s)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Let a defect of ours be heard of: who waits would wait for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fault = error
            self._changed.set()

    async def _stand(self, seat: _Seat) -> None:
        job, name = self._job, seat.environment.name
        # Nobody is asked for a password of a host that he has not named.
        prompter = job.prompter if seat.is_named else Nobody()
        client = await AgentClient.connect(seat.environment, job.transport, prompter, CONNECT_TIMEOUT_S)
        word: asyncio.Future[QueueReply] | None = None
        try:
            message = None
            if client.hello is None or not client.hello.keeps_line:
                message = msg("{host}: its agent is too old for --queue: it keeps no line", host=name)
            elif seat.planned.gpu_ids and not client.hello.takes_named_gpus:
                message = msg(
                    "{host}: its agent is too old for resources.gpu.ids: it would give any GPUs that are free",
                    host=name,
                )
            if message is not None:
                self._refuse(seat, LaunchError(message, msg("Upgrade it: dttui agents deploy {host}", host=name)))
                return
            while True:
                word = asyncio.ensure_future(client.call("queue", self._request(seat), QueueReply, ASK_DEADLINE_S))
                seat.reply = await asyncio.shield(word)
                seat.error, seat.is_refused = "", False
                self._changed.set()
                if seat.reply.is_set_aside:
                    return
                await asyncio.sleep(POLL_S)
        except asyncio.CancelledError:
            if word is not None:
                # Answered first: an agent may hear of two in the other order, and keep the place.
                await asyncio.wait({word}, timeout=LEAVE_S)
                word.cancel()
                await asyncio.gather(word, return_exceptions=True)
            with contextlib.suppress(HostError):
                await client.call("queue", replace(self._request(seat), leaves=True), QueueReply, LEAVE_S)
            raise
        finally:
            with contextlib.suppress(HostError):
                await client.close()

    def _lose(self, seat: _Seat, error: HostError) -> None:
        if isinstance(error, AgentError) and error.code == ErrorCode.REFUSED:
            self._refuse(seat, LaunchError(error.message, error.hint))
        if seat.reply is not None:
            seat.silent_since = asyncio.get_running_loop().time()
        seat.reply, seat.error = None, error.message
        seat.is_refused = isinstance(error, REFUSALS) and not seat.is_named
        self._changed.set()

    def _refuse(self, seat: _Seat, fault: LaunchError) -> None:
        """Take in that a host lets the job not even wait: where it is named, that is the end."""
        seat.error = fault.message
        if seat.is_named:
            self._fault = fault
        else:
            seat.is_unfit = True
            if self._pass_over is not None:
                self._pass_over(seat.environment.name, fault.message, fault.hint)
        self._changed.set()

    def _request(self, seat: _Seat) -> QueueRequest:
        planned, declared = seat.planned, seat.environment.resources.gpu
        is_counted = planned.simulated and declared is not None
        return QueueRequest(
            self._key,
            self._asked_at,
            planned.cuda_slots,
            planned.slots if is_counted else 0,
            declared.count if planned.simulated and declared is not None else 0,
            stands_aside=sum(not self._is_away(other) for other in self._seats if other is not seat) < self._count - 1,
            gpu_ids=list(planned.gpu_ids),
        )

    def _is_away(self, seat: _Seat) -> bool:
        """Whether nothing is to be waited for there; at a host that is named, only while it is silent."""
        return seat.is_unfit or seat.is_refused or (seat.has_nothing and not seat.is_named) or self._is_silent(seat)

    def _is_silent(self, seat: _Seat) -> bool:
        return seat.reply is None and asyncio.get_running_loop().time() - seat.silent_since > ASIDE_S

    def _tell(self) -> bool:
        """Tell how things stand, where that is not what was told last; return whether it was."""
        standing = self._standing()
        if standing == self._told:
            return False
        self._told = standing
        data = {"state": JobState.PENDING.value, QUEUED: {"asked_at": self._asked_at, "before": len(standing.before)}}
        self._job.log.add(EventKind.JOB_STATE, standing.message, data=data)
        return True

    def _standing(self) -> _Standing:
        before: dict[tuple[str, str], None] = {}
        taken: list[tuple[str, tuple[object, ...]]] = []
        words: list[str] = []
        for seat in (item for item in self._seats if not item.is_unfit):
            reply, name = seat.reply, seat.environment.name
            if reply is None:
                words.append(seat.error or msg("{host}: no answer yet", host=name))
            elif not reply.has_room:
                before.update({(item.job, item.user): None for item in reply.before})
                wanted = {*seat.planned.gpu_ids}
                holds = [hold for hold in reply.holds if not wanted or wanted.intersection(hold.gpus)]
                taken.append((name, tuple((hold.job, hold.user, hold.since, hold.until) for hold in holds)))
                who = [occupant_text(occupant_of(hold, reply.time)) for hold in holds]
                if who:
                    words.append(msg("{host}: {who}", host=name, who=listed(who, MOST_NAMES)))
                elif not reply.before:
                    words.append(_lacking(seat, reply.free))
        message = nmsg("queued: {count} job before it", "queued: {count} jobs before it", len(before))
        if len(self._seats) > self._count:
            free = sum(seat.is_free for seat in self._seats)
            room = nmsg("{free} of {count} host has room", "{free} of {count} hosts have room", self._count, free=free)
            message = msg("{what}; {why}", what=message, why=room)
        if words:
            message = msg("{what}; {why}", what=message, why=listed(words, MOST_HOSTS))
        away = tuple(seat.environment.name for seat in self._seats if seat.reply is None)
        return _Standing(tuple(str(item) for item in before), away, tuple(taken), message)


def _lacking(seat: _Seat, free: int) -> Message:
    """Say how many GPUs of those that are wanted are free, where nobody is known to have the others."""
    planned, name = seat.planned, seat.environment.name
    if planned.gpu_ids:
        return msg("{host}: not all of GPU {ids} are free", host=name, ids=gpu_numbers(planned.gpu_ids))
    return nmsg("{host}: {free} GPU of {wanted} is free", "{host}: {free} GPUs of {wanted} are free",
                free, host=name, free=free, wanted=planned.cuda_slots or planned.slots)  # fmt: skip


def _in_place_of(node: PlannedNode, environment: Environment) -> PlannedNode:
    """Return a node as an environment would have it that stands for it, as far as waiting goes."""
    uses_gpus = node.simulated or node.cuda_slots > 0
    is_simulated = environment.simulated
    cuda_slots = node.slots if uses_gpus and not is_simulated else 0
    changed = {"name": environment.name, "simulated": is_simulated, "cuda_slots": cuda_slots, "gpu_ids": ()}
    return node.model_copy(update=changed)
