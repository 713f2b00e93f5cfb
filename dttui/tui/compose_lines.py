"""The short lines of the compose screen: what it is, how much is ticked, and whether the job can be launched."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from dttui.i18n import _, ngettext
from dttui.planning import Aggregate, Estimate, gpu_sum
from dttui.spec import Finding
from dttui.tui.cost_words import fit_word
from dttui.words import listed

MOST_NAMES = 3
"""Hosts that a line names."""


def ticked_line(ticked: int, environments: int, total: Aggregate | None) -> Content:
    """Return the right side of the title bar; `total` is `None` where nothing is ticked."""
    if not environments:
        return Content("")
    told = _("{ticked} of {total} ticked").format(ticked=ticked, total=environments)
    pieces: list[tuple[str, str] | str] = [(told, "bold")]
    if total is not None:
        pieces.append(" · " + gpu_sum(total))
        zones = len(total.zones)
        if zones:
            pieces.append(" · " + ngettext("{count} zone", "{count} zones", zones).format(count=zones))
        if zones > 1:
            pieces.append((" ⚠", "bold $warning"))
    return Content.assemble(*pieces)


def readiness(
    missing: Sequence[Finding],
    *,
    has_errors: bool,
    is_planned: bool,
    was_refused: bool,
    ticked: int,
    unusable: int,
    refused: Sequence[str],
    estimate: Estimate | None,
) -> Content:
    """Return whether the job can be launched, and the first thing that is missing.

    Args:
        missing: what is not filled in yet.
        has_errors: whether the plan has errors.
        is_planned: whether there is a plan.
        was_refused: whether a launch was tried in vain, so that what is missing is no longer a gentle hint.
        ticked: environments.
        unusable: of these, those that cannot be used now; it forbids nothing, since it may be over at the launch.
        refused: of these, those for which a launch would be refused now; that forbids nothing either.
        estimate: what the job costs, where that is known; it forbids nothing either, since it may be wrong.
    """
    if missing and was_refused:
        return Content.styled(f"✗ {missing[0].message}", "$finding-error")
    if missing:
        return Content.styled(f"○ {missing[0].message}" if ticked else "", "$muted")
    if has_errors:
        return Content.styled("✗ " + _("the errors above forbid the launch"), "$finding-error")
    if unusable and is_planned:
        told = ngettext(
            "{unusable} of {count} host cannot be used now",
            "{unusable} of {count} hosts cannot be used now",
            ticked,
        )
        return Content.styled("⚠ " + told.format(unusable=unusable, count=ticked), "$finding-warning")
    if refused and is_planned:
        told = _("a launch would be refused now: {hosts}").format(hosts=listed(refused, MOST_NAMES))
        return Content.styled(f"⚠ {told}", "$finding-warning")
    if is_planned and estimate is not None and not estimate.fits:
        told = _("{verdict} by the estimate; can be launched").format(verdict=fit_word(estimate).word)
        return Content.styled(f"⚠ {told}", "$finding-warning")
    return Content.styled("✓ " + _("ready to launch") if is_planned else "", "$state-succeeded")
