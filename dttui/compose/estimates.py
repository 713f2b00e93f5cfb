"""What a draft costs, and which degrees would suit it better: the cost model over a job that is being composed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dttui.compose.draft_answers import Degrees, DraftCost, NoEstimate, Offer
from dttui.errors import UsageError
from dttui.fleet.known_hardware import gpu_types, known_hardware
from dttui.fleet.live import EnvironmentStatus, facts_of
from dttui.frameworks.registry import context_degree
from dttui.i18n import _, sentences
from dttui.inventory.models import Inventory
from dttui.planning.advising import advise_job
from dttui.planning.compose_state import ComposeState
from dttui.planning.cost.layout_changes import change_texts, helpful_changes
from dttui.planning.cost_text import Shrinking
from dttui.planning.costing import Costed, cost, cpu_remedy, is_on_unknown_cpu
from dttui.planning.parallelism import check_degrees, pipeline_degree
from dttui.planning.roster import Member, Roster, computing, make_roster
from dttui.spec.findings import Finding
from dttui.spec.models import Job, Model, Strategy

Statuses = Mapping[str, EnvironmentStatus]

_ANY_MODEL = Model(parameters=1e9)
"""To see whether the model is all that is missing."""
_NAME = "draft"
"""Of a job that is only looked at."""


def cost_of_draft(state: ComposeState, inventory: Inventory, statuses: Statuses) -> DraftCost:
    """Return what a draft costs by what is known now: live facts where there are any, else what is declared."""
    if not state.selected:
        return DraftCost()
    job = _job(state)
    return _cost(job, make_roster(job, inventory, facts_of(statuses)), inventory)


def shrinking(cost: DraftCost, framework: str | None) -> Shrinking:
    """Return what would shrink the largest parts of what a draft costs, in words; nothing without an estimate."""
    costing = cost.costed.costing if cost.costed is not None else None
    if costing is None:
        return {}
    return change_texts(helpful_changes(costing.shape, costing.layout, costing.hardware, framework), framework)


def advise(state: ComposeState, inventory: Inventory, statuses: Statuses) -> Offer:
    """Return the layouts that would run the draft's model on the ticked environments, the fastest first.

    Raises:
        UsageError: nothing can be searched for, or nothing found that fits; the hint says what would help.
    """
    if not state.selected:
        raise UsageError(_("Tick at least one environment"))
    job = _job(state)
    roster = make_roster(job, inventory, facts_of(statuses))
    known = known_hardware(inventory.environments)
    found, findings = advise_job(job, roster.members, known.gpus, known.links, learned=known.learned)
    if found is None:
        bare = job.model_copy(update={"strategy": Strategy(data_parallel=job.strategy.data_parallel)})
        absence = _absence(bare, roster, findings, inventory)
        raise UsageError(absence.reason, absence.remedy)
    advice = found.advice
    if advice.problem is not None:
        raise UsageError(
            _("no degrees would work: {reason}").format(reason=advice.problem),
            sentences([*advice.ways_out, _("Tick more environments, or change the model or the batch size.")]),
        )
    return Offer(**vars(found), current=_cost(job, roster, inventory))


def _job(state: ComposeState) -> Job:
    """Return the job without what has no part in its cost, which a person may be typing just now."""
    return replace(state, task_name=_NAME, program="", arguments="").to_job()


def _costed(job: Job, members: tuple[Member, ...], inventory: Inventory) -> Costed:
    known = known_hardware(inventory.environments)
    return Costed(members, *cost(job, members, known.gpus, known.links, known.learned))


def _cost(job: Job, roster: Roster, inventory: Inventory) -> DraftCost:
    costed = _costed(job, computing(roster.members), inventory)
    degrees = _degrees(job, roster)
    if costed.costing is None:
        return DraftCost(None, _absence(job, roster, costed.findings, inventory), degrees, costed)
    return DraftCost(costed.costing.estimate, None, degrees, costed)


def _degrees(job: Job, roster: Roster) -> Degrees | None:
    ranks, strategy = roster.world_size, job.strategy
    if not ranks or check_degrees(job, ranks):
        return None
    tensor, pipeline = strategy.tensor_parallel_size or 1, pipeline_degree(strategy) or 1
    return Degrees(ranks // (tensor * pipeline * context_degree(job)), tensor, pipeline, strategy.zero_stage)


def _absence(job: Job, roster: Roster, findings: Sequence[Finding], inventory: Inventory) -> NoEstimate:
    """Return why a job has no estimate; what is wrong with its nodes first, which no word about the model helps."""
    members = roster.members
    if not members:
        return _none(_("none of the ticked environments is in the inventory"))
    if is_on_unknown_cpu(members, gpu_types()):
        return _none(_("simulated GPUs compute on the CPU"), cpu_remedy(_("Tick environments with real GPUs.")))
    model = job.model
    lacks_model = model is None or not (model.parameters or (model.layers and model.hidden_size))
    if lacks_model:
        of_any = job.model_copy(update={"model": _ANY_MODEL})
        findings = _costed(of_any, computing(members), inventory).findings
    told = next((finding for finding in findings if finding.code == "no-estimate"), None)
    if told is not None:
        return NoEstimate(told.message, told.hint)
    if lacks_model:
        return NoEstimate(_none(_("the size of the model is not given")).reason, lacks_model=True)
    wrong = next(iter(check_degrees(job, roster.world_size)), None)
    return _none(wrong.message, wrong.hint) if wrong is not None else _none(_("the cost model does not cover this job"))


def _none(reason: str, remedy: str = "") -> NoEstimate:
    return NoEstimate(_("there is no estimate: {reason}").format(reason=reason), remedy)
