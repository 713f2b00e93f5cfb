"""What the head of the run screen tells: how the job stands, its newest figures, how far it is, the last checkpoint."""

from __future__ import annotations

from dtagent.protocol.events import JobState
from dtagent.protocol.metric_fields import scaled
from textual.content import Content

from dttui.i18n import _
from dttui.jobs import JobView, speed_of
from dttui.tui import symbols
from dttui.tui.checks import so_far
from dttui.tui.remedy_keys import with_keys
from dttui.tui.rows import line
from dttui.tui.widgets.cells import bar
from dttui.words import measure_name

_LEAST_BAR, _MOST_BAR = 10, 40
_BAR_SHARE = 0.2
"""Of the line, that the bar takes."""
_GAP = "   "


def newest_figures(view: JobView, *, is_narrow: bool) -> Content:
    """Return what the ranks have reported last, in a few figures."""
    metric = view.newest_metric
    if metric is None:
        return Content("")
    pieces: list[Content] = []
    measure, speed = speed_of(metric) or ("", None)
    for name, value in (
        (_("step"), None if metric.step is None else f"{metric.step:,}"),
        (_("epoch"), None if metric.step is not None or metric.epoch is None else symbols.number(metric.epoch)),
        (_("loss"), None if metric.loss_as_told is None else symbols.number(metric.loss_as_told)),
        (measure_name(measure), None if speed is None else scaled(speed)),
    ):
        if value is not None and len(pieces) < (2 if is_narrow else 3):
            pieces.append(Content.assemble((f"{name} ", "$muted"), (value, "bold")))
    if (share := view.communication) is not None and not is_narrow:
        known = _("estimated {share:.0f}%").format(share=share.estimated) if share.estimated is not None else ""
        name = _("communication")
        told = (f"{name} ", "$muted"), (f"{share.measured:.0f}%", "bold")
        pieces.append(Content.assemble(*told, f" ({known})" if known else ""))
    return Content(_GAP).join(pieces)


def status_line(view: JobView, silence: str, progress: str, now: float, *, is_over: bool) -> Content:
    """Return how a job stands, or how it ended.

    Args:
        view: of the job.
        silence: why nobody knows what becomes of it; empty while its controller does.
        progress: what was said last of what it is doing.
        now: Unix time.
        is_over: whether the job is.
    """
    if is_over:
        state = symbols.job_state(view.state)
        symbol = "⚠" if view.apart and view.state is JobState.SUCCEEDED else state.symbol
        pieces = [f"{symbol} {state.word}", line(view.reason)]
        pieces.append(_("exit code {code}").format(code=view.exit_code))
        return Content(" · ".join(piece for piece in pieces if piece))
    if silence:
        return Content.styled(f"⚠ {line(silence)}", "$state-unknown")
    text = line(view.headline(now)) or line(progress)
    warnings = map(line, (view.hang, view.unhealthy, view.apart, view.straggler))
    if any(node.is_unseen for node in view.nodes.values()) or (text and text in warnings):
        return Content.styled(f"⚠ {with_keys(text)}", "$state-unknown")
    since = "" if view.state is JobState.RENDEZVOUS and text else so_far(view, now)  # Which tells it itself.
    return Content.styled(" · ".join(filter(None, (text, since))), "$muted")


def progress_line(view: JobView, width: int, now: float, *, is_over: bool) -> Content:
    """Return the line, as much of it as there is room for; empty where nothing is known.

    Args:
        view: of the job.
        width: in cells.
        now: Unix time.
        is_over: whether the job is.
    """
    found = Content("")
    for piece in (_done(view, width, now, is_over=is_over), _best(view), _checkpoint(view, now, is_over=is_over)):
        if piece is not None:
            longer = found + Content(_GAP) + piece if found else piece
            found = longer if longer.cell_length <= width else found
    return found


def _done(view: JobView, width: int, now: float, *, is_over: bool) -> Content | None:
    progress, newest = view.training_progress, view.newest_metric
    if progress is None or newest is None:
        return None
    filled, empty = bar(progress.share, max(_LEAST_BAR, min(_MOST_BAR, int(width * _BAR_SHARE))))
    share, *left = progress.words()
    told = Content.assemble((filled, "$gpu-busy"), (empty, "$gpu-track"), " ", (share, "bold"))
    total = newest.value("total_steps")
    if total is None and view.plan is not None and view.plan.length is not None:
        total = view.plan.length.steps
    if total is not None and newest.step is not None:
        steps = _("step {step:,} of {total:,}").format(step=newest.step, total=int(total))
        told += Content.styled(f"  {steps}", "$muted")
    if left and not is_over and progress.remaining_s is not None:
        until = _(", until {time}").format(time=symbols.clock_time(now + progress.remaining_s))
        told += Content.assemble("  ", (left[0], "bold"), (until, "$muted"))
    return told


def _best(view: JobView) -> Content | None:
    best = view.best
    if best is None or best.loss is None:
        return None
    told = Content.assemble((_("best loss") + " ", "$muted"), (symbols.number(best.loss), "bold"))
    if best.step is None:
        return told
    return told + Content.styled(" " + _("at step {step:,}").format(step=best.step), "$muted")


def _checkpoint(view: JobView, now: float, *, is_over: bool) -> Content | None:
    """Return when the last checkpoint was written that was told of: at the end of each attempt they are looked at.

    How long ago that was is told while the job goes on: time stands still in one that is over.
    """
    written = max((item.newest for item in view.saved if item.kind == "checkpoints"), default=None)
    if written is None:
        return None
    time = symbols.clock_time(written)
    told = time if is_over else _("{time}, {age} ago").format(time=time, age=symbols.age(now - written))
    return Content.assemble((_("last checkpoint") + " ", "$muted"), (told, "bold"))
