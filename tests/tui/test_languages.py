"""The language is switched while screens are open: nothing on any of them is left in the other one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, TabbedContent

from dttui.i18n import set_language
from dttui.spec.models import Model
from dttui.tui.app import DttuiApp
from dttui.tui.messages import JobChosen
from dttui.tui.screens.compare import CompareScreen
from dttui.tui.screens.job_text import JobTextScreen
from dttui.tui.screens.run import RunScreen
from dttui.tui.widgets.job_list import JobList
from dttui.tui.widgets.yaml_area import YamlArea
from tests.tui import job_files
from tests.tui.catalogue import compile_catalogues
from tests.tui.fake_checks import trouble
from tests.tui.fake_fleet import job, make_app, make_inventory, set_states
from tests.tui.looking import follow, look, screen_text, settle, until
from tests.tui.screens import CHOSEN

SIZE = (120, 40)
CHINESE = re.compile("[\u4e00-\u9fff]+")
OWN_NAME = "中文"
"""What Chinese is called in every language."""


@pytest.fixture(autouse=True)
def chinese() -> Iterator[None]:
    """Begin in Chinese."""
    compile_catalogues()
    set_language("zh")
    yield
    set_language("en")


async def speak(app: DttuiApp, pilot: Pilot[None], language: str) -> None:
    await app.preferences.change(app, ("language",), language)
    await settle(app, pilot)


def left_over(app: DttuiApp) -> list[str]:
    return [line for line in screen_text(app).splitlines() if CHINESE.search(line.replace(OWN_NAME, ""))]


async def test_every_screen_over_that_of_the_job_changes_with_it() -> None:
    inventory = make_inventory()
    draft = job(*CHOSEN, framework="deepspeed", model=Model(parameters=7e9, precision="bf16"))
    app = make_app(inventory, draft=draft, check=trouble)
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await follow(app, pilot)
        await pilot.press("slash", *"env", "enter")
        for keys in (("p", "j", "h", "comma", "f1"), ("c",), ("e",), ("y",), ("u",), ("D",)):
            opened = []
            for key in keys:
                await pilot.press(key)
                await settle(app, pilot)
                assert left_over(app), key
                opened.append(app.screen)
            await speak(app, pilot, "en")
            for shown in reversed(opened):
                assert app.screen is shown
                assert left_over(app) == [], shown
                await pilot.press("escape")
                await settle(app, pilot)
            assert left_over(app) == [], keys
            assert app.screen.query_one("#filter", Input).value == "env"
            await speak(app, pilot, "zh")


async def test_jobs_that_are_compared_are_told_in_it_where_they_were() -> None:
    inventory = make_inventory()
    for _number in range(2):
        job_files.failed(job(*CHOSEN), inventory)
    app = make_app(inventory)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("j")
        await settle(app, pilot)
        await pilot.press("A", "down")
        listed = app.screen
        under = listed.query_one(JobList).highlighted
        assert under == listed.query_one(JobList).shown[1]
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen), "they are compared")
        await settle(app, pilot)
        assert left_over(app)
        await speak(app, pilot, "en")
        assert left_over(app) == []
        await pilot.press("escape")
        await settle(app, pilot)
        assert left_over(app) == []
        assert listed.query_one(JobList).highlighted == under
        assert "2 marked" in screen_text(app)


async def test_text_that_is_no_job_stays_where_it_is_edited() -> None:
    app = make_app(make_inventory(), draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, JobTextScreen), "the job as text")
        await settle(app, pilot)
        await pilot.press("down", *"x: [")
        await settle(app, pilot)
        area = app.screen.query_one(YamlArea)
        text, place = area.text, area.cursor_location
        await speak(app, pilot, "en")
        area = app.screen.query_one(YamlArea)
        assert (area.text, area.cursor_location) == (text, place)
        assert app.focused is area
        assert "1 mistake" in screen_text(app)
        assert left_over(app) == []


async def test_a_job_and_its_tabs_change_with_it() -> None:
    inventory = make_inventory()
    directory = job_files.failed(job(*CHOSEN), inventory).directory
    app = make_app(inventory)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        app.post_message(JobChosen(directory.job_id))
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the job")
        for tab in ("why", "loss", "events", "checks", "logs"):
            app.screen.query_one(TabbedContent).active = tab
            await look(app, pilot)
            assert left_over(app), tab
            await speak(app, pilot, "en")
            await look(app, pilot)
            assert app.screen.query_one(TabbedContent).active == tab
            assert left_over(app) == [], tab
            await speak(app, pilot, "zh")
            await look(app, pilot)
