"""The isolation that every test is given."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from dttui import locations
from tests.conftest import in_turns


def test_no_test_sees_the_persons_own_files() -> None:
    home = Path(os.environ["HOME"])
    assert list(home.iterdir())
    for place in (locations.inventory_file(), locations.jobs_directory(), locations.wheel_cache("x86_64")):
        assert place.is_relative_to(home)
    assert locations.demo_root().is_dir()


def test_no_test_sees_the_persons_own_settings() -> None:
    kept = {"DTTUI_DEMO_ROOT", "TEXTUAL_SNAPSHOT_TEMPDIR"}
    names = {name for name in os.environ if name.startswith(("DTTUI_", "TEXTUAL")) or name == "NO_COLOR"}
    assert {name for name in names if not name.startswith("DTTUI_REQUIRE_")} == kept


def test_what_waits_is_among_what_computes_all_the_time_and_the_longest_comes_first() -> None:
    waiting = ["tests/agent/a", "lab", "tests/integration/b", "lab of bad links"]
    computing = [f"tests/unit/{number}" for number in range(8)]
    mixed = in_turns([*waiting, *computing])
    assert sorted(mixed) == sorted([*waiting, *computing])
    assert [group for group in mixed if group in waiting][:2] == ["lab", "lab of bad links"]
    for start in range(0, 12, 3):
        assert len([group for group in mixed[start : start + 3] if group in waiting]) == 1
    assert [group for group in mixed if group in computing] == computing
    assert in_turns(computing) == computing


@pytest.mark.usefixtures("unhurried")
async def test_no_limit_is_up_for_a_loop_that_was_not_let_run() -> None:
    answered = asyncio.Event()

    async def answer() -> None:
        for _stall in range(3):
            time.sleep(0.2)  # noqa: ASYNC251 - as where the machine lets something else run
            await asyncio.sleep(0)
        answered.set()

    answering = asyncio.create_task(answer())
    await asyncio.wait_for(answered.wait(), 0.15)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.15)
    await answering
