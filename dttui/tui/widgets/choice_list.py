"""A list of which one line is chosen: what asks for a choice is no line that could be taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.widgets import OptionList, Select


class ChoiceList(Select[Any]):
    """Tells what a person chooses, and nothing of what is offered. A choice that was made can only be changed."""

    def __init__(self, *, id: str, prompt: str = "–") -> None:
        """Offer nothing yet; `prompt` stands there until something is chosen."""
        super().__init__([("", Select.NULL)], id=id, prompt=prompt, allow_blank=False, compact=True)
        self._lines: list[tuple[Any, Any]] = []

    def offer(self, options: Sequence[tuple[Any, str]], chosen: str | None) -> None:
        """Offer other lines, of which that with this value is chosen, or none yet."""
        lines = list(options) if chosen is not None else [("", Select.NULL), *options]
        with self.prevent(Select.Changed):
            if lines != self._lines:
                self._lines = lines
                self.set_options(lines)
                if chosen is None:
                    self.query_one(OptionList).disable_option_at_index(0)
            self.value = chosen if chosen is not None else Select.NULL
