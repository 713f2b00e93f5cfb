"""A list of which each line can be ticked."""

from __future__ import annotations

from textual.widgets import OptionList


class TickList(OptionList):
    """Tells of a line that is to be ticked or unticked as of one that is selected."""

    def action_tick(self) -> None:
        """Tick or untick what is under the cursor, and go on to the next one."""
        self.action_select()
        if self.highlighted is not None:
            self.highlighted = min(self.highlighted + 1, self.option_count - 1)
