"""What a person would see: the text of widgets, toasts and of the whole screen."""

from __future__ import annotations

from textual.widgets import Static

from dttui.tui.app import DttuiApp


def text_of(app: DttuiApp, selector: str) -> str:
    """Text of one widget of the screen, before it is wrapped."""
    return str(app.screen.query_one(selector, Static).content)


def screen_text(app: DttuiApp) -> str:
    """All that is on the screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def toasts(app: DttuiApp) -> list[str]:
    """What was said in passing, the oldest first."""
    return [f"{item.title}: {item.message}" if item.title else item.message for item in app._notifications]
