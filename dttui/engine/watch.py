"""Watching one attempt from its start to its end: what the nodes say is told, and a failure ends all that need it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dtagent.protocol.events import Event, EventKind, JobState, NodeStanding
from dtagent.protocol.jobs import EndReason

from dttui.engine.arrival_words import all_run, waited_for
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.conclusion import Conclusion, Watched
from dttui.engine.disturbance_watch import DisturbanceWatch
from dttui.engine.failures import FoundFailure
from dttui.engine.given_up import EndedFor, NotEnded, NotFollowed
from dttui.engine.gpu_reader import GpuReader
from dttui.engine.node_news import NodeNews
from dttui.engine.nodes.node_record import Steps
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.nodes.stop_order import StopLevel, StopOrder
from dttui.engine.rendezvous.arrivals import RendezvousBoard
from dttui.engine.rendezvous.membership import Membership
from dttui.engine.rendezvous.process_group import ProcessGroupBoard
from dttui.engine.rendezvous.together import TogetherWatch
from dttui.engine.silence import SilenceLimit
from dttui.engine.start import GRACE_S, MOST_NAMES
from dttui.engine.told_before import ToldBefore
from dttui.engine.witness import Witness
from dttui.errors import without_frames
from dttui.frameworks import traits_of
from dttui.i18n import Message, msg
from dttui.jobs import JobDirectory
from dttui.jobs.disturbances import APART
from dttui.jobs.outcome import AttemptOutcome
from dttui.jobs.view import NODE_OUT
from dttui.planning.models import BoundPlan, Plan
from dttui.redaction import Redaction
from dttui.spec.findings import warning
from dttui.timestamps import elapsed_s
from dttui.words import listed

STOP_DEADLINE_S = GRACE_S + 30.0
"""How long the nodes have to end once told to; whoever cannot be reached by then is lost."""
FORCED_STOP_DEADLINE_S = 8.0
GONE_STOP_DEADLINE_S = 5.0
"""Where all that is left to be told are hosts that answer and have no agent any more."""


class GangWatch:
    """Follows the nodes of an attempt that was started, and tells only what was not told before.

    Args:
        directory: of the job.
        log: of the attempt.
        nodes: in order of rank.
        changed: set whenever there may be something new about a node.
        secrets: values that no event may hold.
        told: what another controller has told of the attempt.
    """

    def __init__(
        self,
        directory: JobDirectory,
        log: AttemptLog,
        nodes: Sequence[NodeRun],
        changed: asyncio.Event,
        secrets: Iterable[str],
        told: Sequence[Event] = (),
    ) -> None:
        self._directory = directory
        self._log = log
        self._nodes = nodes
        self._changed = changed
        self._before = ToldBefore(told)
        self._secrets = tuple(secrets)
        self._state = JobState.LAUNCHING
        self._is_stopping = False
        self._force = False
        self._cancelled = False
        self._ended_for = self._before.ended_for
        """Why the attempt is ended though nothing of it has failed: who did not join in time, for one."""
        self._looking: asyncio.Task[Message | None] | None = None
        self._orders = {node.name: StopOrder(node, changed.set) for node in nodes}
        self._broken: dict[str, NotFollowed] = {}
        """By node, those that can no longer be followed."""
        self._unstopped: dict[str, NotEnded] = {}
        """By node, those that could be reached and did not end."""
        self._news = NodeNews(directory.job_id, log, told)
        self._has_ended_services = False
        """Whether it was told that services end."""
        self._stop_deadline: float | None = None
        """By the loop's clock: by when those are to have ended that were told to."""
        self._awaited: str | None = None
        """What to tell of the rendezvous once every host has said whether there still is one."""
        # Where another controller had come so far, the hosts have still to say what is true.
        self._await_ranks = self._expect_ranks if self._before.states else self._begin_rendezvous
        self._together: TogetherWatch | None = None
        self._plan: Plan | None = None
        """Of the attempt, once it was started."""
        self._membership: Membership | None = None
        """Of an elastic attempt, who takes part."""
        self._silence: SilenceLimit | None = None
        """Of the attempt, once it was started."""
        self.redaction = Redaction()
        """Finds what no text of where ranks stand may hold."""
        self.witness: Witness | None = None
        """Tells whether it is this machine that is cut off."""
        self.next_spare: Callable[[], str | None] = lambda: None
        """Returns who would take a slow node's place, `None` where nobody would."""
        self.on_running: Callable[[], None] | None = None
        """Called when all ranks run."""

    def request_stop(self, *, force: bool) -> None:
        """Stop the job: gracefully, or at once."""
        self._force = self._force or force
        self._is_stopping = True
        for node in self._nodes:
            node.hurries = self._force
        self._changed.set()

    def end_for(self, cause: str, why: str, hint: str = "", node: str | None = None) -> None:
        """End the attempt as a failed one, though nothing of it has failed.

        Args:
            cause: its code.
            why: in words; what was told first counts.
            hint: what to do about it.
            node: which is to blame; `None` where none is.
        """
        self._end(EndedFor(cause, why, hint, node))

    def _end(self, ended_for: EndedFor) -> None:
        if self._ended_for is None and not self._is_stopping and self._state is not JobState.STOPPING:
            self._ended_for = ended_for
            self._changed.set()

    async def run(self, bound: BoundPlan) -> AttemptOutcome:
        """Follow the nodes to their end; return the outcome."""
        self._plan = bound.plan
        if (least := bound.plan.min_nodes) is not None:
            self._membership = Membership(
                self._directory, self._nodes, self._log, least, self._secrets, self._before.events
            )
        self._silence = SilenceLimit(self._nodes, bound.plan, self.witness)
        self._await_ranks(waited_for(bound.plan))
        limit_s = bound.plan.rendezvous_timeout_s
        board = RendezvousBoard(self._nodes, self._directory, self._log, bound.bindings.master_port, limit_s)
        followers = [asyncio.create_task(node.follow()) for node in self._nodes]
        samplers = [asyncio.create_task(node.record_samples()) for node in self._nodes]
        for follower in followers:
            follower.add_done_callback(lambda _task: self._changed.set())
        groups = ProcessGroupBoard(
            self._nodes,
            self._log,
            bound.bindings.master_port,
            traits_of(bound.plan.framework).process_group,
            bound.own_ports,
        )
        group_watch: asyncio.Task[None] | None = None
        disturbances = DisturbanceWatch(
            bound.plan,
            self._directory,
            self._log,
            self._members,
            GpuReader(self._directory, bound).read,
            self._steps,
            self.redaction,
            self._changed.set,
            self.next_spare,
            self._before.events,
        )
        self._together = disturbances.together
        try:
            while any(map(_is_watched, self._nodes, followers)):
                waits_s = [board.wait_s] if self._is_waiting else disturbances.waits_s + self._round_waits_s
                waits_s += [max(0.1, item) for item in map(self._left_s, self._nodes) if item is not None]
                await self._wait_for_change(min(waits_s, default=None))
                self._give_up_broken(followers)
                self._lose_silent(followers)
                self.report()
                if message := self._new_round(bound.plan):
                    self._run_on(message)
                if self._is_running and group_watch is None:
                    group_watch = asyncio.create_task(groups.watch())
                self._look_at(board)
                goes_on = not self._is_stopping and self._ended_for is None
                if found := disturbances.look(all_run=self._is_running, goes_on=goes_on):
                    self._end(found)
                if self._end_what_must(followers) and group_watch is not None:
                    group_watch.cancel()
        finally:
            await asyncio.gather(*(order.close() for order in self._orders.values()))
            await self._silence.close()
            await disturbances.close()
            boards = [task for task in (group_watch, self._looking) if task is not None]
            tasks: list[asyncio.Task[Any]] = [*followers, *samplers, *boards]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.report()
        self._log.flush()
        return self._conclude()

    def _end_what_must(self, followers: list[asyncio.Task[None]]) -> bool:
        """Tell to end, and in the end give up, what is not to run any more; return whether that is the whole attempt.

        Once all are told to end, a node that has ended is not out: launchers end with 143 then.
        """
        is_ending = (
            self._state is JobState.STOPPING or self._ended_for is not None or self._is_broken() or self._is_stopping
        )
        if is_ending:
            self._stop_all()
        else:
            self._end_services()
        if is_ending or self._has_left_some_behind(followers):
            now = asyncio.get_running_loop().time
            self._stop_deadline = min(self._stop_deadline or math.inf, now() + self._grace_s)
            if now() > self._stop_deadline:
                self._give_up_rest(followers)
                self._stop_deadline = None  # It was for none of those of whom now only logs are still to come.
        return is_ending

    @property
    def _grace_s(self) -> float:
        """How long those who are told to end are waited for."""
        if all(node.is_over or node.agent_gone for node in self._nodes):
            return GONE_STOP_DEADLINE_S
        return FORCED_STOP_DEADLINE_S if self._force else STOP_DEADLINE_S

    @property
    def _steps(self) -> Steps:
        return self._nodes[0].shared.steps if self._nodes else Steps()

    @property
    def _round_waits_s(self) -> list[float]:
        wait_s = self._membership.wait_s if self._membership is not None else None
        return [wait_s] if wait_s is not None else []

    def _members(self) -> Sequence[NodeRun]:
        """The nodes whose ranks are to train together."""
        return self._membership.members if self._membership is not None else self._nodes

    def _new_round(self, plan: Plan) -> Message | None:
        """Return what to tell once all ranks run; of an elastic attempt, once all of a new round do."""
        if not (self._is_waiting or self._is_running):
            return None
        if self._membership is not None:
            self._membership.learn()
            return self._membership.new_round()
        if self._state is JobState.RENDEZVOUS and all(node.has_all_ranks for node in self._nodes):
            return all_run(plan)
        return None

    def _begin_rendezvous(self, message: str) -> None:
        self._enter(JobState.RENDEZVOUS, message)

    def _expect_ranks(self, message: str) -> None:
        self._state, self._awaited = JobState.RENDEZVOUS, message

    def _run_on(self, message: str) -> None:
        """Tell that all ranks run; that is no news of nodes that have ended since it was told."""
        if JobState.RUNNING.value in self._before.states and all(node.is_over for node in self._nodes):
            return
        self._enter(JobState.RUNNING, message)
        if self.on_running is not None:
            self.on_running()

    def _is_broken(self) -> bool:
        """Whether the attempt cannot go on; where it can, nodes that are out of it are told to end."""
        if self._was_stopped:
            return False
        if self._membership is None:
            return any(self._has_failed(node) for node in self._nodes)
        found = self._membership.newly_out(self._broken)
        for node in found:
            self._orders[node.name].give(StopLevel.STOP, is_repeated=True)
        if found and self._state is JobState.RUNNING and self._membership.end is None:
            hosts = listed(list(self._membership.out), MOST_NAMES)
            self._enter(JobState.RUNNING, msg("torchrun starts all ranks again, without {hosts}", hosts=hosts))
        return self._membership.end is not None

    def _has_failed(self, node: NodeRun) -> bool:
        return node.has_failed or node.is_lost or node.name in self._broken

    def _has_left_some_behind(self, followers: Sequence[asyncio.Task[None]]) -> bool:
        """Whether all that is left of an elastic attempt are nodes that are out; of those, give up who is silent."""
        if self._membership is None:
            return False
        for node in self._membership.left_behind():
            self._orders[node.name].give(StopLevel.STOP, is_repeated=True)
        if not all(node.is_over for node in self._membership.members):
            return False
        for node, follower in zip(self._nodes, followers, strict=True):
            if not node.is_over and node.silent_since is not None:
                self._lose(node, follower)
        return True

    @property
    def _is_waiting(self) -> bool:
        return self._state is JobState.RENDEZVOUS

    @property
    def _is_running(self) -> bool:
        return self._state is JobState.RUNNING

    def _look_at(self, board: RendezvousBoard) -> None:
        """Let the board ask the nodes beside this: one that does not answer must not hold up a stop or a failure."""
        if self._looking is not None and self._looking.done():
            late, self._looking = self._looking.result(), None
            if self._is_waiting and late is not None:
                self.end_for("rendezvous-timeout", late)
        if self._is_waiting and self._ended_for is None and not self._is_stopping and self._looking is None:
            self._looking = asyncio.create_task(board.look())
            self._looking.add_done_callback(self._wake_for)

    def _wake_for(self, look: asyncio.Task[Message | None]) -> None:
        """Have it noticed at once that a look has found who is too late, or has failed."""
        if not look.cancelled() and (look.exception() is not None or look.result() is not None):
            self._changed.set()

    def _enter(self, state: JobState, message: str, **data: object) -> None:
        self._state, self._awaited = state, None
        self._log.enter(state, message, **data)

    async def _wait_for_change(self, wait_s: float | None) -> None:
        deadline = self._stop_deadline
        timeout = wait_s
        if deadline is not None:
            left_s = max(0.1, deadline - asyncio.get_running_loop().time())
            timeout = left_s if wait_s is None else min(left_s, wait_s)
        change = asyncio.create_task(self._changed.wait())
        try:
            # Not `wait_for`: before Python 3.12 it swallows a cancellation that comes together with the change.
            await asyncio.wait({change}, timeout=timeout)
        finally:
            change.cancel()
        self._changed.clear()

    def _stop_all(self) -> None:
        """Have every node told. Called after each change: a host that was silent hears of the stop when it is back."""
        if self._state is not JobState.STOPPING:
            needed = self._needed
            failed = next((node.name for node in needed if self._has_failed(node)), None)
            over = self._membership.end if self._membership is not None else None
            why: str = msg("a failure on {host} ends all", host=failed) if failed else msg("stopping on request")
            why, told = over or why, {}
            if (ended_for := self._ended_for) is not None:
                why, told = ended_for.told, {"cause": ended_for.cause}
                told |= {"blamed": ended_for.node} if ended_for.node is not None else {}
            self._enter(JobState.STOPPING, why, until=time.time() + self._grace_s, **told)
            self._cancelled = failed is None and over is None and ended_for is None
        for node in self._nodes:
            order = self._orders[node.name]
            if node.name not in self._broken:
                order.give(StopLevel.KILL if self._force else StopLevel.STOP)
            if order.refusal is not None and not node.is_over:
                message = msg("{reason}; it is told to stop again", reason=order.refusal.message)
                self._log.tell(warning("stop-refused", node.name, message))

    def _end_services(self) -> None:
        """Have the services end of nodes that run nothing else, once all other nodes have ended well."""
        serving = [node for node in self._nodes if node.serves_only and not node.is_over]
        if not serving or not all(node.has_succeeded for node in self._nodes if not node.serves_only):
            return
        if not self._has_ended_services:
            self._has_ended_services = True
            hosts = listed([node.name for node in serving], MOST_NAMES)
            self._log.progress(msg("all others have ended well; services end on {hosts}", hosts=hosts))
        for node in serving:
            self._orders[node.name].give(StopLevel.SERVED)

    def _give_up_rest(self, followers: list[asyncio.Task[None]]) -> None:
        for node, follower in zip(self._nodes, followers, strict=True):
            if node.is_over:
                continue
            order, broken = self._orders[node.name], self._broken.get(node.name)
            reason = broken.words if broken is not None else msg("could not be reached; what runs there is unknown")
            if node.agent_gone is not None:
                reason = msg("{why}; what runs there is unknown", why=node.agent_gone.message)
            if node.silent_since is None and broken is None and (order.refusal is not None or order.is_heard):
                self._unstopped[node.name] = not_ended = NotEnded(node.name, order.refusal)
                reason = msg("{reason}; what runs there is unknown", reason=not_ended.words)
            node.is_lost = True
            follower.cancel()  # What it waits for may take longer than the node is given.
            self._log.note(node.name, NodeStanding.LOST, reason, agent_gone=node.agent_gone is not None)

    def _give_up_broken(self, followers: list[asyncio.Task[None]]) -> None:
        """Give up nodes whose logs and status can no longer be followed; what runs there is still told to end."""
        for node, follower in zip(self._nodes, followers, strict=True):
            error = _error_of(follower)
            if error is None or node.is_over:
                continue
            order = self._orders[node.name]
            if node.name not in self._broken:
                self._broken[node.name] = NotFollowed(without_frames(error))
                order.give(StopLevel.KILL, is_repeated=True)
            if not order.is_under_way:
                node.is_lost = True
                self._log.note(node.name, NodeStanding.LOST, self._broken[node.name].words)

    def _left_s(self, node: NodeRun) -> float | None:
        """Return for how long a silent node is waited for; `None` of one that is waited for as in any job."""
        is_ending = self._state is JobState.STOPPING
        return self._silence.left_s(node, is_ending=is_ending) if self._silence is not None else None

    def _lose_silent(self, followers: list[asyncio.Task[None]]) -> None:
        """Give up nodes that have been silent for long, where another attempt may do without them or wait for them."""
        for node, follower in zip(self._nodes, followers, strict=True):
            left_s = self._left_s(node)
            if left_s is not None and left_s <= 0:
                self._lose(node, follower)

    def _lose(self, node: NodeRun, follower: asyncio.Task[None]) -> None:
        """Give up a silent node, and note it: that is what a later look at it goes by."""
        node.is_lost = True
        follower.cancel()
        seconds = round(elapsed_s(node.heard_at))
        reason = msg("no word from {host} for {seconds:.0f} s", host=node.name, seconds=seconds)
        self._log.note(node.name, NodeStanding.LOST, msg("{reason}; what runs there is unknown", reason=reason))

    def report(self) -> None:
        """Say what is new about each node."""
        for node in self._nodes:
            if node.is_lost or (node.silent_since is not None and self._is_out(node)):
                continue
            self._news.tell(node)
        heard = all(node.status is not None and node.silent_since is None for node in self._nodes)
        if self._awaited and heard and not all(node.is_over or node.has_all_ranks for node in self._nodes):
            self._enter(JobState.RENDEZVOUS, self._awaited)

    def _conclude(self) -> AttemptOutcome:
        """Return how the attempt ended."""
        self._cancelled = self._cancelled or self._was_stopped
        members = self._membership
        watched = Watched(
            self._nodes,
            self._cancelled,
            self._broken,
            self._unstopped,
            self._ended_for,
            survived=members.survived if members is not None else (),
            has_succeeded=members is not None and members.has_succeeded,
            over=members.end if members is not None else None,
        )
        outcome = Conclusion(
            self._directory, self._log, watched, self._plan, self._secrets, self._tell_failure
        ).outcome()
        return self._with_groups(outcome) if outcome.succeeded else outcome

    def _with_groups(self, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return a good outcome with what there is to say of it; a bad one where ranks had to train together."""
        ended = self._membership.outcome() or "" if self._membership is not None else ""
        apart = self._together.end() if self._together is not None else None
        if apart is not None and self._together is not None and self._together.is_required:
            failed = {"state": JobState.FAILED, "message": apart.message, "hint": apart.why, "cause": APART}
            return outcome.model_copy(update=failed)
        said = ended
        if apart is not None:
            # Why, and what to do, was told in a finding; an outcome is read in a line.
            said = msg("{what}; {why}", what=ended, why=apart.message) if ended else apart.message
        return outcome.model_copy(update={"message": said})

    @property
    def _needed(self) -> list[NodeRun]:
        """The nodes but for those that an elastic attempt has survived."""
        survived = self._membership.survived if self._membership is not None else set()
        return [node for node in self._nodes if node.name not in survived]

    def _is_out(self, node: NodeRun) -> bool:
        return self._membership is not None and node.name in self._membership.out

    @property
    def _was_stopped(self) -> bool:
        """Whether what has ended did so by a stop of an earlier controller; who was out then says nothing of that."""
        members = [node for node in self._nodes if not self._log.has_told(NODE_OUT, node.name)]
        reasons = {node.status.end_reason for node in members if node.status is not None}
        is_by_stop = EndReason.STOPPED in reasons and EndReason.PROCESS_FAILED not in reasons
        return self._is_stopping and JobState.STOPPING.value in self._before.states and is_by_stop

    def _tell_failure(self, failure: FoundFailure) -> None:
        if (failure.node, failure.rank) in self._before.failures:
            return
        fields = {"node": failure.node, "rank": failure.rank, "data": failure.data}
        self._log.add(EventKind.RANK_FAILED, failure.message, **fields)


def _is_watched(node: NodeRun, follower: asyncio.Task[None]) -> bool:
    """Whether something is still to come from a node, or to be done about one that broke."""
    return not follower.done() or (_error_of(follower) is not None and not node.is_over)


def _error_of(follower: asyncio.Task[None]) -> BaseException | None:
    return follower.exception() if follower.done() and not follower.cancelled() else None
