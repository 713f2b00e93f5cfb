"""Whether what an agent has answered says by code what it says in English."""

from __future__ import annotations

from typing import Any

from dtagent.protocol.said import NOTICE
from dtagent.protocol.sentences import SENTENCES

ALWAYS = ("reason", "gpu_note", "warnings")
"""Texts that are an agent's own, never the words of others."""


def check_notices(answer: Any) -> None:
    """Fail on a text of the agent's own that goes without its code, and on a code that says something else."""
    if isinstance(answer, dict):
        refusal = answer.get("error")
        if isinstance(refusal, dict) and "message" in refusal:
            assert said(refusal["data"]["notice"]) == refusal["message"]
        for name, value in answer.items():
            if name.endswith(NOTICE) and value is not None:
                assert said(value) == answer[name[: -len(NOTICE)]]
            if name in ALWAYS and value:
                assert answer.get(name + NOTICE), f"{name} goes without a code: {value}"
            if not name.endswith(NOTICE.lstrip("_")):
                check_notices(value)
    elif isinstance(answer, list):
        for item in answer:
            check_notices(item)


def said(notice: Any) -> Any:
    """Return what a notice, or each of a list, says in English."""
    if isinstance(notice, list):
        return [said(item) for item in notice]
    if not isinstance(notice, dict):
        return notice
    return str(SENTENCES[notice["code"]](**{name: said(value) for name, value in notice["values"].items()}))
