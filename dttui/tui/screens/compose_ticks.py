"""What a person does on the list of the compose screen: ticks, the master, and the GPUs that are used."""

from __future__ import annotations

from textual import on

from dttui.i18n import _
from dttui.planning import ComposeState
from dttui.tui.draft_watch import DraftWatch
from dttui.tui.environment_pane import EnvironmentPane
from dttui.tui.messages import EnvironmentToggled, GpusStepped, MasterChosen
from dttui.tui.screens.compose_pages import ComposePages
from dttui.tui.screens.gpu_dialog import GpuDialog, gpus_to_choose, why_none


class ComposeTicks(ComposePages):
    """Changes the draft by what the list tells."""

    draft: DraftWatch

    def set_state(self, state: ComposeState, *, from_form: bool = False) -> None:
        """Take another state, and show it."""
        raise NotImplementedError

    @on(EnvironmentToggled)
    def _toggled(self, event: EnvironmentToggled) -> None:
        self.set_state(self.draft.state.toggle(*event.keys))

    @on(MasterChosen)
    def _master_chosen(self, event: MasterChosen) -> None:
        state = self.draft.state
        ticked = state if event.key in state.selected else state.toggle(event.key)
        self.set_state(ticked.choose_master(event.key))

    @on(GpusStepped)
    def _gpus_stepped(self, event: GpusStepped) -> None:
        choice = next((item for item in self.draft.choices if item.environment.name == event.key), None)
        if choice is not None:
            self.set_state(self.draft.state.step_gpus(choice, event.step))
        elif event.key not in self.draft.state.selected:
            self.notify(_("Tick the environment first; all its GPUs are used unless you ask for fewer."), markup=False)

    def action_choose_gpus(self) -> None:
        """Ask which GPUs of the environment under the cursor are used."""
        pane = self.query_one(EnvironmentPane)
        if (key := pane.highlighted) is None:
            return
        status = pane.seen[key]
        if not gpus_to_choose(status):
            self.notify(why_none(status), markup=False)
            return

        def take(ids: tuple[int, ...] | None) -> None:
            if ids is not None:
                self.set_state(self.draft.state.choose_gpus(key, ids))

        chosen = self.draft.state.choice(status.environment, status.facts).ids_asked
        self.app.push_screen(GpuDialog(pane.name_of(key), lambda: pane.seen[key], chosen), take)

    def action_tick_gpu(self, index: int) -> None:
        """Tick or untick a GPU of the environment under the cursor."""
        pane = self.query_one(EnvironmentPane)
        if (key := pane.highlighted) is not None:
            ids = sorted({*pane.gpus_named(key)} ^ {index})
            self.set_state(self.draft.state.choose_gpus(key, ids))
