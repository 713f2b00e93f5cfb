"""What a plan has to say, a line or two each; from one that a field mends, a person goes there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message

from dttui.i18n import _, told_now
from dttui.sanitize import clean
from dttui.spec import Finding, Severity
from dttui.tui import symbols
from dttui.tui.commands import N_
from dttui.tui.widgets.paragraphs import Paragraphs

AXIOM = "axiom-"
"""How the codes of the findings about the axioms begin."""
ADVICE = "advice-"
"""How the codes of the advice on collective operations begin."""
MEMORY = "memory"
"""Code of the finding that a GPU may not hold the job: of all warnings the one that ends it."""
_SEVERITIES = (Severity.ERROR, Severity.WARNING, Severity.INFO)


@dataclass
class FindingChosen(Message):
    """A person wants to mend what a finding is about."""

    finding: Finding


class FindingList(VerticalScroll):
    """As high as what it says, up to a limit; away where there is nothing to say.

    It takes the focus where a finding leads somewhere, or more is said than is seen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", N_("up"), show=False, id="findings.up"),
        Binding("down", "step(1)", N_("down"), show=False, id="findings.down"),
        Binding("enter", "choose", N_("mend"), id="findings.mend", tooltip=N_("Go to the field that mends it")),
    ]

    def __init__(self) -> None:
        super().__init__(id="findings")
        self.border_title = _("Findings")
        self.display = False
        self._findings: list[Finding | None] = []
        self._linked: set[int] = set()
        """Lines that lead somewhere."""
        self._cursor = 0

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        yield Paragraphs(id="findings-text")

    def allow_focus(self) -> bool:
        """Whether there is somewhere to go, or more than is seen."""
        return bool(self._linked) or self.max_scroll_y > 0

    def on_resize(self, event: events.Resize) -> None:
        """Say whether there is more than is seen."""
        self.call_after_refresh(self._say_whether_more)

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show the cursor where it has the focus, at the first finding that leads somewhere."""
        super().watch_has_focus(has_focus)
        self._cursor = min(self._linked, default=0)
        self._mark()

    def show(self, findings: Sequence[Finding], leads: Callable[[Finding], bool] = lambda _finding: False) -> None:
        """Say these; `leads` tells of one whether there is somewhere to go to mend it."""
        told = _told(findings)
        at = self._findings[self._cursor] if self.has_focus and self._cursor < len(self._findings) else None
        self._findings = [finding for finding, _line in told]
        self._linked = {i for i, item in enumerate(self._findings) if item is not None and leads(item)}
        self._cursor = self._findings.index(at) if at is not None and at in self._findings else 0
        self.display = bool(findings)
        lines = [finding_line(item, is_link=i in self._linked) if item else line for i, (item, line) in enumerate(told)]
        self.query_one(Paragraphs).show(Content("\n").join(lines))
        self._mark()
        if not self.has_focus:
            self.scroll_home(animate=False)
        self.call_after_refresh(self._say_whether_more)

    def action_step(self, by: int) -> None:
        """Go to the finding above or below."""
        if self._findings:
            self._cursor = min(max(self._cursor + by, 0), len(self._findings) - 1)
            self._mark()
            self.scroll_to_region(self.query_one(Paragraphs).region_of(self._cursor), animate=False, force=True)

    def action_choose(self) -> None:
        """Go to where the finding under the cursor is mended."""
        if self._cursor in self._linked and (finding := self._findings[self._cursor]) is not None:
            self.post_message(FindingChosen(finding))

    @on(Paragraphs.Clicked)
    def _clicked(self, event: Paragraphs.Clicked) -> None:
        event.stop()
        self._cursor = event.index
        self._mark()
        self.action_choose()

    def _mark(self) -> None:
        self.query_one(Paragraphs).mark(self._cursor if self.has_focus else None)

    def _say_whether_more(self) -> None:
        title = _("Findings")
        if self._linked:
            title = _("Findings · n and ↓ to one, enter to its field")
        elif self.max_scroll_y > 0:
            title = _("Findings · tab and ↓ show the rest")
        self.border_title = title


def finding_line(finding: Finding, *, is_link: bool = False) -> Content:
    """Return one finding: what, and what to do about it; of a link the word at its beginning is underlined."""
    word = symbols.severity(finding.severity)
    return Content.assemble(
        (f"{word.symbol} ", f"bold ${word.colour}"),
        (_("{word}: ").format(word=word.word), f"underline ${word.colour}" if is_link else f"${word.colour}"),
        Content(clean(told_now(finding.message))),
        (symbols.hint(finding.hint), "$muted"),
    )


def finding_lines(findings: Sequence[Finding]) -> list[Content]:
    """Return a line a finding, the gravest first; the axioms that hold share one, and so does the advice.

    These two ask for nothing, and would bury what does.
    """
    return [line for _finding, line in _told(findings)]


def _told(findings: Sequence[Finding]) -> list[tuple[Finding | None, Content]]:
    """Return the lines, each with the finding that it is of, where it is of one alone."""
    notes = [item for item in findings if item.severity is Severity.INFO]
    holding = [item for item in notes if item.code.startswith(AXIOM)]
    advice = [item for item in notes if item.code.startswith(ADVICE)]
    shown = [item for item in findings if item not in holding and item not in advice]
    shown.sort(key=lambda item: (_SEVERITIES.index(item.severity), item.code != MEMORY))
    lines: list[tuple[Finding | None, Content]] = [(item, finding_line(item)) for item in shown]
    if advice:
        mark = symbols.severity(Severity.INFO)
        told = " · ".join(clean(told_now(item.message)) + symbols.hint(item.hint) for item in advice)
        lines.append((None, Content.assemble((f"{mark.symbol} ", f"bold ${mark.colour}"), (told, "$muted"))))
    if holding:
        every = sum(item.code.startswith(AXIOM) for item in findings)
        text = _("{count} of the {every} axioms of distributed training hold").format(count=len(holding), every=every)
        hint = (symbols.hint(_("e shows their numbers")), "$muted")
        lines.append((None, Content.assemble(("✓ ", "bold $success"), text, hint)))
    return lines
