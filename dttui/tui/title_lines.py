"""The left side of the title bar where a job is composed."""

from __future__ import annotations

from textual.content import Content

from dttui.i18n import _


def title_line(*, demo: bool) -> Content:
    """Return the left side of the title bar."""
    pieces = [("dttui ", "bold"), (_("compose"), "bold $primary")]
    if demo:
        pieces.append(("  " + _("demo: the cluster embedded in this machine"), "$simulated"))
    return Content.assemble(*pieces)
