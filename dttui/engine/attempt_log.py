"""What is said of one attempt while it is prepared, started and watched: events, each told once. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dtagent.protocol.events import Event, EventKind, JobState, NodeStanding
from dtagent.protocol.meeting import Numbering
from dtagent.protocol.rpc import to_wire

from dttui.engine.event_flow import EventFlow
from dttui.i18n import msg
from dttui.jobs.event_log import EventLog
from dttui.jobs.view import JobView
from dttui.planning.models import Finding, Plan
from dttui.spec.findings import warning

_STANDINGS = frozenset(item.value for item in NodeStanding)


class AttemptLog:
    """Writes the events of one attempt, and leaves out what was said last of the same thing."""

    def __init__(self, log: EventLog, attempt: int) -> None:
        self._log = log
        self.attempt = attempt
        self._told: dict[str, str] = {}
        self._flow = EventFlow(lambda kind, message, fields: log.add(kind, message, attempt=attempt, **fields))

    def resume(self, events: Iterable[Event]) -> None:
        """Take in what another controller told of the attempt; of another version, what is known of it."""
        unknown: dict[str, str] = {}
        for event in events:
            # What a node that may still run did is not known any more, and told again once it is.
            if event.kind is EventKind.NODE_STATE and event.node is not None:
                word = str(event.data.get("state"))
                if word not in _STANDINGS:
                    unknown[event.node] = word
                elif NodeStanding(word).is_over:
                    self._told[event.node] = f"{word} {event.message}"
            elif event.kind is EventKind.RANKS and event.node is not None:
                self._told[_ranks(event.node)] = _as_text(event.data)
            elif event.kind is EventKind.FINDING:
                self._told[_name(str(event.data.get("code")), str(event.data.get("subject")))] = event.message
        for node, word in unknown.items():
            message = msg("{host} was said to be {state}, of which this version knows nothing; the host is asked",
                           host=node, state=word)  # fmt: skip
            self.tell(warning("unknown-state", node, message))

    def enter(self, state: JobState, message: str, **data: object) -> None:
        """Tell the job's new state."""
        self.add(EventKind.JOB_STATE, message, data={"state": state.value, **data})

    def note(self, node: str, state: NodeStanding, message: str, **data: object) -> None:
        """Tell the state of a node."""
        if self._is_new(node, f"{state.value} {message}"):
            fields = {"node": node, "data": {"state": state.value, **data}}
            self._flow.offer(node, "state", EventKind.NODE_STATE, message, fields)

    def number(self, node: str, message: str, numbering: Numbering) -> None:
        """Tell how torchrun has numbered the ranks of a node."""
        data = dict(to_wire(numbering))
        if self._is_new(_ranks(node), _as_text(data)):
            self._flow.offer(node, "ranks", EventKind.RANKS, message, {"node": node, "data": data})

    def tell(self, finding: Finding) -> None:
        """Tell a finding."""
        if self._is_new(_name(finding.code, finding.subject), finding.message):
            told = {"data": finding.event_data}
            self._flow.offer(finding.subject, finding.code, EventKind.FINDING, finding.message, told)

    def view(self, job_id: str, plan: Plan) -> JobView:
        """Return the job as a reader of all events sees it, those too that the disk has not taken."""
        view = JobView(job_id)
        view.set_plan(plan)
        for event in self._log.every():
            view.apply(event)
        return view

    def has_told(self, code: str, subject: str) -> bool:
        """Whether a finding of this code was told of the subject."""
        return _name(code, subject) in self._told

    def progress(self, message: str, **data: object) -> None:
        """Tell what is being done now."""
        self.add(EventKind.PROGRESS, message, data=data)

    def news(self, node: str, message: str) -> None:
        """Tell what happens with a node, and may happen again and again."""
        self._flow.offer(node, "progress", EventKind.PROGRESS, message, {})

    def alert(self, node: str, rank: int | None, message: str, **data: object) -> None:
        """Tell an alarming report of a rank."""
        fields = {"node": node, "rank": rank, "data": data}
        self._flow.offer(node, f"alert {rank}", EventKind.METRIC_ALERT, message, fields)

    def tell_health(self, node: str, message: str, data: Mapping[str, object]) -> None:
        """Tell that a node is unhealthy, or healthy again."""
        self._flow.offer(node, "health", EventKind.HEALTH, message, {"node": node, "data": dict(data)})

    def flush(self) -> None:
        """Tell what was held back, and how much was left out."""
        self._flow.flush()

    def add(self, kind: EventKind, message: str, **fields: object) -> None:
        """Write an event of this attempt."""
        self._log.add(kind, message, attempt=self.attempt, **fields)

    def _is_new(self, subject: str, text: str) -> bool:
        if self._told.get(subject) == text:
            return False
        self._told[subject] = text
        return True


def _ranks(node: str) -> str:
    return f"ranks {node}"


def _as_text(numbering: Mapping[str, object]) -> str:
    return " ".join(str(numbering.get(key)) for key in ("ranks", "world_size", "restarts", "port"))


def _name(code: str, subject: str) -> str:
    return f"finding {code} {subject}"
