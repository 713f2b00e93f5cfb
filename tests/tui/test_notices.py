"""Of a job that ends it is told on the screen and through the terminal, and nothing of its text drives the terminal."""

from __future__ import annotations

import pytest
from dtagent.protocol.events import JobState

from dttui import locations
from dttui.jobs import JobBrief
from dttui.tui.messages import JobChosen
from dttui.tui.screens.run import RunScreen
from dttui.tui.settings import Channel
from dttui.tui.terminal_notices import channel_of, sequence
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.job_files import failed, succeeded
from tests.tui.looking import settle, toasts, until
from tests.tui.screens import CHOSEN

ESC = "\x1b"


@pytest.mark.parametrize(
    ("environment", "channel"),
    [
        ({"TERM": "xterm-kitty"}, "osc9"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "osc9"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "osc9"),
        ({"TERM": "xterm-256color", "WT_SESSION": "1"}, "osc9"),
        ({"TERM": "rxvt-unicode-256color"}, "osc777"),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, "osc777"),
        ({"TERM": "xterm-256color"}, "none"),
        ({"TERM": "tmux-256color", "TERM_PROGRAM": "tmux"}, "none"),
        ({}, "none"),
    ],
)
def test_a_terminal_is_known_by_its_name(environment: dict[str, str], channel: Channel) -> None:
    assert channel_of(environment) == channel


@pytest.mark.parametrize(
    ("channel", "told"),
    [
        ("osc9", f"{ESC}]9;✓ gpt: succeeded\a\a"),
        ("osc777", f"{ESC}]777;notify;✓ gpt;succeeded\a\a"),
        ("none", "\a"),
        ("auto", "\a"),
    ],
)
def test_a_notification_is_what_the_terminal_takes(channel: Channel, told: str) -> None:
    assert sequence("✓ gpt", "succeeded", channel=channel, bell=True, environment={"TERM": "xterm"}) == told


def test_tmux_hands_a_notification_on() -> None:
    told = sequence("a", "b", channel="osc9", bell=False, environment={"TMUX": "/tmp/tmux"})
    assert told == f"{ESC}Ptmux;{ESC}{ESC}]9;a: b\a{ESC}\\"


@pytest.mark.parametrize("channel", ["osc9", "osc777"])
def test_what_a_host_says_neither_ends_a_notification_nor_begins_another(channel: Channel) -> None:
    hostile = f"x\a{ESC}]52;c;ZXZpbA==\a{ESC}[2J\x9d0;y\x9c\r\n;z" + "w" * 1000
    told = sequence(hostile, hostile, channel=channel, bell=False, environment={})
    inside = told.removeprefix(f"{ESC}]").removesuffix("\a")
    assert all(character.isprintable() for character in inside)
    assert len(inside) < 500
    assert channel != "osc777" or inside.split(";")[:2] == ["777", "notify"]


async def test_a_job_that_ends_is_told_of_once_and_on_its_own_screen_only_by_the_terminal() -> None:
    inventory = make_inventory()
    directory = failed(job(*CHOSEN), inventory).directory
    ran = (JobBrief(directory.job_id, "gpt-small", JobState.RUNNING),)
    over = (JobBrief(directory.job_id, "gpt-small", JobState.FAILED),)
    app = make_app(inventory)
    written: list[str] = []
    app.notices.write = written.append
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(app, pilot)
        app.notices.look((), ran)
        app.notices.look(ran, ran)
        app.notices.look(over, over)
        await settle(app, pilot)
        assert written == []
        app.notices.look(ran, over)
        await until(pilot, lambda: bool(written), "it is told")
        assert written == ["\a"]
        (told,) = toasts(app)
        assert told.startswith("✗ gpt-small: failed")
        app.post_message(JobChosen(directory.job_id))
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "its own screen")
        app.notices.look(ran, ())
        await until(pilot, lambda: len(written) == 2, "it is told")
        assert toasts(app) == [told]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("notifications: {jobs: none}", []),
        ("notifications: {jobs: failed}", ["\a"]),
        ("notifications: {bell: false}", ["", ""]),
        ("plain: true", []),
    ],
)
async def test_a_person_says_what_they_are_told_of(settings: str, told: list[str]) -> None:
    path = locations.settings_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(settings, encoding="utf-8")
    inventory = make_inventory()
    directories = [write(job(*CHOSEN), inventory).directory for write in (failed, succeeded)]
    ran = tuple(JobBrief(item.job_id, "gpt-small", JobState.RUNNING) for item in directories)
    app = make_app(inventory)
    written: list[str] = []
    app.notices.write = written.append
    async with app.run_test(size=(80, 24)) as pilot:
        app.notices.look(ran, ())
        await settle(app, pilot)
    assert written == told
