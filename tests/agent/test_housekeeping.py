"""What the daemon sees to unasked: one kind of it that hangs holds up no other."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from dtagent.attempts.attempts import Attempts
from dtagent.attempts.warming import WarmStarts
from dtagent.daemon import error_log, housekeeping
from dtagent.daemon.attempt_calls import Changes
from dtagent.daemon.housekeeping import Housekeeping

from tests.waiting import until

LIMIT_S = 20.0


async def test_leases_and_the_log_are_seen_to_while_a_look_at_warm_processes_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_starts, goes_on, done = WarmStarts(), threading.Event(), []
    attempts = Attempts(tmp_path, list, warm_starts)
    monkeypatch.setattr(housekeeping, "INTERVAL_S", 0.01)
    monkeypatch.setattr(warm_starts, "expire", lambda: goes_on.wait(60))
    monkeypatch.setattr(attempts, "expire_leases", lambda: done.append("leases"))
    monkeypatch.setattr(error_log, "turn_over", lambda _root: done.append("log"))
    working = asyncio.create_task(Housekeeping(tmp_path, attempts, Changes(), lambda: warm_starts.expire()).expire())
    try:
        await until(lambda: done.count("leases") > 1 and done.count("log") > 1, "both to be seen to twice", LIMIT_S)
    finally:
        goes_on.set()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
