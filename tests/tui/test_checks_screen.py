"""Checking the hosts from the compose screen, without launching: the board, what is ignored, and what comes of it."""

from __future__ import annotations

from textual.pilot import Pilot

from dttui.errors import UsageError
from dttui.jobs import JobDirectory
from dttui.jobs.board import Board, Changed
from dttui.planning.models import Plan
from dttui.planning.submission import Submission
from dttui.tui.app import DttuiApp
from dttui.tui.screens.checks import ChecksScreen
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.widgets.check_board import CheckBoard
from dttui.tui.widgets.prose import Prose
from tests.tui.fake_checks import trouble
from tests.tui.fake_fleet import job, make_app
from tests.tui.looking import settle, toasts, until

NODES = ("pytorch-dev-env", "llm-training-env", "nlp-research-lab")


async def shown(app: DttuiApp, pilot: Pilot[None]) -> ChecksScreen:
    """Open the screen, and wait for the verdict."""
    await settle(app, pilot)
    await pilot.press("c")
    await until(pilot, lambda: isinstance(app.screen, ChecksScreen), "the board is on screen")
    screen = app.screen
    assert isinstance(screen, ChecksScreen)
    await until(pilot, lambda: "error" in title(screen), "the verdict is there")
    return screen


def title(screen: ChecksScreen) -> str:
    return screen.summary().plain


async def test_what_is_ignored_on_the_board_is_ignored_at_the_launch_of_the_same_job() -> None:
    checked: list[tuple[str, ...]] = []
    launched: list[tuple[str, ...]] = []

    async def check(submission: Submission, plan: Plan, changed: Changed) -> Board:
        checked.append(submission.ignored)
        return await trouble(submission, plan, changed)

    def launch(submission: Submission, plan: Plan) -> JobDirectory:
        launched.append(submission.ignored)
        raise UsageError("seen")

    app = make_app(draft=job(*NODES), check=check, launch=launch)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await shown(app, pilot)
        assert "llm-training-env" in screen.query_one(CheckBoard).render().plain
        notes = screen.query_one("#checks-notes", Prose)
        said = screen.notes().plain
        assert "master-unreachable: llm-training-env → pytorch-dev-env:29517 timed out" in said
        assert "i ignores, at the launch too: master-unreachable" in said
        assert notes.size.height > 3
        await pilot.press("i")
        await until(pilot, lambda: title(screen) == "nothing forbids a launch", "the error is ignored")
        assert not screen.check_action("ignore", ())
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "the job is back")
        await pilot.press("ctrl+l")
        await until(pilot, lambda: len(launched) == 1, "it is launched")
        await pilot.press("plus", "minus", "m")
        await pilot.press("down", "m", "ctrl+l")
        await until(pilot, lambda: len(launched) == 2, "another job is launched")
    assert checked == [(), ("master-unreachable",)]
    assert launched == [("master-unreachable",), ()]


async def test_a_job_that_lacks_something_is_not_checked() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("c")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen)
        assert toasts(app)


async def test_a_check_that_cannot_be_made_says_why_and_can_be_made_again() -> None:
    tries: list[int] = []

    async def check(submission: Submission, plan: Plan, changed: Changed) -> Board:
        tries.append(1)
        if len(tries) == 1:
            raise UsageError("the file of links is damaged")
        return await trouble(submission, plan, changed)

    app = make_app(draft=job(*NODES), check=check)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("c")
        await until(pilot, lambda: bool(toasts(app)), "the reason is told")
        screen = app.screen
        assert isinstance(screen, ChecksScreen)
        await until(pilot, lambda: bool(screen.check_action("again", ())), "it may be tried again")
        await pilot.press("r")
        await until(pilot, lambda: title(screen) == "1 error", "the verdict is there")
