"""What runs, and what has failed, in one line."""

from __future__ import annotations

from collections.abc import Sequence

from dtagent.protocol.metric_fields import scaled
from textual.content import Content

from dttui.i18n import _
from dttui.jobs import JobBrief
from dttui.tui import symbols
from dttui.tui.rows import line
from dttui.words import measure_name

WIDE = 110
"""Cells in which there is room for all of it."""
BAR_CELLS = 8
_FULL, _REST = "━", "╌"


def job_line(briefs: Sequence[JobBrief], width: int) -> Content:
    """Return the first of what runs and how far it is, how many others there are, and what has failed; empty for none.

    Args:
        briefs: what runs comes before what has failed.
        width: cells there are; in few of them it is told without a bar and without its speed.
    """
    running = [brief for brief in briefs if not brief.state.is_final]
    pieces = [_running(running[0], is_short=width < WIDE)] if running else []
    if len(running) > 1:
        pieces.append(Content.styled(_("and {count} more").format(count=len(running) - 1), "$muted"))
    pieces += [_failed(brief) for brief in briefs if brief.state.is_final]
    return Content("   ").join(pieces)


def _running(brief: JobBrief, *, is_short: bool) -> Content:
    state = symbols.job_state(brief.state)
    pieces: list[Content | str | tuple[str, str]] = [
        (f"{state.symbol} ", f"${state.colour}"),
        (line(brief.name), "bold"),
        (f" {state.word}", f"${state.colour}"),
    ]
    if brief.progress is not None:
        full = round(BAR_CELLS * brief.progress.share)
        if not is_short:
            pieces += ["  ", (_FULL * full, "$state-running"), (_REST * (BAR_CELLS - full), "$muted")]
        pieces += [f"  {word}" for word in brief.progress.words()]
    figures = [(_("loss"), symbols.number(brief.loss))] if brief.loss is not None else []
    if brief.speed is not None and not is_short:
        figures.append((measure_name(brief.speed[0]), scaled(brief.speed[1])))
    for name, value in figures:
        pieces += [(f"  {name} ", "$muted"), value]
    return Content.assemble(*pieces)


def _failed(brief: JobBrief) -> Content:
    state = symbols.job_state(brief.state)
    when = symbols.clock_time(brief.ended_at) if brief.ended_at is not None else ""
    said = f" · {line(brief.reason)}" if brief.reason else ""
    return Content.assemble(
        (f"{state.symbol} ", f"${state.colour}"),
        (line(brief.name), "bold"),
        (f" {state.word} {when}", f"${state.colour}"),
        (said, "$muted"),
    )
