"""From what a watch has seen of the nodes of an attempt to its outcome, in the words of its first failure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dtagent.protocol.events import JobState
from dtagent.protocol.jobs import NodeState

from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.evidence import read_evidence
from dttui.diagnosis.models import Diagnosis
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.failures import FoundFailure, rank_failures, stopped_on_request
from dttui.engine.given_up import EndedFor, GivenUp, NotEnded, NotFollowed
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.rendezvous import tampering
from dttui.i18n import Message, msg
from dttui.jobs import JobDirectory
from dttui.jobs.outcome import AttemptOutcome, FirstFailure, NodeEnd, NodeOutcome, RankOutcome
from dttui.planning.models import Plan


@dataclass(frozen=True)
class Watched:
    """What a watch knows once nothing more comes from its nodes."""

    nodes: Sequence[NodeRun]
    """In order of node rank."""
    is_cancelled: bool = False
    """Whether it was stopped on request."""
    broken: Mapping[str, NotFollowed] = field(default_factory=dict)
    """By node, those that could no longer be followed."""
    unstopped: Mapping[str, NotEnded] = field(default_factory=dict)
    """By node, those that could be reached and did not end."""
    ended_for: EndedFor | None = None
    """Why it was ended though nothing of it had failed."""
    survived: Collection[str] = ()
    """Nodes without which an elastic attempt went on."""
    has_succeeded: bool = False
    """Whether an elastic attempt has, whatever became of single nodes."""
    over: Message | None = None
    """Why an elastic attempt could not go on."""

    @property
    def needed(self) -> list[NodeRun]:
        """The nodes but for those that an elastic attempt has survived."""
        return [node for node in self.nodes if node.name not in self.survived]

    @property
    def decisive(self) -> frozenset[str]:
        """Nodes that say how it ended: whoever stopped all wants to know of what may run anywhere."""
        return frozenset(node.name for node in (self.nodes if self.is_cancelled else self.needed))

    @property
    def given_up(self) -> list[GivenUp]:
        """The decisive nodes of which nobody knows what runs there."""
        return [
            GivenUp(name, self.broken.get(name), self.unstopped.get(name), node.agent_gone is not None)
            for node in self.nodes
            if (name := node.name) in self.decisive and (node.is_lost or name in self.broken)
        ]

    def node_outcomes(self) -> dict[str, NodeOutcome]:
        """Return how each node stands."""
        broken, unstopped = self.broken, self.unstopped
        return {node.name: node_outcome(node, broken.get(node.name), unstopped.get(node.name)) for node in self.nodes}


class Conclusion:
    """Finds the outcome of an attempt.

    Args:
        directory: of the job.
        log: of the attempt.
        watched: its nodes at the end.
        plan: what ran.
        secrets: values that no text may hold.
        tell: hears of each failure before anything is concluded from what was told.
    """

    def __init__(
        self,
        directory: JobDirectory,
        log: AttemptLog,
        watched: Watched,
        plan: Plan | None,
        secrets: Iterable[str],
        tell: Callable[[FoundFailure], None],
    ) -> None:
        self._directory = directory
        self._log = log
        self._watched = watched
        self._plan = plan
        self._secrets = tuple(secrets)
        self._tell = tell

    def outcome(self) -> AttemptOutcome:
        """Return it: a good one where every rank ended well of every node that was needed."""
        watched = self._watched
        if watched.has_succeeded and not watched.is_cancelled:
            return self._made(JobState.SUCCEEDED)
        failures = self._failures()
        if watched.is_cancelled:
            if not any(_is_uncleared(item) for item in failures) and not any(
                node.is_lost for node in watched.nodes if node.name in watched.decisive
            ):
                return self._made(JobState.CANCELLED, stopped_on_request(watched.needed))
            # What came of a stop is not why the job failed; what may still run is.
            failures = [item for item in failures if _is_uncleared(item) or item.data.get("lost")]
        for failure in failures:
            self._tell(failure)
        return self._of(failures)

    def _of(self, failures: Sequence[FoundFailure]) -> AttemptOutcome:
        """Return the outcome of an attempt of which these failures were told."""
        watched, job_id = self._watched, self._directory.job_id
        disturbed = tampering.why_ended(watched.nodes, even_mended=watched.ended_for is not None)
        if (ended_for := watched.ended_for) is not None:
            told = msg("{what}; {why}", what=ended_for.told, why=disturbed) if disturbed else ended_for.told
            ended = self._made(JobState.FAILED, told, ended_for.hint)
            blamed = (ended_for.node,) if ended_for.node is not None else ()
            return ended.model_copy(update={"cause": ended_for.cause, "blamed": blamed})
        given_up = watched.given_up
        found = self._diagnosed()
        first = found.first.as_outcome if found is not None and found.first is not None else None
        if watched.is_cancelled and given_up:
            return self._made(JobState.FAILED, *why_not_stopped(given_up, job_id), first)
        failures = [item for item in failures if item.node in watched.decisive]
        if failures or given_up:
            over = disturbed or watched.over
            return self._made(JobState.FAILED, *why_failed(found, failures, given_up, over, job_id), first)
        unwell = next((node for node in watched.needed if not node.has_succeeded), None)
        if unwell is not None:
            return self._made(JobState.FAILED, msg("{host} did not end well", host=unwell.name))
        return self._made(JobState.SUCCEEDED)

    def _failures(self) -> list[FoundFailure]:
        """Return what failed; of an elastic attempt what it has survived comes last."""
        failures = rank_failures(self._directory, self._watched.nodes, self._secrets)
        survived = self._watched.survived
        marked = [
            replace(item, data={**item.data, "survived": True}) if item.node in survived else item for item in failures
        ]
        return sorted(marked, key=lambda failure: failure.node in survived)

    def _diagnosed(self) -> Diagnosis | None:
        """Return why the job failed by what is recorded of it, as every reader of the job finds it."""
        if self._plan is None:
            return None
        view = self._log.view(self._directory.job_id, self._plan)
        try:
            evidence = read_evidence(self._directory, view)
            return diagnose(replace(evidence, state=JobState.FAILED))
        except OSError:  # What cannot be read says nothing; the failures themselves are known.
            return None

    def _made(
        self, state: JobState, message: str = "", hint: str = "", first: FirstFailure | None = None
    ) -> AttemptOutcome:
        return AttemptOutcome(
            attempt=self._log.attempt,
            state=state,
            message=message,
            hint=hint,
            nodes=self._watched.node_outcomes(),
            first_failure=first,
        )


def node_outcome(node: NodeRun, broken: NotFollowed | None = None, unstopped: NotEnded | None = None) -> NodeOutcome:
    """Return how a node stands.

    Args:
        node: it.
        broken: given where it could no longer be followed.
        unstopped: given where it could be reached and did not end.
    """
    status = node.status
    ended = status.reason_code if status is not None else ""
    known = {str(rank): rank for rank in node.ranks}
    ranks = {
        known[item.name]: RankOutcome(exit_code=item.exit_code, signal=item.signal, ended_at=node.here(item.ended_at))
        for item in (status.exits if status is not None else ())
        if item.name in known
    }
    end, why, reason = NodeEnd.CLEAN, ended, ""
    if broken is not None:
        end, why, reason = NodeEnd.UNCLEAN, "not-followed", broken.words
    elif node.agent_gone is not None:
        end, why, reason = NodeEnd.AGENT_GONE, "agent-gone", node.agent_gone.message
    elif unstopped is not None:
        end, why, reason = NodeEnd.UNCLEAN, "not-ended", unstopped.words
    elif status is not None and (status.leftovers or status.state is NodeState.UNKILLABLE):
        end = NodeEnd.UNCLEAN
    elif node.is_lost or (status is not None and not status.state.is_final):
        end, why = NodeEnd.LOST, "unreachable"
    elif status is None:
        end = NodeEnd.UNTOUCHED
    outcome = NodeOutcome(end=end, why=why, reason=reason, ranks=ranks, keeps_logs=node.is_cut_short)
    return outcome.model_copy(update={"heard_at": node.heard_at}) if outcome.is_silent else outcome


def _is_uncleared(failure: FoundFailure) -> bool:
    return bool(failure.data.get("uncleared"))


def why_not_stopped(given_up: Sequence[GivenUp], job_id: str) -> tuple[str, str]:
    """Return what to say, and what to do, of a stop on request that not all nodes have followed."""
    ordered = sorted(given_up, key=lambda item: (item.not_followed is None, item.not_ended is None))
    message, hint = _of_given_up(ordered, job_id)
    if ordered[0].not_ended is not None and ordered[0].not_followed is None:
        return msg("stopped on request, but not ended: {reason}", reason=message), hint
    return msg("stopped on request, but {what}", what=message), hint


def why_failed(
    found: Diagnosis | None,
    failures: Sequence[FoundFailure],
    given_up: Sequence[GivenUp],
    over: str | None,
    job_id: str,
) -> tuple[str, str]:
    """Return what to say, and what to do, of an attempt that has failed.

    Args:
        found: its diagnosis; `None` where that could not be made.
        failures: what was told of ranks, launchers and nodes, the first cause first; there are some, or nodes given up.
        given_up: the nodes that were.
        over: why the attempt could not go on, where that is not the failure alone.
        job_id: of the job.
    """
    first = found.first.failure if found is not None and found.first is not None else None
    told_of = [item for item in failures if first is not None and item.is_of(first)]
    of_first = [item for item in given_up if first is not None and item.name == first.node]
    if not told_of and (of_first or not failures):
        message, hint = _of_given_up(sorted(given_up, key=lambda item: item not in of_first), job_id)
        return (msg("{what}; {why}", what=message, why=over) if over else message), hint
    return _of_failure((told_of or failures)[0], failures, found, over), ""


def _of_failure(
    told_of: FoundFailure, failures: Sequence[FoundFailure], found: Diagnosis | None, over: str | None
) -> str:
    """Return what to say of the first failure, then of what could not be cleared, then why it was over."""
    message = (_of_all(found) if found is not None else "") or told_of.message
    uncleared = next((item for item in failures if item.data.get("uncleared")), told_of)
    for why in (uncleared.message if uncleared is not told_of else None, over):
        message = msg("{what}; {why}", what=message, why=why) if why else message
    return message


def _of_all(found: Diagnosis) -> str:
    """Return what there is to say where it is not a single rank or node that failed; empty where it is."""
    if found.first is not None:
        return found.headline if found.first.is_shared else ""
    return found.cause.words if found.cause is not None else ""


def _of_given_up(given_up: Sequence[GivenUp], job_id: str) -> tuple[str, str]:
    """Return the same of nodes that were given up, the first of which comes first."""
    first = given_up[0]
    if first.not_followed is not None:
        return msg("{host} could not be followed: {reason}", host=first.name, reason=first.not_followed.words), ""
    if first.not_ended is not None:
        return first.not_ended.words, msg("What runs there is unknown; `dttui stop {job}` asks again.", job=job_id)
    if first.is_agent_gone:
        gone = [item.name for item in given_up if item.is_agent_gone]
        hint = msg(
            "What ran there may run on: `dttui agents deploy {hosts}`, then `dttui stop {job}` ends it.",
            hosts=" ".join(gone),
            job=job_id,
        )
        return msg("the agent of {hosts} is gone", hosts=", ".join(gone)), hint
    lost = [item.name for item in given_up if item.is_silent]
    hint = msg("What runs there is unknown; `dttui stop {job}` asks again, and fetches the logs.", job=job_id)
    return msg("{hosts} could not be reached", hosts=", ".join(lost)), hint
