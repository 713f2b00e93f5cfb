"""What agents say, in the language of the person: by its code where there is one that is known, else as it came."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from dtagent.protocol.notices import Notice
from dtagent.protocol.said import MOST_DEPTH, MOST_PARTS
from dtagent.protocol.sentences import SENTENCES

from dttui.i18n import joined, msg
from dttui.sanitize import clean

MOST_CHARACTERS = 2048
"""Of a sentence, with those in it."""


def agent_text(text: str | None, notice: Notice | None) -> str:
    """Return what an agent said, as a message where its code is known.

    Args:
        text: in English, which is all that older agents send.
        notice: what it says.
    """
    if notice is not None:
        with contextlib.suppress(LookupError, ValueError, TypeError, AttributeError):
            return _said(notice.code, notice.values, MOST_DEPTH)
    return clean(text or "")


def agent_texts(texts: Sequence[str], notices: Sequence[Notice | None] | None) -> list[str]:
    """Return each of the texts as `agent_text` does."""
    return [agent_text(text, notice) for text, notice in zip_longest(texts, (notices or ())[: len(texts)])]


def agent_term(term: str, notice: Notice | None = None) -> str:
    """Return what a GPU is held back by, or its driver asks for: mostly a sentence whose code is its English."""
    sentence = SENTENCES.get(term)
    return msg(sentence.english) if sentence is not None and sentence.english == term else agent_text(term, notice)


def notice_in(data: object) -> Notice | None:
    """Return the notice in plain data that came from an agent, such as the `data` of an error."""
    notice = data.get("notice") if isinstance(data, dict) else None
    code, values = (notice.get("code"), notice.get("values")) if isinstance(notice, dict) else (None, None)
    return Notice(code, values) if isinstance(code, str) and isinstance(values, dict) else None


def _said(code: str, values: dict[str, Any], depth: int) -> str:
    """Return a sentence. Raises LookupError, ValueError or TypeError where it is unknown, lacks a value or is long."""
    english = SENTENCES[code].english
    said = msg(english, **{name: _value(value, depth) for name, value in values.items() if f"{{{name}}}" in english})
    if len(said) > MOST_CHARACTERS:
        raise ValueError("longer than any sentence")
    return said


def _value(value: Any, depth: int) -> str:
    if isinstance(value, (dict, list)) and depth <= 1:
        raise ValueError("sentences in sentences without end")
    if isinstance(value, dict):
        return _said(value["code"], value["values"], depth - 1)
    if isinstance(value, list):
        if len(value) > MOST_PARTS:
            raise ValueError("more parts than any sentence has")
        return joined("; ", [_value(item, depth - 1) for item in value])
    return clean(str(value))
