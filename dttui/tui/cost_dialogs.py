"""Questions about what a draft costs: which model it trains, which degrees it should have. They change a state."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.app import App

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.planning.compose import ComposeState
from dttui.services.compose.estimates import DraftCost, Statuses, advise, model_of, with_layout, with_model
from dttui.tui.job_files import tell
from dttui.tui.screens.model import ModelDialog
from dttui.tui.screens.recommend import RecommendDialog


async def ask_for_model(app: App[Any], state: ComposeState) -> ComposeState | None:
    """Ask for the model; return the draft with it, `None` where it stays as it is. In a worker."""
    model = await app.push_screen_wait(ModelDialog(model_of(state)))
    return None if model is None else with_model(state, model)


async def offer_layouts(
    app: App[Any], state: ComposeState, inventory: Inventory, statuses: Statuses
) -> ComposeState | None:
    """Offer the best degrees; return the draft with those chosen, `None` where it stays as it is. In a worker."""
    try:
        offer = await asyncio.to_thread(advise, state, inventory, statuses)
    except UsageError as error:
        tell(app, error)
        return None
    chosen = await app.push_screen_wait(RecommendDialog(offer))
    return None if chosen is None else with_layout(state, chosen)


def tell_absence(app: App[Any], cost: DraftCost) -> None:
    """Say why there is no estimate."""
    if cost.absence is not None:
        tell(app, UsageError(cost.absence.reason, cost.absence.remedy))
    else:
        tell(app, UsageError(_("Tick at least one environment")))
