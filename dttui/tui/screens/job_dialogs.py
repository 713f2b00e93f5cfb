"""What is asked before something is done with jobs: removed, run once more, or stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.widgets.button import ButtonVariant

from dttui.i18n import _, ngettext
from dttui.tui.rows import line
from dttui.tui.screens.dialogs import ChoiceDialog, Question
from dttui.words import listed, size_text

if TYPE_CHECKING:
    from dttui.app import RemovableJob
    from dttui.planning import Plan, Submission

MOST_NAMES = 4
"""Hosts, jobs or files that are named."""


def removal_dialog(found: Sequence[RemovableJob], kept: Sequence[str]) -> ChoiceDialog:
    """Return what asks before jobs are removed: which and how much goes, what stays, and what is then lost."""
    size = size_text(sum(item.size_bytes for item in found))
    if len(found) == 1:
        title = _("Remove {id} from this login node?").format(id=found[0].job.job_id)
        told = [_("Its logs, events and telemetry go, {size}.").format(size=size)]
    else:
        title = _("Remove {count} jobs from this login node?").format(count=len(found))
        names = listed([item.job.job_id for item in found], MOST_NAMES)
        told = [names, _("Their logs, events and telemetry go, {size}.").format(size=size)]
    told.append(_("What is on the hosts stays there, checkpoints too."))
    lost = list(dict.fromkeys(name for item in found for name in item.lost))
    if lost:
        hosts = line(listed(lost, MOST_NAMES))
        told.append(_("What may still run on {hosts} can be ended from here no more.").format(hosts=hosts))
    if kept:
        text = ngettext("{count} job stays: {why}", "{count} jobs stay, the first: {why}", len(kept))
        told.append(text.format(count=len(kept), why=kept[0]))
    choices: list[tuple[str, str, ButtonVariant]] = [("keep", _("Keep"), "primary"), ("remove", _("Remove"), "error")]
    return ChoiceDialog(title, "\n".join(told), choices)


def rerun_dialog(job_id: str, submission: Submission, plan: Plan, changed: Sequence[str]) -> ChoiceDialog:
    """Return what asks before a job is run once more: what happens, where, and what is another since."""
    hosts = line(listed([node.name for node in plan.nodes], MOST_NAMES))
    gpus = ngettext("{count} rank", "{count} ranks", plan.world_size).format(count=plan.world_size)
    if submission.continues is None:
        title = _("Run {id} again from the beginning?").format(id=job_id)
        told = [_("It is launched as it was, as another job: {ranks} on {hosts}.").format(ranks=gpus, hosts=hosts)]
    else:
        title = _("Restart {id} from its newest checkpoint?").format(id=job_id)
        text = _("It goes on as another job: {ranks} on {hosts}, which are asked for the checkpoint before the start.")
        told = [text.format(ranks=gpus, hosts=hosts)]
    told.append(_("Its hosts are checked first, and nothing of {id} is changed.").format(id=job_id))
    if changed:
        text = _("⚠ These files are not what it ran with: {names}.")
        told.append(text.format(names=line(listed(changed, MOST_NAMES))))
    warnings = [finding.message for finding in plan.findings if finding.severity.value == "warning"]
    if warnings:
        text = ngettext("⚠ {count} warning: {first}", "⚠ {count} warnings, the first: {first}", len(warnings))
        told.append(text.format(count=len(warnings), first=line(warnings[0])))
    do = _("Restart") if submission.continues is not None else _("Run again")
    choices: list[tuple[str, str, ButtonVariant]] = [("no", _("Cancel"), "default"), ("run", do, "primary")]
    return ChoiceDialog(title, "\n".join(told), choices)


def stop_question(name: str, *, is_stopping: bool) -> Question:
    """Return what is asked before a job is stopped, or while it is stopping."""
    choices: list[tuple[str, str, ButtonVariant]] = [("force", _("Stop at once"), "error")]
    if is_stopping:
        text = _("{name} is stopping: the script has a little time to save a checkpoint.")
        choices[:0] = [("cancel", _("Keep waiting"), "default")]
    else:
        text = _("Stop {name}? The script has a little time to save a checkpoint, unless it is stopped at once.")
        choices[:0] = [("cancel", _("Keep running"), "default"), ("graceful", _("Stop the job"), "primary")]
    return Question(text.format(name=name), choices)
