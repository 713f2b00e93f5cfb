"""Questions about what a draft costs: which model it trains, which degrees it should have. They change a state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from textual.app import App

from dttui.app import Drafts, EnvironmentStatus
from dttui.compose import Degrees, DraftCost, model_of, with_layout, with_model
from dttui.errors import UsageError
from dttui.i18n import _
from dttui.inventory import Inventory
from dttui.planning import ComposeState, Recommendation
from dttui.sanitize import clean
from dttui.tui.cost_words import degrees_text
from dttui.tui.draft_watch import DraftWatch
from dttui.tui.screens.job_files import tell
from dttui.tui.screens.model import ModelDialog
from dttui.tui.screens.recommend import RecommendDialog

FILLED_S = 12.0
"""For which it is told what a recommendation has filled in."""


async def ask_for_model(app: App[Any], state: ComposeState) -> ComposeState | None:
    """Ask for the model; return the draft with it, `None` where it stays as it is. In a worker."""
    model = await app.push_screen_wait(ModelDialog(model_of(state)))
    return None if model is None else with_model(state, model)


async def has_model(app: App[Any], draft: DraftWatch, become: Callable[[ComposeState], None]) -> bool:
    """Whether the size of the draft's model is known, after asking for it where it is not. In a worker.

    Args:
        app: where to ask.
        draft: what is known of the draft.
        become: takes the draft with the model in it.
    """
    for may_ask in (True, False):
        cost = await draft.cost_now()
        if cost.absence is None or not cost.absence.lacks_model:
            return True
        if may_ask:
            become(await ask_for_model(app, draft.state) or draft.state)
    return False


async def offer_layouts(
    app: App[Any],
    drafts: Drafts,
    state: ComposeState,
    inventory: Inventory,
    statuses: Mapping[str, EnvironmentStatus],
) -> ComposeState | None:
    """Offer the best degrees; return the draft with those chosen, `None` where it stays as it is. In a worker."""
    try:
        offer = await asyncio.to_thread(drafts.advise, state, inventory, statuses)
    except UsageError as error:
        tell(app, error)
        return None
    labels = {item.name: item.label for item in drafts.frameworks()}
    chosen = await app.push_screen_wait(RecommendDialog(offer, labels))
    if chosen is None:
        return None
    filled = with_layout(state, chosen)
    _tell_filled(app, state, filled, chosen, labels)
    return filled


def _tell_filled(
    app: App[Any], before: ComposeState, filled: ComposeState, chosen: Recommendation, labels: Mapping[str, str]
) -> None:
    """Say what a recommendation has filled in, and why."""
    degrees = Degrees(
        chosen.data_parallel_size, chosen.tensor_parallel_size, chosen.pipeline_parallel_size, chosen.zero_stage
    )
    now = labels.get(filled.framework or "", filled.framework or "")
    told = [f"{now} · {degrees_text(degrees)}"]
    if before.framework not in (None, filled.framework):
        old = labels.get(before.framework or "", before.framework or "")
        told.append(_("{new} instead of {old}, which cannot train so").format(new=now, old=old))
    told += chosen.reasons
    app.notify(clean("\n".join(told)), title=_("Filled in"), markup=False, timeout=FILLED_S)


def tell_absence(app: App[Any], cost: DraftCost) -> None:
    """Say why there is no estimate."""
    if cost.absence is not None:
        tell(app, UsageError(cost.absence.reason, cost.absence.remedy))
    else:
        tell(app, UsageError(_("Tick at least one environment")))
