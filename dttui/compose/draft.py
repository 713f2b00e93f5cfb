"""A job that is being composed: what its launch would do and say now, from its state and what is known of the hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dttui.compose.draft_answers import DraftPreview
from dttui.errors import UsageError
from dttui.fleet.live import EnvironmentStatus, facts_of
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.jobs.board import forbidding
from dttui.launch.local_plan import make_local_plan
from dttui.planning.compose_state import ComposeState
from dttui.planning.costing import Costed
from dttui.planning.merged_findings import merged, without_node
from dttui.planning.models import Finding, Plan, Severity
from dttui.planning.submission import Submission
from dttui.preflight.occupation import MERELY_BUSY, check_room
from dttui.preflight.software import differences, drift_findings
from dttui.spec.findings import errors_first, warning

_COVERED = frozenset(("no-nodes", "dataset-missing", "run-missing", "framework-missing"))
"""What `ComposeState.validate` says in words that fit the screen better."""

_STAND_IN_NAME = "unnamed"
"""For a look ahead while no name has been given; never launched."""


def preview_draft(
    state: ComposeState,
    inventory: Inventory,
    statuses: Mapping[str, EnvironmentStatus],
    base: Path,
    costed: Costed | None = None,
) -> DraftPreview:
    """Return what would run if the draft were launched now. Reads the directory to be sent, and nothing else.

    Args:
        state: the draft.
        inventory: environments on offer.
        statuses: how they are.
        base: directory that relative paths start from.
        costed: what the draft costs, where that has been read just now.
    """
    named = state if state.task_name.strip() else replace(state, task_name=_STAND_IN_NAME)
    try:
        job = named.to_job()
        if job.model is not None and job.model.config is not None:
            costed = None  # What the configuration says is known by the plan alone, which reads it.
        plan = make_local_plan(Submission(job, inventory, base), facts_of(statuses), costed=costed)
    except UsageError as error:
        finding = Finding(code="field", severity=Severity.ERROR, subject="", message=error.message, hint=error.hint)
        return DraftPreview(None, (finding,))
    said = tuple(finding for finding in plan.findings if finding.code not in _COVERED)
    errors = tuple(finding for finding in said if finding.severity is Severity.ERROR)
    if not state.selected:
        return DraftPreview(plan, errors)
    hosts = _in_use(plan, inventory, statuses)
    told = facts_of(statuses)
    drift = drift_findings(differences(plan, {node.name: told[node.name] for node in plan.nodes if node.name in told}))
    hosts = [*hosts, *drift]
    taken = [_only_warned(finding) for finding in hosts if finding.code != MERELY_BUSY]
    busy = [finding for finding in hosts if finding.code == MERELY_BUSY]
    refusals = [finding for finding in (*hosts, *map(forbidding, said)) if finding.severity is Severity.ERROR]
    # The sort is stable: of what is equally bad, this is the order.
    findings = errors_first([*_away(state, statuses), *taken, *said, *busy])
    return DraftPreview(plan, tuple(merged(findings)), tuple(dict.fromkeys(item.subject for item in refusals)))


def _away(state: ComposeState, statuses: Mapping[str, EnvironmentStatus]) -> list[Finding]:
    """Return what is wrong with the ticked environments now: it may be over at the launch, and forbids nothing."""
    found = []
    for key in state.selected:
        status = statuses.get(key)
        if status is None or not status.is_away:
            continue
        code = f"environment-{status.state.value.replace(' ', '-')}"
        reason = without_node(status.reason, key)
        message = _("{node} cannot be used now: {reason}").format(node=key, reason=reason)
        found.append(warning(code, key, message, status.hint))
    return found


def _in_use(plan: Plan, inventory: Inventory, statuses: Mapping[str, EnvironmentStatus]) -> list[Finding]:
    """Return what would be in the way if the launch were now."""
    chosen = {node.name: status for node in plan.nodes if (status := statuses.get(node.name)) is not None}
    samples = {key: status.sample for key, status in chosen.items() if status.is_usable and status.sample is not None}
    return check_room(plan, inventory, samples)


def _only_warned(finding: Finding) -> Finding:
    return finding.model_copy(update={"severity": Severity.WARNING})
