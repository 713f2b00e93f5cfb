"""Whether hosts keep what a job has left there beyond its time, as they were told last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class KeepRequests:
    """What was asked for last, and which hosts were told; a job's directory keeps it."""

    keeps: bool
    """Whether it is to stay."""
    hosts: Mapping[str, bool]
    """Host → what it was told last: one that could not be reached was told what others were before, or nothing."""

    def as_text(self) -> str:
        """Return it as a job's directory keeps it."""
        return json.dumps({"keeps": self.keeps, "hosts": dict(self.hosts)})


def parse_keep_requests(text: str) -> KeepRequests | None:
    """Return what a file says; `None` for one that is damaged."""
    try:
        said = json.loads(text)
        return KeepRequests(bool(said["keeps"]), {str(host): bool(keeps) for host, keeps in said["hosts"].items()})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
