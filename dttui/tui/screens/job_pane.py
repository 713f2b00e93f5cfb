"""The right side of the compose screen: what the ticked environments add up to and cost, and the fields of the job."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll

from dttui.app import Drafts
from dttui.compose import DraftCost, model_of, said_of
from dttui.i18n import _
from dttui.inventory import Dataset
from dttui.planning import Aggregate, Choice, ComposeState, estimate_text, gpu_text
from dttui.spec import Job
from dttui.tui.cost_words import absence_text, cost_figures, model_text
from dttui.tui.messages import FrameworkChosen, FrameworksWanted
from dttui.tui.rows import line
from dttui.tui.screens.frameworks import FrameworkDialog
from dttui.tui.section_titles import section_rows
from dttui.tui.widgets.distributed_panel import DistributedPanel
from dttui.tui.widgets.job_form import FormValues, JobForm
from dttui.tui.widgets.model_panel import ModelPanel
from dttui.tui.widgets.section_rows import SectionRows
from dttui.tui.widgets.summary import Chosen, Summary


class JobPane(VerticalScroll, can_focus=False):
    """Shows a state; what a person does with it goes up as messages of its parts."""

    def __init__(self, framework: str | None, drafts: Drafts, datasets: Sequence[Dataset], *, id: str) -> None:
        super().__init__(id=id)
        self._framework = framework
        self._drafts = drafts
        self._datasets = datasets
        self._base: Job | None = None
        """Whose sections are shown."""
        self._has_sections = False

    def compose(self) -> ComposeResult:
        """Lay out summary and fields."""
        yield Summary(id="summary")
        with Vertical(id="compose-fields"):
            yield ModelPanel(id="model-panel")
            yield DistributedPanel(id="distributed")
            yield JobForm(self._datasets, id="form")
            yield SectionRows(section_rows(), id="sections")

    def show(self, state: ComposeState, *, from_form: bool) -> None:
        """Show what the fields hold; `from_form` says that the form has it already."""
        self._framework = state.framework
        names = [(key, line(key)) for key in state.selected]
        (framework,) = self._drafts.frameworks(state.framework) if state.framework is not None else (None,)
        self.query_one(DistributedPanel).show(names, state.master, framework, state.framework_options)
        self.query_one(ModelPanel).show(model_text(model_of(state)))
        if state.base is not self._base or not self._has_sections:
            self._base, self._has_sections = state.base, True
            self.query_one(SectionRows).show({key: said_of(state, key) for key, _title in section_rows()})
        form = self.query_one(JobForm)
        form.show_container(state.container)
        if not from_form:
            values = FormValues(
                state.task_name,
                state.program,
                state.arguments,
                state.workdir,
                state.python,
                state.prefix,
                state.per,
                state.dataset,
            )
            form.show(values, state.program_kind)

    @on(FrameworksWanted)
    def _offer_frameworks(self, event: FrameworksWanted) -> None:
        event.stop()
        self.app.push_screen(FrameworkDialog(self._drafts.frameworks(), self._framework), self._framework_chosen)

    def _framework_chosen(self, name: str | None) -> None:
        if name is not None:
            self.post_message(FrameworkChosen(name))

    def sum_up(
        self,
        state: ComposeState,
        choices: Sequence[Choice],
        total: Aggregate | None,
        cost: DraftCost | None,
        *,
        is_fresh: bool,
    ) -> None:
        """Show what the ticked environments add up to and cost.

        Args:
            state: of the draft.
            choices: those of the ticked environments that the inventory has.
            total: `None` where nothing is ticked.
            cost: the last that is known.
            is_fresh: whether it is of this state.
        """
        known = {choice.environment.name: choice for choice in choices}
        ranks = sum(choice.slots for choice in choices)
        chosen = [_chosen(state, key, known.get(key)) for key in state.selected]
        figures = cost_figures(cost, is_fresh=is_fresh)
        note = absence_text(cost.absence) if cost is not None and cost.absence is not None else None
        self.query_one(Summary).follow(total, ranks, estimate_text(state), chosen, figures, note)


def _chosen(state: ComposeState, key: str, choice: Choice | None) -> Chosen:
    is_master = state.has_badge(key)
    if choice is None:
        return Chosen(line(key), _("not in the inventory"), is_master, simulated=False)
    return Chosen(line(key), gpu_text(choice, memory=False), is_master, choice.environment.simulated)
