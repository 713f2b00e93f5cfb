"""Which names of variables and keys are those of secrets, whose values are written and shown nowhere."""

from __future__ import annotations

import re

NAMES_OF_SECRETS = (
    r"(?!(?:MAX_|NUM_|N_)?TOKENS?\b(?!_)|TOKENIZER)"
    r"[A-Za-z0-9_]{0,60}?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|_PAT|_PASS)(?!IZER)[A-Za-z0-9_]{0,60}"
)
"""Such a name, as a regular expression whose case does not count; how many tokens there are is no secret."""
_NAME = re.compile(NAMES_OF_SECRETS, re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return _NAME.fullmatch(name) is not None
