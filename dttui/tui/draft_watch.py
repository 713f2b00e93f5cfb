"""What is known of the draft on the screen: what its launch would do and what it costs, read anew as it changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dttui.inventory.models import Inventory
from dttui.planning.compose import ComposeState
from dttui.services.compose.draft import Outlook, look_ahead
from dttui.services.compose.estimates import DraftCost, cost_of_draft
from dttui.services.fleet import Fleet


class DraftWatch:
    """Reads in threads. What was overtaken by a change while it was read is not kept."""

    def __init__(self, state: ComposeState, inventory: Inventory, fleet: Fleet) -> None:
        self.state = state
        self.outlook = Outlook(None, ())
        """As of the last look that was not overtaken."""
        self.cost: DraftCost | None = None
        """Of the last reading; `is_costed` tells whether it is of the draft as it is."""
        self._inventory = inventory
        self._fleet = fleet
        self._changes = 0
        self._costed = -1
        """The change that `cost` is of."""
        self._is_costing = False

    @property
    def is_costed(self) -> bool:
        """Whether `cost` is that of the draft as it is now."""
        return self._costed == self._changes

    def become(self, state: ComposeState, *, is_cost_kept: bool) -> None:
        """Take the draft as it is now."""
        self.state = state
        self._changes += not is_cost_kept

    async def keep_cost(self) -> bool:
        """Read the cost until nothing has changed meanwhile; return whether there is a new one to show."""
        if self._is_costing:
            return False
        self._is_costing = True
        try:
            while not self.is_costed:
                changes = self._changes
                self.cost = await self.cost_now()
                self._costed = changes
        finally:
            self._is_costing = False
        return True

    async def cost_now(self) -> DraftCost:
        """Return what the draft costs."""
        return await asyncio.to_thread(cost_of_draft, self.state, self._inventory, dict(self._fleet.statuses))

    async def look_ahead(self, base: Path) -> tuple[Outlook, bool]:
        """Return what a launch would do, and whether that is still of the draft as it is now.

        Args:
            base: directory that the draft's relative paths start from.
        """
        looked_at = self.state, self._changes
        statuses = dict(self._fleet.statuses)
        outlook = await asyncio.to_thread(look_ahead, self.state, self._inventory, statuses, base)
        is_current = looked_at == (self.state, self._changes)
        if is_current:
            self.outlook = outlook
        return outlook, is_current
