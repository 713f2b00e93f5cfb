"""What later looks at hosts have found of a job that was over with some of them lost, as it is told. Pure.

Whether there is anything to look at is for `left_to_do`.
"""

from __future__ import annotations

from collections.abc import Iterable

from dtagent.protocol.events import Event, EventKind, JobState, NodeStanding

from dttui.i18n import msg
from dttui.words import listed

OUTCOME = "attempt_outcome"
"""In the data of a job's state: how the attempt ended of which it tells the end."""
MESSAGE_ALONE = "message_alone"
"""Beside it: the message without what to do about it, where there is such advice; later it may be done."""
KINDS = (EventKind.JOB_STATE, EventKind.NODE_STATE)
"""Events that matter here."""
MOST_NAMES = 4
_UNCLEAN = ("unclean", "lost", "agent-gone")
"""Values of `NodeEnd`, of which whoever lists jobs need not read the whole."""
_DIRTY = (NodeStanding.LOST, NodeStanding.UNKILLABLE)


class Aftermath:
    """Takes in the events of a job, and knows once it is over what has become of the hosts that were lost."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._standings: dict[str, NodeStanding] = {}
        self._end: Event | None = None
        self._is_clean: dict[str, bool] = {}
        """Node that the end left behind → whether a later look has found nothing of the job there."""
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Take one event in."""
        if event.kind is EventKind.JOB_STATE:
            is_over = JobState(event.data.get("state")).is_final
            self._end = event if is_over else None
            self._is_clean = dict.fromkeys(self._left_behind(event), False) if is_over else {}
        elif event.kind is EventKind.NODE_STATE and event.node is not None:
            standing = NodeStanding(event.data.get("state"))
            self._standings[event.node] = standing
            if event.node in self._is_clean:
                self._is_clean[event.node] = standing.is_over and standing not in _DIRTY

    @property
    def cleared(self) -> tuple[str, ...]:
        """Hosts of which nobody knew what ran there when the job was over, and that are known to be clean since."""
        return tuple(name for name, is_clean in self._is_clean.items() if is_clean)

    @property
    def reason(self) -> str:
        """Why the job is over, and what is known since; empty where no later look has cleared a host."""
        if self._end is None or not self.cleared:
            return ""
        what = self._end.data.get(MESSAGE_ALONE) or self._end.message
        hosts = listed(self.cleared, MOST_NAMES)
        others = [name for name, is_clean in self._is_clean.items() if not is_clean]
        if others:
            return msg(
                "{what}; looked at again since: nothing of the job is left on {hosts}, and of {others} it is not known",
                what=what,
                hosts=hosts,
                others=listed(others, MOST_NAMES),
            )
        return msg("{what}; looked at again since: nothing of the job is left on {hosts}", what=what, hosts=hosts)

    def _left_behind(self, end: Event) -> list[str]:
        lost = [name for name, standing in self._standings.items() if standing is NodeStanding.LOST]
        return list(dict.fromkeys([*left_behind(end), *lost]))


def left_behind(end: Event) -> tuple[str, ...]:
    """Return the nodes of which the end of a job says that something of it may still run there."""
    outcome = end.data.get(OUTCOME)
    nodes = outcome.get("nodes") if isinstance(outcome, dict) else None
    told = nodes.items() if isinstance(nodes, dict) else ()
    return tuple(name for name, item in told if isinstance(item, dict) and item.get("end") in _UNCLEAN)
