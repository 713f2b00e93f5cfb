"""Whether one link between hosts is slower than the others: asked now and then, by what ranks send over it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil

from dtagent.protocol.events import Event, EventKind
from dtagent.protocol.traffic import PeerTraffic, TrafficReply, TrafficRequest

from dttui.diagnosis.slow_links import Link, LinkUse, SlowLink, host_of, sentence, slow_links
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.stragglers import QUESTIONS, is_of_link, pause_between_s
from dttui.i18n import msg
from dttui.spec.findings import Severity

ASK_DEADLINE_S = 20.0
FEWEST_NODES = 3
"""Of two, both ends of a slow link are alike."""

_Read = tuple[float, Mapping[Link, PeerTraffic]]
"""When it was read, on the monotonic clock, and what had been sent over each link by then."""


class SlowLinkWatch:
    """Names a link over which ranks send much slower than over others, or the host that all such lead to or from.

    Args:
        after_s: for how long it has to be so; `None` for never.
        log: of the attempt.
        nodes: returns those that take part.
        wake: called once there is an answer.
        told: what another controller has told of the attempt.
    """

    def __init__(
        self,
        after_s: float | None,
        log: AttemptLog,
        nodes: Callable[[], Sequence[NodeRun]],
        wake: Callable[[], None],
        told: Iterable[Event] = (),
    ) -> None:
        self._after_s = after_s
        self._log = log
        self._nodes = nodes
        self._wake = wake
        self._asking: asyncio.Task[_Read] | None = None
        self._next_at = 0.0
        self._before: _Read | None = None
        looks = max(QUESTIONS, ceil((after_s or 0.0) / pause_between_s(after_s)))
        self._rounds: deque[dict[Link, SlowLink]] = deque(maxlen=looks)
        last = next((event for event in reversed([*told]) if is_of_link(event)), None)
        links = last.data["links"] if last is not None and last.data.get("severity") != Severity.INFO.value else ()
        self._told = frozenset((str(source), str(target)) for source, target in links)

    @property
    def is_named(self) -> bool:
        """Whether a link is slow now: ranks beyond it come late for no fault of their own."""
        return bool(self._told)

    @property
    def is_suspected(self) -> bool:
        """Whether a link was slow when it was last looked at, for however short a time."""
        return self.is_named or bool(self._rounds and self._rounds[-1])

    @property
    def wait_s(self) -> float | None:
        """When to look again though no host says anything new; `None` for never."""
        if self._after_s is None or self._asking is not None:
            return None
        return max(0.1, self._next_at - time.monotonic())

    def look(self, *, is_running: bool) -> None:
        """Ask where it is time, and tell what came of it.

        Args:
            is_running: whether all ranks run, and none is told to end.
        """
        if self._after_s is None:
            return
        now = time.monotonic()
        if not is_running:
            self._rounds.clear()
            self._before, self._next_at = None, now + pause_between_s(self._after_s)
            return
        if self._asking is not None:
            if self._asking.done():
                read, self._asking = self._asking.result(), None
                self._judge(read)
            return
        nodes = [node for node in self._nodes() if not node.is_over]
        if now < self._next_at or len(nodes) < FEWEST_NODES or any(node.silent_since is not None for node in nodes):
            return
        self._next_at = now + pause_between_s(self._after_s)
        self._asking = asyncio.create_task(_read_all(nodes))
        self._asking.add_done_callback(lambda _task: self._wake())

    async def close(self) -> None:
        """Ask nobody any more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _judge(self, read: _Read) -> None:
        before, self._before = self._before, read
        uses = _uses(before, read) if before is not None else {}
        if not uses:
            return  # Nobody says anything, or ranks connected anew: nothing is known.
        self._rounds.append(slow_links(uses))
        recent = [*self._rounds][-QUESTIONS:]
        if self._told and len(recent) == QUESTIONS and not any(self._told & found.keys() for found in recent):
            self._told = frozenset()
            self._tell(msg("no link is slower than the others any more"), None, {"severity": Severity.INFO.value})
        lasting = set.intersection(*(set(found) for found in self._rounds))
        if lasting and not self._told and len(self._rounds) == self._rounds.maxlen:
            slow = [self._rounds[-1][link] for link in lasting]
            worst, host = min(slow, key=lambda item: item.bytes_per_s), host_of(lasting)
            self._told = frozenset(lasting)
            hint = msg("See what else uses its network, and measure the links by `dttui bench` once the job is over.")
            data = {"severity": Severity.WARNING.value, "busy": round(worst.busy, 3), "hint": hint}
            self._tell(sentence(slow), host or worst.link[0], data)

    def _tell(self, message: str, node: str | None, data: Mapping[str, object]) -> None:
        self._log.add(EventKind.STRAGGLER, message, node=node, data={**data, "links": sorted(self._told)})


def _uses(before: _Read, read: _Read) -> dict[Link, LinkUse]:
    """Return what went over each link between two readings; without those whose connections were made anew."""
    seconds, found = read[0] - before[0], {}
    for link, now in read[1].items():
        then = before[1].get(link)
        if then is not None and now.sent_bytes >= then.sent_bytes and now.busy_s >= then.busy_s:
            found[link] = LinkUse(now.sent_bytes - then.sent_bytes, now.busy_s - then.busy_s, seconds)
    return found


async def _read_all(nodes: Sequence[NodeRun]) -> _Read:
    names = {node.planned.address: node.name for node in nodes}
    asked = (node.answer_within("traffic", TrafficRequest(node.key), TrafficReply, ASK_DEADLINE_S) for node in nodes)
    replies = await asyncio.gather(*asked)
    found = {
        (node.name, names[peer.address]): peer
        for node, reply in zip(nodes, replies, strict=True)
        for peer in (reply.peers if reply is not None else ())
        if peer.address in names and names[peer.address] != node.name
    }
    return time.monotonic(), found
