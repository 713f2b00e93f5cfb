"""Where ranks stand is asked from the run screen, and told as `dttui stacks` tells it."""

from __future__ import annotations

import pytest
from dtagent.protocol.stacks import Frame, ProcessStacks, RankStacks, Thread

from dttui.diagnosis.stack_report import NodeStacks
from dttui.errors import NotFinishedError
from dttui.tui.screens.stacks import StacksDialog
from tests.tui import job_files
from tests.tui.controllers import controller
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.looking import look, screen_text, settle, until
from tests.tui.screens import CHOSEN

SIZE = (120, 40)


def standing(rank: int, name: str, file: str, number: int) -> RankStacks:
    thread = Thread("MainThread", [Frame(name, file, number), Frame("main [/foo]", "train.py", 88)], True)
    return RankStacks(rank, ProcessStacks(100 + rank, "S", source="py-spy", threads=[thread]))


async def test_ranks_that_stand_at_one_place_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = make_inventory()
    running = job_files.running(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=running.directory)
    answers: list[tuple[NodeStacks, ...] | NotFinishedError] = [
        (NodeStacks("a", tuple(standing(rank, "all_reduce", "distributed_c10d.py", 9) for rank in range(3))),),
        NotFinishedError("no controller is there", "dttui attach"),
    ]

    async def stacks(_directory: object) -> tuple[NodeStacks, ...]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(app.attachments, "stacks", stacks)
    async with controller(running), app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("k")
        await until(pilot, lambda: "rank 2 on a" in screen_text(app), "the stacks")
        shown = screen_text(app)
        assert isinstance(app.screen, StacksDialog)
        assert shown.count("all_reduce distributed_c10d.py:9") == 1
        assert "main [/foo] train.py:88" in shown
        await pilot.press("r")
        await until(pilot, lambda: "no controller is there; dttui attach" in screen_text(app), "why not")
        await pilot.press("escape")
        await settle(app, pilot)
        assert not isinstance(app.screen, StacksDialog)


async def test_nobody_is_asked_once_it_is_over() -> None:
    inventory = make_inventory()
    over = job_files.succeeded(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=over.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("k")
        await settle(app, pilot)
        assert not isinstance(app.screen, StacksDialog)
        assert "stacks" not in screen_text(app).splitlines()[-1]
