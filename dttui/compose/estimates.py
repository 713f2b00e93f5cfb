"""What a draft costs, and which degrees would suit it better: the cost model over a job that is being composed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dttui.compose.draft import facts_of
from dttui.errors import UsageError
from dttui.fleet.known_hardware import known_hardware
from dttui.fleet.live import EnvironmentStatus
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.planning.advising import JobAdvice, advise_job, framework_of, given_fields, with_recommendation
from dttui.planning.compose_state import ComposeState
from dttui.planning.cost.estimate import Estimate
from dttui.planning.cost.recommend import Recommendation
from dttui.planning.costing import Costed, cost
from dttui.planning.parallelism import check_degrees, context_degree, pipeline_degree
from dttui.planning.roster import Member, Roster, computing, make_roster
from dttui.spec.findings import Finding
from dttui.spec.models import Job, Model, Section, Strategy

Statuses = Mapping[str, EnvironmentStatus]

_ANY_MODEL = Model(parameters=1e9)
"""To see whether the model is all that is missing."""
_NAME = "draft"
"""Of a job that is only looked at."""


@dataclass(frozen=True)
class NoEstimate:
    """Why there is no estimate."""

    reason: str
    """A whole sentence."""
    remedy: str = ""
    lacks_model: bool = False
    """Whether it is the size of the model that is not known."""


@dataclass(frozen=True)
class Degrees:
    """How the ranks of a job are shared out."""

    data: int
    tensor: int
    pipeline: int
    zero_stage: int | None
    """`None` where the job says nothing of it."""


@dataclass(frozen=True)
class DraftCost:
    """What a draft costs: an estimate, or else why there is none. Neither where nothing is ticked."""

    estimate: Estimate | None = None
    absence: NoEstimate | None = None
    degrees: Degrees | None = None
    """`None` where those of the job do not go with its ranks."""
    costed: Costed | None = None
    """For a plan of the same draft, which need not read it again."""


@dataclass(frozen=True)
class Offer(JobAdvice):
    """Layouts that a person may choose from, and what they were searched for."""

    current: DraftCost
    """What the job has now."""
    framework: str | None
    """The job's."""


def cost_of_draft(state: ComposeState, inventory: Inventory, statuses: Statuses) -> DraftCost:
    """Return what a draft costs by what is known now: live facts where there are any, else what is declared."""
    if not state.selected:
        return DraftCost()
    job = _job(state)
    return _cost(job, make_roster(job, inventory, facts_of(statuses)))


def advise(state: ComposeState, inventory: Inventory, statuses: Statuses) -> Offer:
    """Return the layouts that would run the draft's model on the ticked environments, the fastest first.

    Raises:
        UsageError: nothing can be searched for, or nothing found that fits; the hint says what would help.
    """
    if not state.selected:
        raise UsageError(_("Tick at least one environment"))
    job = _job(state)
    roster = make_roster(job, inventory, facts_of(statuses))
    known = known_hardware()
    found, findings = advise_job(job, roster.members, known.gpus, known.links)
    if found is None:
        bare = job.model_copy(update={"strategy": Strategy(data_parallel=job.strategy.data_parallel)})
        absence = _absence(bare, roster, findings)
        raise UsageError(absence.reason, absence.remedy)
    advice = found.advice
    if advice.problem is not None:
        raise UsageError(
            _("no degrees would work: {reason}").format(reason=advice.problem),
            _("Tick more environments, or change the model or the batch size."),
        )
    return Offer(**vars(found), current=_cost(job, roster), framework=job.framework)


def model_of(state: ComposeState) -> Model | None:
    """Return the model that the draft names."""
    return state.base.model if state.base is not None else None


def with_model(state: ComposeState, model: Model) -> ComposeState:
    """Give the draft a model; one of which nothing is said is none."""
    return _with(state, model=model if given_fields(model) else None)


def with_layout(state: ComposeState, chosen: Recommendation) -> ComposeState:
    """Give the draft the degrees, batches and schedule of a recommendation; what else its strategy says stays.

    Where its framework cannot train so, it gets one that can.
    """
    strategy = state.base.strategy if state.base is not None else Strategy()
    framework = framework_of(state.framework, chosen)
    if framework is not None and framework != state.framework:
        state = state.choose_framework(framework)
    return _with(state, strategy=with_recommendation(strategy, chosen))


def _job(state: ComposeState) -> Job:
    """Return the job without what has no part in its cost, which a person may be typing just now."""
    return replace(state, task_name=_NAME, program="", arguments="").to_job()


def _costed(job: Job, members: tuple[Member, ...]) -> Costed:
    known = known_hardware()
    return Costed(members, *cost(job, members, known.gpus, known.links))


def _cost(job: Job, roster: Roster) -> DraftCost:
    costed = _costed(job, computing(roster.members))
    degrees = _degrees(job, roster)
    if costed.costing is None:
        return DraftCost(None, _absence(job, roster, costed.findings), degrees, costed)
    return DraftCost(costed.costing.estimate, None, degrees, costed)


def _degrees(job: Job, roster: Roster) -> Degrees | None:
    ranks, strategy = roster.world_size, job.strategy
    if not ranks or check_degrees(job, ranks):
        return None
    tensor, pipeline = strategy.tensor_parallel_size or 1, pipeline_degree(strategy) or 1
    return Degrees(ranks // (tensor * pipeline * context_degree(job)), tensor, pipeline, strategy.zero_stage)


def _absence(job: Job, roster: Roster, findings: Sequence[Finding]) -> NoEstimate:
    """Return why a job has no estimate; what is wrong with its nodes first, which no word about the model helps."""
    members = roster.members
    if not members:
        return _none(_("none of the ticked environments is in the inventory"))
    if any(member.environment.simulated for member in members):
        return _none(_("simulated GPUs compute on the CPU"), _("Tick environments with real GPUs."))
    model = job.model
    lacks_model = model is None or not (model.parameters or (model.layers and model.hidden_size))
    if lacks_model:
        findings = _costed(job.model_copy(update={"model": _ANY_MODEL}), computing(members)).findings
    told = next((finding for finding in findings if finding.code == "no-estimate"), None)
    if told is not None:
        return NoEstimate(told.message, told.hint)
    if lacks_model:
        return NoEstimate(_none(_("the size of the model is not given")).reason, lacks_model=True)
    wrong = next(iter(check_degrees(job, roster.world_size)), None)
    return _none(wrong.message, wrong.hint) if wrong is not None else _none(_("the cost model does not cover this job"))


def _none(reason: str, remedy: str = "") -> NoEstimate:
    return NoEstimate(_("there is no estimate: {reason}").format(reason=reason), remedy)


def _with(state: ComposeState, **parts: Section | None) -> ComposeState:
    base = state.base or Job(name=_NAME)
    return replace(state, base=base.model_copy(update=parts))
