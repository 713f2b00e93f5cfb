"""Completes the last word of a filter, as it is typed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.suggester import Suggester


class TermSuggester(Suggester):
    """Shows the first completion behind the cursor; the right arrow takes it."""

    def __init__(self, complete: Callable[[str], Sequence[str]]) -> None:
        """Offer what `complete` makes of a text."""
        super().__init__(use_cache=False, case_sensitive=True)
        self._complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        """Return the text with its last word completed; `None` where that is nothing or done."""
        found = self._complete(value)
        return next((value + item[len(value) :] for item in found if len(item) > len(value)), None)
