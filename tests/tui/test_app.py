"""What goes for every screen: themes, keys, palette, sizes, languages; and the start with an empty inventory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual.command import CommandList, CommandPalette
from textual.widget import Widget
from textual.widgets import Button, Select

from dttui import locations
from dttui.errors import UsageError
from dttui.i18n import set_language
from dttui.inventory import load_inventory
from dttui.inventory.models import Inventory
from dttui.tui.bindings import all_bindings
from dttui.tui.commands import ScreenCommands, commands_of
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.help import HelpScreen
from dttui.tui.screens.host_import import HostList, HostPicker
from dttui.tui.screens.jobs import JobsScreen
from dttui.tui.screens.keymap import KeymapDialog
from dttui.tui.screens.settings_dialog import SettingsDialog
from dttui.tui.widgets.environment_list import EnvironmentList
from dttui.tui.widgets.key_bar import KeyBar
from tests.tui.catalogue import compile_catalogues
from tests.tui.composing import screen_of
from tests.tui.fake_fleet import job, make_app, make_inventory, set_states
from tests.tui.looking import follow, screen_text, settle, text_of, toasts, until
from tests.tui.screens import CHOSEN, SIZES

SIZE = (120, 40)
EN = ("3 of 8 ticked", "14 GPUs", "⚠", "Launch", "master")
ZH = ("已选 3", "14 个 GPU", "⚠", "启动", "主节点")


def write_settings(text: str) -> Path:
    path = locations.settings_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


async def test_hosts_of_the_ssh_configuration_are_picked_and_saved(tmp_path: Path) -> None:
    ssh = Path(os.environ["HOME"]) / ".ssh"
    ssh.mkdir()
    (ssh / "config").write_text("Host gpu1 gpu2\n  User li\nHost *.example\n  User x\nHost a100\n")
    path = tmp_path / "inventory.yaml"
    app = make_app(Inventory(), inventory_path=path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        assert "No environments yet" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, HostPicker), "the file is asked for")
        await until(pilot, lambda: isinstance(app.focused, HostList), "its hosts are offered")
        hosts = app.screen.query_one(HostList)
        assert hosts.option_count == 3
        await pilot.press("space")
        assert "☑ gpu1" in screen_text(app)
        assert "☐ gpu2" in screen_text(app)
        await pilot.press("up", "space", "slash", *"gpu", "enter", "a")
        await settle(app, pilot)
        assert "Import 2 hosts" in screen_text(app)
        await pilot.click("#ok")
        await until(pilot, lambda: app.screen.query(EnvironmentList), "the hosts are listed")
        await settle(app, pilot)
        assert [item.name for item in load_inventory(path).environments] == ["gpu1", "gpu2"]
        assert list(app.screen.query_one(EnvironmentList).shown) == ["gpu1", "gpu2"]
        assert list(app.fleet.statuses) == ["gpu1", "gpu2"]


async def test_no_ssh_configuration_is_said(tmp_path: Path) -> None:
    app = make_app(Inventory(), inventory_path=tmp_path / "inventory.yaml")
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "config: cannot be read" in text_of(app, "#host-note"), "it is said")
        assert app.focused is app.screen.query_one("#host-file")


async def test_the_demo_cluster_comes_with_its_job_ready_to_launch() -> None:
    app = make_app(Inventory())
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.click("#demo")
        await until(pilot, lambda: len(screen_of(app).state.selected) == 3, "the demo's job is ticked")
        await settle(app, pilot)
        assert "ready to launch" in screen_text(app)
        assert "sim" in screen_text(app)


async def test_help_lists_the_keys_of_the_screen_it_was_asked_on() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("question_mark")
        await settle(app, pilot)
        assert isinstance(app.screen, HelpScreen)
        for words in ("environments", "Make the environment the master", "Launch the job"):
            assert words in screen_text(app)
        assert "Choose the framework" not in screen_text(app), "nothing is ticked yet"
        await pilot.press("end")
        await settle(app, pilot)
        assert "Show all jobs of this login node" in screen_text(app)
        await pilot.press("escape")
        assert isinstance(app.screen, ComposeScreen)


async def test_every_command_has_an_id_and_those_shown_an_explanation() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        for keys in ((), ("j",)):
            await pilot.press(*keys)
            await settle(app, pilot)
            for command in commands_of(app.screen):
                assert command.binding.id
                assert command.explanation or not command.shown


async def test_the_line_of_keys_is_drawn_anew_only_where_other_keys_are_to_be_seen() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await settle(app, pilot)
        line = app.screen.query_one(KeyBar)

        async def drawn_after(*keys: str) -> list[Widget]:
            await pilot.press(*keys)
            await settle(app, pilot)
            return list(line.children)

        before = await drawn_after()
        assert before
        assert await drawn_after("down", "space") == before, "the keys of the list are those of each row"
        app.screen.refresh_bindings()
        assert await drawn_after("up") == before
        set_language("zh")
        app.screen.refresh_bindings()
        await until(pilot, lambda: list(line.children) != before, "the keys are told in another language")
        await settle(app, pilot)
        assert "按键" in screen_text(app)
        assert "m 主节点" in screen_text(app)
        await drawn_after("tab", "tab")
        assert "m 主节点" not in screen_text(app), "beside the list its keys go"


async def test_the_palette_runs_commands_of_the_screen() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette), "the palette is open")
        await pilot.press(*"tick")
        found = app.screen.query_one(CommandList)
        await until(pilot, lambda: 0 < found.option_count < 12, "commands have this word, the shortest first")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "the palette is closed")
        state = screen_of(app).state
        await until(pilot, lambda: screen_of(app).state.selected == ("pytorch-dev-env",), f"ticked: {state.selected}")


async def test_the_palette_finds_a_command_of_any_screen_by_any_word_of_its_help_in_either_language() -> None:
    compile_catalogues()
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        palette = ScreenCommands(app.screen)

        async def found(query: str) -> list[str]:
            hits = [hit async for hit in palette.search(query)]
            return [f"{hit.help}: {hit.text}" for hit in sorted(hits, key=lambda hit: -hit.score)]

        assert (await found("untick them"))[0] == (
            "environments · Tick all that are shown, or untick them where all are: tick shown"
        )
        assert "job · Stop the job, after a question: stop" in await found("question stop")
        assert "job · Stop the job, after a question: stop" in await found("停止")
        everything = [hit.text async for hit in palette.discover()]
        known = {str(item.binding.description) for item in all_bindings().values()}
        assert known <= set(everything)


async def test_of_a_command_of_another_screen_the_palette_tells_where_it_is() -> None:
    app = make_app()
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        hits = [hit async for hit in ScreenCommands(app.screen).search("remove")]
        hit = next(hit for hit in hits if hit.text == "remove")
        leading = hit.command()
        assert leading is not None
        await leading
        await until(pilot, lambda: isinstance(app.screen, JobsScreen), "the jobs are on screen")
        assert toasts(app) == ["jobs: x does it there: Remove the marked jobs, or the one under the cursor; asks first"]


async def test_a_key_of_a_persons_own_does_what_it_says_and_is_shown() -> None:
    write_settings("keymap:\n  app.jobs: f9\n  list.tick: m\n  list.master: b\n  run.stopp: s\n")
    app = make_app()
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        (told,) = toasts(app)
        assert told.startswith("Settings that cannot be used")
        assert 'settings.yaml:5:14: keymap.run.stopp: there is no command of this id; did you mean "run.stop"?' in told
        app.clear_notifications()
        await pilot.press("m")
        await settle(app, pilot)
        assert screen_of(app).state.selected == ("pytorch-dev-env",)
        assert "m tick" in screen_text(app)
        assert "b master" in screen_text(app)
        await pilot.press("j")
        assert isinstance(app.screen, ComposeScreen)
        await pilot.press("f9")
        assert isinstance(app.screen, JobsScreen)


async def test_a_choice_of_the_settings_goes_at_once_and_into_the_file() -> None:
    path = write_settings("# at night\ntheme: dusk\n")
    app = make_app()
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        await pilot.press("comma")
        await until(pilot, lambda: isinstance(app.screen, SettingsDialog), "the settings are on screen")
        app.screen.query_one("#setting-theme", Select).value = "paper"
        await until(pilot, lambda: app.theme == "paper" and "paper" in path.read_text(), "it is chosen")
        app.screen.query_one("#setting-notifications-bell", Select).value = False
        await until(pilot, lambda: "bell: false" in path.read_text(), "it is chosen")
        assert path.read_text().startswith("# at night\ntheme: paper\n")
        app.screen.query_one("#setting-keymap", Button).press()
        await until(pilot, lambda: isinstance(app.screen, KeymapDialog), "the keys are on screen")
        await pilot.press("slash", *"app.jobs", "enter", "enter")
        await pilot.press("f9")
        await until(pilot, lambda: "app.jobs: f9" in path.read_text(), "the key is kept")
        assert app.keymap == {"app.jobs": "f9"}
        await until(pilot, lambda: "f9" in screen_text(app), "it is shown")
        await pilot.press("enter", "g")
        await until(pilot, lambda: any("g already does" in told for told in toasts(app)), "it is told that it is taken")
        assert app.keymap == {"app.jobs": "f9"}
        assert "app.jobs: f9" in path.read_text(), "what is refused is not written"
        await pilot.press("delete")
        await until(pilot, lambda: "app.jobs" not in path.read_text(), "it is as it was")
        assert app.keymap == {}


def test_a_theme_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no theme dust") as refusal:
        make_app(theme="dust")
    assert "dusk" in refusal.value.hint


@pytest.mark.parametrize("theme", ["dusk", "paper"])
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
async def test_every_size_theme_and_language_shows_what_matters(
    theme: str, language: str, size: tuple[int, int]
) -> None:
    compile_catalogues()
    set_language(language)
    inventory = make_inventory(chinese=language == "zh")
    app = make_app(inventory, draft=job(*CHOSEN), theme=theme)
    async with app.run_test(size=size) as pilot:
        set_states(app)
        await follow(app, pilot)
        shown = screen_text(app)
        for words in ZH if language == "zh" else EN:
            assert words in shown
        assert app.screen.max_scroll_y == 0
        if size[0] < 100:
            await pilot.press("v")
            await settle(app, pilot)
        shown = screen_text(app)
        if language == "zh":
            for figure in ("3 个", "14 个", "112 核"):
                assert figure in shown
        for words in ("896 GB", "112", "PyTorch DDP", "gpt-small", "/opt/train.py"):
            assert words in shown


async def test_without_colour_every_state_is_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await follow(app, pilot)
        assert app.no_color
        for words in ("☑", "☐", "● idle", "◐ busy (li, 3h)", "○ unreachable", "◇ no agent", " master "):
            assert words in screen_text(app)


async def test_a_line_of_keys_whose_screen_has_gone_draws_nothing() -> None:
    await KeyBar().recompose()
