"""A job that is being composed: what there is to begin with, and what it would do, cost and lack."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dttui import locations
from dttui.app.caller import ForCaller, for_caller

if TYPE_CHECKING:
    from dttui.compose.draft_answers import (
        AdviceAnswer,
        CalibrationAnswer,
        CostAnswer,
        CostQuestion,
        DraftCost,
        DraftPreview,
        LaunchChanges,
        Offer,
        ReadText,
    )
    from dttui.compose.kept_drafts import KeptDraft
    from dttui.compose.templates import Template
    from dttui.export.rendered import Rendered
    from dttui.fleet.live import EnvironmentStatus
    from dttui.frameworks.base import Framework
    from dttui.inventory.models import Environment, Inventory
    from dttui.planning.compose_state import ComposeState
    from dttui.planning.cost_text import Shrinking
    from dttui.planning.costing import Costed
    from dttui.planning.models import Plan
    from dttui.planning.submission import Submission
    from dttui.spec.findings import Finding
    from dttui.spec.models import Job


class Begun(NamedTuple):
    """A job made of a template, before it is written."""

    files: Sequence[Rendered]
    """Its file, and what it runs."""
    replaced: Sequence[str]
    """Which of them are there already."""
    plan: Plan
    packages: Sequence[str]
    """What the interpreter of each host has to have."""


class Drafts(ForCaller):
    """What is said of drafts to one caller."""

    @for_caller
    def keep(
        self,
        state: ComposeState,
        inventory: str | None,
        base: Path,
        file: Path | None,
        *,
        fingerprint: str | None,
        edited: str | None,
        unfinished: str | None,
    ) -> None:
        """Keep what is composed on the screen of this process.

        Args:
            state: the draft.
            inventory: file of the inventory; `None` for the embedded cluster.
            base: directory that its relative paths start from.
            file: that it was read from.
            fingerprint: of that.
            edited: text of the job, where the file does not have that.
            unfinished: text that is no job as it stands.

        Raises:
            OSError: it cannot be written.
        """
        from dttui.compose.kept_drafts import KeptDraft, keep

        named = str(file) if file is not None else None
        keep(
            KeptDraft(
                kept_at=time.time(),
                inventory=inventory,
                base=str(base),
                file=named,
                fingerprint=fingerprint,
                edited=edited,
                unfinished=unfinished,
                state=state,
            )
        )

    @for_caller
    def drop(self) -> None:
        """Forget it: it is saved, or not wanted."""
        from dttui.compose.kept_drafts import drop

        drop()

    @for_caller
    def left(self, inventory: str | None) -> tuple[Path, KeptDraft] | None:
        """Return the newest draft that a screen has left behind which is no more, and where it lies."""
        from dttui.compose.kept_drafts import left

        return left(inventory)

    @for_caller
    def forget(self, path: Path) -> None:
        """Forget a draft that was left behind."""
        from dttui.compose.kept_drafts import forget

        forget(path)

    @for_caller
    def frameworks(self, *names: str) -> tuple[Framework, ...]:
        """Return the frameworks of these names, or all. Raises UsageError where there is none of a name."""
        from dttui.frameworks.registry import frameworks, get_framework

        return tuple(map(get_framework, names)) if names else frameworks()

    @for_caller
    def templates(self, framework: str | None = None) -> list[Template]:
        """Return all templates, or those of a framework. Raises UsageError where there is none of that name."""
        from dttui.compose.templates import read_templates

        found = read_templates(locations.shipped("examples"))
        if framework is None:
            return found
        (wanted,) = self.frameworks(framework)
        return [item for item in found if item.framework == wanted.name]

    @for_caller
    def template(self, framework: str | None, name: str | None) -> Template:
        """Return one template; see `choose_template`. Raises UsageError where there is none such."""
        from dttui.compose.templates import choose_template

        return choose_template(self.templates(), framework, name)

    @for_caller
    def begin(
        self, template: Template, environments: Sequence[Environment], inventory: Inventory, name: str, target: Path
    ) -> Begun:
        """Return a job of a template on environments, for a directory; writes nothing. See `made_for`.

        Args:
            template: what to begin with.
            environments: those to run on, the master first; for none, the first of the inventory.
            inventory: where they and the dataset are looked up.
            name: the job's.
            target: the directory.

        Raises:
            UsageError: there is no environment.
        """
        from dttui.compose.templates import environments_for, made_for
        from dttui.export.writing import replaced_files
        from dttui.planning.planner import plan

        job = made_for(template, environments or environments_for(template, inventory), inventory, name)
        files = template.files_for(job)
        return Begun(files, replaced_files(target, files), plan(job, inventory), template.packages())

    @for_caller
    def write(self, target: Path, files: Sequence[Rendered]) -> None:
        """Write files into a directory. Raises UsageError where one cannot be written."""
        from dttui.export.writing import write

        write(target, files)

    @for_caller
    def generate(self, job: Job, inventory: Inventory, target: Path) -> tuple[Template, Begun]:
        """Return a script and its configuration for a job, for a directory; writes nothing. See `generate` of compose.

        Raises:
            UsageError: no script honours what the job says.
        """
        from dttui.compose.generated import generate
        from dttui.export.writing import replaced_files

        template, planned, files = generate(job, self.templates(), inventory)
        return template, Begun(files, replaced_files(target, files), planned, template.packages())

    @for_caller
    def open_points(self, job: Job, base: Path) -> list[Finding]:
        """Return what a valid job leaves open, and what is wrong in it by itself; see `check_open_points`."""
        from dttui.compose.open_points import check_open_points

        return check_open_points(job, base)

    @for_caller
    def remarks(self, job: Job) -> list[Finding]:
        """Return what there is to say of a job's words by themselves; see `check_meaning`."""
        from dttui.planning.meaning import check_meaning

        return check_meaning(job)

    @for_caller
    def cost(self, state: ComposeState, inventory: Inventory, statuses: Mapping[str, EnvironmentStatus]) -> DraftCost:
        """Return what a draft costs by what is known of the hosts now; see `cost_of_draft`."""
        from dttui.compose.estimates import cost_of_draft

        return cost_of_draft(state, inventory, statuses)

    @for_caller
    def shrinking(self, cost: DraftCost, framework: str | None) -> Shrinking:
        """Return what would shrink the largest parts of what a draft costs; see `shrinking` of estimates."""
        from dttui.compose.estimates import shrinking

        return shrinking(cost, framework)

    @for_caller
    def preview(
        self,
        state: ComposeState,
        inventory: Inventory,
        statuses: Mapping[str, EnvironmentStatus],
        base: Path,
        costed: Costed | None = None,
    ) -> DraftPreview:
        """Return what would run if a draft were launched now; see `preview_draft`."""
        from dttui.compose.draft import preview_draft

        return preview_draft(state, inventory, statuses, base, costed)

    @for_caller
    def changes(self, text: str, plan: Plan) -> LaunchChanges | None:
        """Return what a job file and its plan would do otherwise than its last launch; see `changes_since_launch`."""
        from dttui.compose.launch_changes import changes_since_launch

        return changes_since_launch(text, plan)

    @for_caller
    def read_text(self, text: str, name: str, base: Path) -> ReadText:
        """Return what `validate` says of a text, and the job where it is one; see `read_job_text`."""
        from dttui.compose.text_reading import read_job_text

        return read_job_text(text, name, base)

    @for_caller
    def advise(self, state: ComposeState, inventory: Inventory, statuses: Mapping[str, EnvironmentStatus]) -> Offer:
        """Return the layouts that suit a draft, the fastest first. Raises UsageError where there is none."""
        from dttui.compose.estimates import advise

        return advise(state, inventory, statuses)

    @for_caller
    def estimate(self, question: CostQuestion, submission: Submission | None) -> CostAnswer:
        """Return what training costs: of a job with what the question changes, or of the question alone."""
        from dttui.compose.costs import estimate

        return estimate(question, submission)

    @for_caller
    def recommend(self, question: CostQuestion, submission: Submission | None) -> AdviceAnswer:
        """Return which layouts are fastest: for a job, or for what the question says alone."""
        from dttui.compose.costs import recommend

        return recommend(question, submission)

    @for_caller
    def calibration(self) -> CalibrationAnswer:
        """Return what estimates have learned from jobs that are over; see `learned_factors.calibration`."""
        from dttui.compose.learned_factors import calibration

        return calibration()

    @for_caller
    def drop_calibration(self, kind: str | None, *, dry_run: bool = False) -> tuple[str, ...]:
        """Forget what was learned of a kind of host, or of all; see `learned_factors.drop_calibration`."""
        from dttui.compose.learned_factors import drop_calibration

        return drop_calibration(kind, dry_run=dry_run)
