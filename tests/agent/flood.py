"""Following a job that writes a lot, as the controller does, and what that costs the daemon."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.agent.conversation import Conversation


@dataclass
class Followed:
    """What came of every stream, with gaps told and not filled."""

    check: Callable[[str, int, bytes], None] | None = None
    """Called with stream, offset and bytes instead of keeping them."""
    data: dict[str, bytearray] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    inodes: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Of each stream, the first byte and the first after it that were not kept."""
    pings_s: list[float] = field(default_factory=list)
    """How long each heartbeat took."""

    def take(self, reply: dict[str, Any]) -> None:
        """Check that each chunk goes on where the last one ended, and keep it."""
        for chunk in reply["chunks"]:
            name, data = chunk["stream"], base64.b64decode(chunk["data"])
            before = self.offsets.get(name, 0)
            assert chunk["offset"] - chunk["gap_bytes"] == before
            if chunk["gap_bytes"]:
                self.gaps.setdefault(name, []).append((before, chunk["offset"]))
            if self.check is not None:
                self.check(name, chunk["offset"], data)
            else:
                self.data.setdefault(name, bytearray()).extend(data)
            self.offsets[name] = chunk["offset"] + len(data)
            self.inodes[name] = chunk["inode"]


def follow(
    agent: Conversation,
    job_id: str,
    *,
    check: Callable[[str, int, bytes], None] | None = None,
    between: Callable[[], None] = lambda: None,
) -> Followed:
    """Follow attempt 0 to its end, with a heartbeat and a call of `between` after every reply."""
    found = Followed(check)
    stamp = ""
    is_over = False
    while True:
        began = time.monotonic()
        agent.call("ping")
        found.pings_s.append(time.monotonic() - began)
        between()
        reply = agent.call(
            "follow",
            {
                "key": {"job_id": job_id, "attempt": 0},
                "offsets": found.offsets,
                "inodes": found.inodes,
                "stamp": stamp,
                "wait_s": 0 if is_over else 5,
                "max_bytes": 256 * 1024,
                "wants_trainer": True,
            },
        )
        stamp = reply["stamp"]
        found.take(reply)
        is_over = reply["status"]["state"] in ("ended", "lost")
        if is_over and not reply["chunks"] and not reply["more"]:
            return found


def pss_mib(pid: int) -> float:
    """Return what memory a process has, with its share of what it has in common with others."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no Pss")
