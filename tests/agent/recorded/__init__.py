"""A conversation as dttui 0.1.0 and dtagent 0.1.0 had it in protocol version 1, a call and its reply a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def version1(root: str) -> list[dict[str, Any]]:
    """Return the calls and replies in order, with the agent's directory put in its place."""
    text = Path(__file__).with_name("version1.jsonl").read_text(encoding="utf-8").replace("ROOT", root)
    return [json.loads(line) for line in text.splitlines()]
