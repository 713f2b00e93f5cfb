"""What is known of the draft on the screen: what its launch would do and what it costs, read anew as it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from dttui.app import Drafts, Fleet, facts_of
from dttui.compose import DraftCost, DraftPreview
from dttui.inventory import Inventory
from dttui.planning import Aggregate, Choice, ComposeState, Estimate
from dttui.planning.aggregate import aggregate
from dttui.spec.findings import Finding


class DraftWatch:
    """Reads in threads. What was overtaken by a change while it was read is not kept.

    Args:
        state: the draft to begin with.
        inventory: environments on offer.
        fleet: how they are.
        drafts: who tells what a draft would do and costs.
        on_cost: is called when there is a new cost.
    """

    def __init__(
        self,
        state: ComposeState,
        inventory: Inventory,
        fleet: Fleet,
        drafts: Drafts,
        on_cost: Callable[[], None] = lambda: None,
    ) -> None:
        self.state = state
        self.choices: tuple[Choice, ...] = ()
        """The ticked environments that the inventory has, with what is known of them."""
        self.preview = DraftPreview(None, ())
        """As of the last look that was not overtaken."""
        self.cost: DraftCost | None = None
        """Of the last reading; `is_costed` tells whether it is of the draft as it is."""
        self._inventory = inventory
        self._fleet = fleet
        self._drafts = drafts
        self._on_cost = on_cost
        self._changes = 0
        self.costed = -1
        """The change that `cost` is of."""
        self._costing = asyncio.Lock()
        self._ignored: tuple[ComposeState, frozenset[str]] = (state, frozenset())

    @property
    def total(self) -> Aggregate | None:
        """What is ticked, added up; `None` where nothing is."""
        if not self.state.selected:
            return None
        # A node that the inventory lacks is one of the job's all the same.
        return aggregate(self.choices).model_copy(update={"node_count": len(self.state.selected)})

    @property
    def ignored(self) -> frozenset[str]:
        """Codes of errors that a preflight is to ignore: said of the draft as it is now."""
        state, codes = self._ignored
        return codes if state == self.state else frozenset()

    @property
    def is_costed(self) -> bool:
        """Whether `cost` is that of the draft as it is now."""
        return self.costed == self._changes

    @property
    def estimate(self) -> Estimate | None:
        """What the draft costs, by the newest that is known of it as it is now."""
        if self.is_costed:
            return self.cost.estimate if self.cost is not None else None
        return self.preview.plan.estimate if self.preview.plan is not None else None

    @property
    def lacks(self) -> tuple[Finding, ...]:
        """What keeps the draft from being launched, as far as that is known."""
        plan = self.preview.plan
        return tuple(self.state.validate() or (plan.errors if plan is not None else ()))

    def become(self, state: ComposeState, *, is_cost_kept: bool) -> None:
        """Take the draft as it is now."""
        self.state = state
        if not is_cost_kept:
            self._changes += 1
            known = self._fleet.statuses
            names = [item.name for item in state.environments(self._inventory)]
            chosen = {name: known[name] for name in names if name in known}
            self.choices = state.choices(self._inventory, facts_of(chosen))

    def ignore(self, codes: frozenset[str], state: ComposeState) -> None:
        """Have a preflight ignore errors for as long as the draft is this one."""
        self._ignored = (state, codes)

    async def cost_now(self) -> DraftCost:
        """Return what the draft costs as it is now, which is read once for all who ask."""
        async with self._costing:
            if self.cost is not None and self.is_costed:
                return self.cost
            while True:
                changes, statuses = self._changes, dict(self._fleet.statuses)
                cost = self.cost = await asyncio.to_thread(self._drafts.cost, self.state, self._inventory, statuses)
                self.costed = changes
                if self.is_costed:
                    self._on_cost()
                    return cost

    async def preview_draft(self, base: Path) -> tuple[DraftPreview, bool]:
        """Return what a launch would do, and whether that is still of the draft as it is now.

        Args:
            base: directory that the draft's relative paths start from.
        """
        costed = (await self.cost_now()).costed
        looked_at = self.state, self._changes
        statuses = dict(self._fleet.statuses)
        preview = await asyncio.to_thread(self._drafts.preview, self.state, self._inventory, statuses, base, costed)
        is_current = looked_at == (self.state, self._changes)
        if is_current:
            self.preview = preview
        return preview, is_current
