"""What a person has said last of what a job leaves on its hosts, as the job's directory keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class KeptWord:
    """Whether that stays, and who has heard it."""

    keeps: bool
    """Whether it is to stay."""
    hosts: Mapping[str, bool]
    """Host → what it was told last: one that could not be reached was told what others were before, or nothing."""

    def as_text(self) -> str:
        """Return it as a job's directory keeps it."""
        return json.dumps({"keeps": self.keeps, "hosts": dict(self.hosts)})


def kept_word(text: str) -> KeptWord | None:
    """Return what a file says; `None` for one that is damaged."""
    try:
        said = json.loads(text)
        return KeptWord(bool(said["keeps"]), {str(host): bool(keeps) for host, keeps in said["hosts"].items()})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
