"""The code of a text that an agent says to people, and what fills it: goes beside the text, in English, on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Notice:
    """What a text says: which of `sentences.SENTENCES`, or one of a newer agent's.

    A program goes by the code. Whoever shows it says the sentence of that code in the reader's language; where the code
    is not known, or a value is missing that it needs, the text is shown as it came.
    """

    code: str
    values: dict[str, Any] = field(default_factory=dict)
    """By the names of placeholders: text, a whole number, another notice, or a list of texts and notices."""
