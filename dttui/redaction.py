"""Takes secrets out of text that is about to be shown or stored: values that are known, and forms that tokens have.

A value is found as it is, and as JSON, Python, HTML, a shell, an address, base64 or hexadecimal digits write it; not
where it was compressed, cut into pieces, or has something in between.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from dttui.variables import variables

Span = tuple[int, int]
"""Where something begins, and where it ends."""
MARK = "•••"
MIN_LENGTH = 4
"""Characters. A shorter value would take common words with it."""
MIN_PART = 8
"""Bytes of a line of a value, or of what base64 makes of it between two neighbours: fewer may be anything."""
BASE64_LINE = 76
"""Characters of a line, where programs break it."""
CODES = frozenset({"code", "end_reason", "id", "kind", "plural", "process", "severity", "state", "status", "subject"})
"""Keys below which an event holds words that programs read, whatever a value may look like."""
_TOKENS = re.compile(
    # Hugging Face, GitHub, GitLab, Slack, OpenAI and its likes, AWS, Google, Weights & Biases.
    rb"\b(?:hf_[A-Za-z0-9]{20,}|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{16,}|xox[abpr]-[\w-]{10,}"
    rb"|sk-[\w-]{20,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|wandb_v1_\w{20,})"
    # A password in an address, and what comes after a bearer's name.
    rb"|(?<=://)[^\s/:@]*:[^\s/@]+(?=@)|(?<=[Bb]earer )[\w.~+/-]{8,}=*"
)
_ANCHORS = (b"hf_", b"gh", b"glpat-", b"xox", b"sk-", b"AKIA", b"AIza", b"wandb_v1_", b"://", b"earer ")
"""A text without any of them has no token; that is soon seen."""


class Redaction:
    """Finds some values, and tokens, in text.

    Args:
        values: that nobody may see.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms = sorted({form for value in values if is_known(value) for form in _forms(value)})
        self.reach_bytes = max(map(len, self._forms), default=1) - 1
        """Of what came before, how much may belong to a value that ends in what comes now."""

    @classmethod
    def of_names(cls, names: Iterable[str], known: Mapping[str, str] | None = None) -> Redaction:
        """Return that of the environment variables which are among the `known` ones, or else are set here."""
        known = variables() if known is None else known
        return cls(known[name] for name in names if name in known)

    def values_in(self, data: bytes) -> list[Span]:
        """Return where the values are, in order; what overlaps is one."""
        return united(found for form in self._forms for found in _all_of(form, data))

    def hidden(self, data: bytes, known: Iterable[Span] = ()) -> bytes:
        """Return the text with a mark for each value, token and `known` place; every line stays one."""
        spans = [*known, *self.values_in(data)]
        if any(anchor in data for anchor in _ANCHORS):
            spans += [match.span() for match in _TOKENS.finditer(data)]
        if not spans:
            return data
        parts, position = [], 0
        for start, end in united(spans):
            lines = data[start:end].split(b"\n")
            parts += [data[position:start], b"\n".join(MARK.encode() if line else b"" for line in lines)]
            position = end
        return b"".join([*parts, data[position:]])

    def text(self, text: str) -> str:
        """Return the text with a mark for each value and token in it; the same text where there is none.

        What others have shortened may begin or end with a part of a value, which is left out too.
        """
        data = text.encode(errors="surrogatepass")
        hidden = self.hidden(data, self._parts_at_ends(data))
        # A value that is no text itself may have taken a part of a character.
        return text if hidden is data else hidden.decode(errors="replace")

    def _parts_at_ends(self, data: bytes) -> Iterator[Span]:
        head, tail = data[:MIN_PART], data[-MIN_PART:]
        for form in self._forms if len(data) >= MIN_PART else ():
            if starts := [start for start, _end in _all_of(head, form) if data.startswith(form[start:])]:
                yield 0, len(form) - starts[0]
            if ends := [end for _start, end in _all_of(tail, form) if data.endswith(form[:end])]:
                yield len(data) - ends[-1], len(data)

    def within(self, value: Any) -> Any:
        """Return plain data with all its texts redacted, but for names and the words that programs read."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {name: inner if name in CODES else self.within(inner) for name, inner in value.items()}
        return [self.within(inner) for inner in value] if isinstance(value, (list, tuple)) else value


NO_VALUES = Redaction()
"""Finds tokens alone."""


def is_known(value: str) -> bool:
    """Whether a value is long enough to be looked for."""
    return len(value.strip()) >= MIN_LENGTH


def redact(text: str, values: Iterable[str] = ()) -> str:
    """Return the text with a mark where it held one of the values, or what looks like a token. A best effort."""
    return _of_values(frozenset(values)).text(text)


@functools.lru_cache(maxsize=16)
def _of_values(values: frozenset[str]) -> Redaction:
    return Redaction(values)


def _forms(value: str) -> Iterator[bytes]:
    """Yield what a value may look like."""
    import html  # With the names of all characters, for which only who has secrets need wait.

    plain = value.encode(errors="surrogateescape")
    whole = (value, value.strip(), *value.splitlines(), *(line.strip() for line in value.splitlines()))
    for text in dict.fromkeys(whole):
        data = text.encode(errors="surrogateescape")
        if len(text) < MIN_LENGTH or (text.strip() != value.strip() and len(data) < MIN_PART):
            continue
        quoted = (quote(data, safe=""), quote(data), quote_plus(data), quote(data, safe="!'()*~"))
        written = (
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
            json.dumps(text).replace("/", "\\/")[1:-1],
            repr(text)[1:-1],
            ascii(text)[1:-1],
            repr(data)[2:-1],
            html.escape(text),
            html.escape(text, quote=False),
            text.replace("'", "'\"'\"'"),
            *quoted,
            *(re.sub("%..", lambda match: match[0].lower(), item) for item in quoted),
        )
        yield data
        yield from (item.encode(errors="surrogateescape") for item in written)
    yield from (plain.hex().encode(), plain.hex().upper().encode())
    for skipped in range(3):
        # Of what base64 makes of the value behind so many other bytes, the characters that no neighbour has a part in.
        encoded = base64.b64encode(b"\0" * skipped + plain)
        inner = encoded[-(-skipped * 4 // 3) : (skipped + len(plain)) * 4 // 3]
        breaks = range(0, len(inner), BASE64_LINE) if not skipped else ()
        for part in (inner, *(inner[start : start + BASE64_LINE] for start in breaks)):
            if len(part) >= MIN_PART:
                yield part
                yield part.replace(b"+", b"-").replace(b"/", b"_")


def _all_of(form: bytes, data: bytes) -> Iterator[Span]:
    start = data.find(form)
    while start >= 0:
        yield start, start + len(form)
        start = data.find(form, start + 1)


def united(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, those that overlap or touch as one."""
    united: list[Span] = []
    for start, end in sorted(spans):
        if united and start <= united[-1][1]:
            united[-1] = united[-1][0], max(end, united[-1][1])
        else:
            united.append((start, end))
    return united
