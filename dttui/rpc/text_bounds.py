"""How much is kept and shown of what an agent says: a text of 2 KiB, and of a traceback what the agent itself keeps."""

from __future__ import annotations

from typing import Any

MOST_TEXT_BYTES = 2048
MOST_TRACEBACK_BYTES = 16 * 1024
_MOST_DATA_BYTES = 4 * 1024 * 1024
_LONGER = {"data": _MOST_DATA_BYTES, "traceback": MOST_TRACEBACK_BYTES}
"""Field → how long it may be. `data` is bytes of a log, of which no more come than were asked for."""
_NUMBERS = frozenset({int, float, bool, type(None)})
"""Types of most of what telemetry brings; a call for each would be most of the time."""
_CUT = "…"
_LAST_WORD_CHARACTERS = 512


def bounded(value: Any, name: str = "") -> Any:
    """Return a value with its texts cut to what may be kept of them.

    Args:
        value: as JSON has it.
        name: of the field that holds it.
    """
    if isinstance(value, str):
        return cut(value, _LONGER.get(name, MOST_TEXT_BYTES), keeps_end=name == "traceback")
    if isinstance(value, dict):
        return {cut(key): item if type(item) in _NUMBERS else bounded(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [item if type(item) in _NUMBERS else bounded(item, name) for item in value]
    return value


def cut(text: str, most_bytes: int = MOST_TEXT_BYTES, *, keeps_end: bool = False) -> str:
    """Return a text in so many bytes of UTF-8, with a mark; not cut within a word, since half a secret is not known."""
    if len(text) * 4 <= most_bytes or len(raw := text.encode(errors="replace")) <= most_bytes:
        return text
    size = most_bytes - len(_CUT.encode())
    if keeps_end:
        kept = raw[-size:].decode(errors="ignore")
        begin = kept.find("\n", 0, _LAST_WORD_CHARACTERS) + 1
        return _CUT + kept[begin:]
    kept = raw[:size].decode(errors="ignore")
    end = max(kept.rfind(blank, -_LAST_WORD_CHARACTERS) for blank in " \n") + 1
    return (kept[:end] or kept) + _CUT
