"""What a plan has to say, a line or two each."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from dttui.i18n import _
from dttui.sanitize import clean
from dttui.spec import Finding, Severity
from dttui.tui import symbols
from dttui.tui.widgets.prose import Prose

AXIOM = "axiom-"
"""How the codes of the findings about the axioms begin."""
ADVICE = "advice-"
"""How the codes of the advice on collective operations begin."""
MEMORY = "memory"
"""Code of the finding that a GPU may not hold the job: of all warnings the one that ends it."""
_SEVERITIES = (Severity.ERROR, Severity.WARNING, Severity.INFO)


class FindingList(VerticalScroll):
    """As high as what it says, up to a limit; away where there is nothing to say.

    It takes the focus only where it says more than is seen, so that keys can scroll it.
    """

    def __init__(self) -> None:
        super().__init__(id="findings")
        self.border_title = _("Findings")
        self.display = False

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        yield Prose(id="findings-text")

    def allow_focus(self) -> bool:
        """Whether there is more than is seen."""
        return self.max_scroll_y > 0

    def on_resize(self, event: events.Resize) -> None:
        """Say whether there is more than is seen."""
        self.call_after_refresh(self._say_whether_more)

    def show(self, findings: Sequence[Finding]) -> None:
        """Say these."""
        self.display = bool(findings)
        self.query_one(Prose).show(Content("\n").join(finding_lines(findings)))
        self.scroll_home(animate=False)
        self.call_after_refresh(self._say_whether_more)

    def _say_whether_more(self) -> None:
        self.border_title = _("Findings · tab and ↓ show the rest") if self.max_scroll_y > 0 else _("Findings")


def finding_line(finding: Finding) -> Content:
    """Return one finding: what, and what to do about it."""
    word = symbols.severity(finding.severity)
    pieces: list[Content | tuple[str, str]] = [
        (f"{word.symbol} ", f"bold ${word.colour}"),
        (_("{word}: ").format(word=word.word), f"${word.colour}"),
        Content(clean(finding.message)),
    ]
    pieces.append((symbols.hint(finding.hint), "$muted"))
    return Content.assemble(*pieces)


def finding_lines(findings: Sequence[Finding]) -> list[Content]:
    """Return a line a finding, the gravest first; the axioms that hold share one, and so does the advice.

    These two ask for nothing, and would bury what does.
    """
    notes = [item for item in findings if item.severity is Severity.INFO]
    holding = [item for item in notes if item.code.startswith(AXIOM)]
    advice = [item for item in notes if item.code.startswith(ADVICE)]
    shown = [item for item in findings if item not in holding and item not in advice]
    shown.sort(key=lambda item: (_SEVERITIES.index(item.severity), item.code != MEMORY))
    lines = [finding_line(item) for item in shown]
    if advice:
        mark = symbols.severity(Severity.INFO)
        told = " · ".join(clean(item.message) + symbols.hint(item.hint) for item in advice)
        lines.append(Content.assemble((f"{mark.symbol} ", f"bold ${mark.colour}"), (told, "$muted")))
    if holding:
        every = sum(item.code.startswith(AXIOM) for item in findings)
        text = _("{count} of the {every} axioms of distributed training hold").format(count=len(holding), every=every)
        lines.append(
            Content.assemble(("✓ ", "bold $success"), text, (symbols.hint(_("e shows their numbers")), "$muted"))
        )
    return lines
