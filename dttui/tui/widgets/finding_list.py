"""What a plan has to say, a line or two each."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from dttui.i18n import _
from dttui.planning.models import Finding
from dttui.sanitize import clean
from dttui.tui import words
from dttui.tui.widgets.prose import Prose


class FindingList(VerticalScroll, can_focus=False):
    """As high as what it says, up to a limit; away where there is nothing to say."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.border_title = _("Findings")
        self.display = False

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        yield Prose(id="findings-text")

    def show(self, findings: Sequence[Finding]) -> None:
        """Say these."""
        self.display = bool(findings)
        self.query_one(Prose).show(Content("\n").join(finding_line(item) for item in findings))


def finding_line(finding: Finding) -> Content:
    """Return one finding: what, and what to do about it."""
    word = words.severity(finding.severity)
    pieces: list[Content | tuple[str, str]] = [
        (f"{word.symbol} ", f"bold ${word.colour}"),
        (f"{word.word}: ", f"${word.colour}"),
        Content(clean(finding.message)),
    ]
    if finding.hint:
        pieces.append((f"  → {clean(finding.hint)}", "$muted"))
    return Content.assemble(*pieces)
