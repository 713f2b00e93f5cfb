"""Which screens rest: what nobody can see is not kept up to date."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen


def is_covered(screen: Screen[Any]) -> bool:
    """Whether another screen lies over all of a screen; a dialog does not."""
    for other in reversed(screen.app.screen_stack):
        if other is screen:
            return False
        if not other.is_modal:
            return True
    return True
