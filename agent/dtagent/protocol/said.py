"""What an agent says to people: English that knows its code and what fills it, so that it can be said otherwise.

Both sides share this. It imports nothing, since `dtagent connect` uses it, for which a person waits.
"""

from __future__ import annotations

TYPE_CHECKING = False  # As typing's, whose import a person would wait for.
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

NOTICE = "_notice"
"""What the name of a field ends in that holds the codes of the texts in the field of the name before it."""
MOST_PARTS = 32
"""Of a list that fills a place of a sentence, and of places."""
MOST_DEPTH = 6
"""Of a notice: sentences and lists in one another."""
MOST_NUMBER = 2**63
_NOTICE_LINE = "dtagent-notice "
"""What a line on stdout begins with that has, as JSON, the code of the text that is the last on stderr."""


class Said(str):
    """A text for people. Without a code the words are others', an engine's or the kernel's, or an older agent's.

    As a value of a dataclass of this protocol it is text, and the field that is called as its own and `NOTICE` gets the
    code and the values: see `rpc.to_wire`.
    """

    code: str
    values: Mapping[str, Any]
    """By the names of placeholders: plain values, and `{"code": …, "values": …}` for what is a sentence itself."""

    def __new__(cls, text: str, code: str = "", values: Mapping[str, Any] | None = None) -> Said:
        """Return a text; by itself it is the words of others."""
        said = super().__new__(cls, text)
        said.code, said.values = code, values or {}
        return said

    @property
    def notice(self) -> dict[str, Any] | None:
        """Code and values as JSON has them; `None` for words of others."""
        return {"code": self.code, "values": dict(self.values)} if self.code else None


class Sentence:
    """One thing that agents may have to say.

    Args:
        code: names it on the wire and in records, in all versions.
        english: with placeholders by name; how it is put may change.
    """

    def __init__(self, code: str, english: str) -> None:
        self.code = code
        self.english = english

    def __call__(self, **values: str | int | Sequence[str]) -> Said:
        """Say it. What is said several times in one place, a list, is set off by semicolons."""
        shown = {name: value if isinstance(value, (str, int)) else "; ".join(value) for name, value in values.items()}
        return Said(
            self.english.format(**shown),
            self.code,
            {
                name: _plain(value) if isinstance(value, (str, int)) else [_plain(item) for item in value]
                for name, value in values.items()
            },
        )

    def fits(self, values: Mapping[str, object]) -> bool:
        """Whether these are values for all that it has a place for."""
        try:
            self.english.format(**values)
        except LookupError:
            return False
        return True


def notice_of(text: object) -> Any:
    """Return the codes of a text, or of each text of a list; `None` where there are none."""
    if isinstance(text, Said):
        return text.notice
    if isinstance(text, list):
        notices = [notice_of(item) for item in text]
        return notices if any(notices) else None
    return None


def recalled(text: str, notice: object) -> Said:
    """Return a text that was written down with its notice, which may be missing or spoilt."""
    if isinstance(notice, dict) and _is_notice(notice, MOST_DEPTH):
        return Said(text, notice["code"], notice["values"])
    return Said(text)


def _is_notice(value: object, depth: int) -> bool:
    """Whether plain data is a notice, or what may stand in one, and fits into a frame, whoever has written it."""
    if isinstance(value, (str, int)):
        return isinstance(value, str) or abs(value) < MOST_NUMBER
    parts = list(value) if isinstance(value, list) else None
    if isinstance(value, dict) and isinstance(value.get("code"), str) and isinstance(value.get("values"), dict):
        parts = list(value["values"].values())
    if parts is None or depth <= 0 or len(parts) > MOST_PARTS:
        return False
    return all(_is_notice(item, depth - 1) for item in parts)


def notice_line(said: Said) -> str:
    """Return what a program writes to stdout whose last line on stderr is this text; empty for words of others."""
    import json

    return f"{_NOTICE_LINE}{json.dumps(said.notice)}\n" if said.notice is not None else ""


def said_at_end(text: str, output: Sequence[str]) -> Said:
    """Return what a program said last on stderr: with its code where the lines of its stdout have one."""
    import json

    notice: object = None
    for line in output:
        if line.startswith(_NOTICE_LINE):
            try:
                notice = json.loads(line[len(_NOTICE_LINE) :])
            except (ValueError, RecursionError):
                notice = None
    return recalled(text.removeprefix("dtagent: "), notice)


def _plain(value: str | int) -> Any:
    if isinstance(value, Said):
        return value.notice or str(value)
    return value
