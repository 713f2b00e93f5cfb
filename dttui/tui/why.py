"""Why a job failed, in the order in which a person reads it: who, how, the traceback, its last words, what to try."""

from __future__ import annotations

import signal

from textual.content import Content

from dttui.i18n import _
from dttui.planning.models import Severity
from dttui.sanitize import clean
from dttui.services.advice import advice
from dttui.services.view import Failure, JobView
from dttui.tui import words

MOST_OTHERS = 20
"""Further failures that are named."""


def why(view: JobView) -> Content:
    """Return the whole page; what a job that has not failed has to say is short."""
    if not view.failures and not _has_failed(view):
        return Content.styled(_("Nothing has failed."), "$muted")
    lines = _first(view.failures[0]) if view.failures else _without_rank(view)
    lines += [Content(""), _heading(_("What to try"))]
    lines += [Content.assemble(("• ", "$ticked"), sentence) for sentence in advice(view)]
    if len(view.failures) > 1:
        lines += _others(view.failures[1:])
    return Content("\n").join(lines)


def _has_failed(view: JobView) -> bool:
    return view.state.value == "FAILED"


def _first(failure: Failure) -> list[Content]:
    lines = [Content.styled(f"✗ {clean(failure.message)}", "bold $state-failed")]
    facts = [
        (_("node"), clean(failure.node)),
        (_("rank"), _("launcher") if failure.rank is None else str(failure.rank)),
    ]
    facts.append((_("ending"), _ending(failure)))
    if failure.time:
        facts.append((_("at"), words.time_of_day(failure.time)))
    pieces: list[tuple[str, str] | str] = []
    for name, value in facts:
        pieces += [(f"{name} ", "$muted"), f"{value}    "]
    lines.append(Content.assemble(*pieces))
    if failure.error and failure.error not in failure.message:
        lines += [Content(""), _heading(_("Error")), Content(clean(failure.error))]
    if failure.traceback:
        lines += [Content(""), _heading(_("Traceback")), Content(clean(failure.traceback).rstrip())]
    last = _last_lines(failure)
    if last:
        lines += [Content(""), _heading(_("Last lines of its standard error"))]
        lines.append(Content.styled("\n".join(last), "$muted"))
    return lines


def _without_rank(view: JobView) -> list[Content]:
    lines = [Content.styled(f"✗ {clean(view.reason)}", "bold $state-failed")]
    for event in view.findings:
        if event.data.get("severity", Severity.ERROR.value) != Severity.ERROR.value:
            continue
        lines.append(Content.assemble(("✗ ", "$finding-error"), clean(event.message)))
        if event.data.get("hint"):
            lines.append(Content.styled(f"  → {clean(str(event.data['hint']))}", "$muted"))
    for node in view.nodes.values():
        if node.message and node.state in ("failed", "lost", "unkillable"):
            lines.append(Content.assemble((f"{clean(node.plan.name)}: ", "bold"), clean(node.message)))
    return lines


def _others(failures: list[Failure]) -> list[Content]:
    lines = [Content(""), _heading(_("Failed after it"))]
    for failure in failures[:MOST_OTHERS]:
        lines.append(Content.assemble((f"{words.time_of_day(failure.time)}  ", "$muted"), clean(failure.message)))
    if len(failures) > MOST_OTHERS:
        rest = _("… and {count} more").format(count=len(failures) - MOST_OTHERS)
        lines.append(Content.styled(rest, "$muted"))
    return lines


def _ending(failure: Failure) -> str:
    if failure.signal is not None:
        known = {item.value: item.name for item in signal.Signals}
        return _("signal {name}").format(name=known.get(failure.signal, failure.signal))
    return "–" if failure.exit_code is None else _("exit code {code}").format(code=failure.exit_code)


def _last_lines(failure: Failure) -> list[str]:
    """Return the end of its standard error, but for a traceback that was shown already."""
    lines = [clean(text) for text in failure.tail]
    shown = clean(failure.traceback or "").rstrip().splitlines()
    if shown and [text.strip() for text in lines[-len(shown) :]] == [text.strip() for text in shown]:
        return lines[: -len(shown)]
    return lines


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $primary")
