"""The job's own command that says whether it goes well, where an agent knows nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from tests.integration.gangs import ONE, TWO, TestGang, have_older_agent
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents


async def test_an_agent_too_old_for_it_is_warned_of_and_the_job_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_older_agent(monkeypatch, TWO, checks_health=False)
    health = {"command": ["true"]}
    gang = TestGang(
        tmp_path / "job", {ONE: 1, TWO: 1}, run={"command": ["sleep", "1000"]}, monitoring={"health": health}
    )
    try:
        await gang.start()
    finally:
        await gang.end()
    (event,) = (
        event for event in gang.directory.read_events(EventKind.FINDING) if event.data["code"] == "health-old-agent"
    )
    assert event.message == f"{TWO}: its agent is too old for monitoring.health: it never runs the command"
    assert event.data["hint"] == f"Upgrade it: dttui agents deploy {TWO}"
