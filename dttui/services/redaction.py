"""Takes secrets out of text that is about to be shown or stored: values that are known, and forms that tokens have."""

from __future__ import annotations

import re
from collections.abc import Iterable

MARK = "•••"
MIN_LENGTH = 4
"""A shorter value would take common words with it."""
_TOKENS = re.compile(
    # Hugging Face, GitHub, GitLab, Slack, OpenAI and its likes, AWS, Google, Weights & Biases.
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{16,}|xox[abpr]-[\w-]{10,}"
    r"|sk-[\w-]{20,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|wandb_v1_\w{20,})"
    # A password in an address, and what comes after a bearer's name.
    r"|(?<=://)[^\s/:@]*:[^\s/@]+(?=@)|(?<=[Bb]earer )[\w.~+/-]{8,}=*"
)


def redact(text: str, values: Iterable[str] = ()) -> str:
    """Return the text with a mark where it held one of the values, or what looks like a token. A best effort."""
    # The longest first: one value may hold another.
    for value in sorted(set(values), key=len, reverse=True):
        if len(value) >= MIN_LENGTH:
            text = text.replace(value, MARK)
    return _TOKENS.sub(MARK, text)
