"""The screen of hosts, by its keys and the mouse; and hosts imported from it."""

from __future__ import annotations

from pathlib import Path

from textual.widgets import Input

from dttui.inventory.models import Inventory
from dttui.inventory.reader import load_inventory
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.dialogs import ChoiceDialog
from dttui.tui.screens.host_import import HostList, HostPicker
from dttui.tui.screens.hosts import HostsScreen
from dttui.tui.widgets.host_list import HostTable
from tests.tui.fake_fleet import job, make_app, set_states
from tests.tui.looking import screen_text, settle, text_of, until
from tests.tui.screens import SIZES


async def test_hosts_are_marked_filtered_and_asked_about_before_anything_is_done() -> None:
    app = make_app()
    async with app.run_test(size=SIZES["80x24"]) as pilot:
        set_states(app)
        await pilot.press("h")
        await settle(app, pilot)
        table = app.screen.query_one(HostTable)
        assert isinstance(app.screen, HostsScreen)
        assert "1 without agent" in screen_text(app)
        assert "0.0.9 older" in screen_text(app)
        await pilot.press("slash", *"gpu:a100 state:idle", "enter", "A")
        await settle(app, pilot)
        assert list(table.shown) == ["pytorch-dev-env", "llm-training-env", "nlp-research-lab", "vision-lab"]
        assert "4 marked" in text_of(app, "#host-caption")
        await pilot.click("#host-table", offset=(1, 2))
        await settle(app, pilot)
        assert "3 marked" in text_of(app, "#host-caption")
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked first")
        assert "pytorch-dev-env, nlp-research-lab, vision-lab" in " ".join(text_of(app, ".dialog-text").split())
        await pilot.press("enter")  # The harmless button is the first.
        await settle(app, pilot)
        assert not app.host_work.tasks
        await pilot.click("#host-table", offset=(5, 0))
        await settle(app, pilot)
        assert table.shown[0] == "llm-training-env"
        await pilot.press("escape", "escape")
        await settle(app, pilot)
        assert app.screen.query_one("#host-words", Input).value == ""
        assert "marked" not in text_of(app, "#host-caption")
        await pilot.press("escape")
        assert isinstance(app.screen, ComposeScreen)


async def test_what_is_begun_goes_on_when_the_screen_is_left() -> None:
    app = make_app()
    async with app.run_test(size=SIZES["120x40"]) as pilot:
        set_states(app)
        await pilot.press("h")
        await settle(app, pilot)
        await pilot.press("r")
        await until(pilot, lambda: "◔ look again" in screen_text(app), "it is under way")
        await pilot.press("escape")
        assert isinstance(app.screen, ComposeScreen)
        assert app.host_work.is_busy("pytorch-dev-env")


async def test_hosts_of_a_file_are_added_and_the_job_that_is_composed_stays(tmp_path: Path) -> None:
    path, hostfile = tmp_path / "inventory.yaml", tmp_path / "hostfile"
    path.write_text("# ours\nenvironments:\n- name: gpu1  # the first\n  host: gpu1\n")
    hostfile.write_text("gpu1 slots=4\ngpu2 slots=8\n")
    app = make_app(load_inventory(path), inventory_path=path, draft=job("gpu1", name="mine"))
    async with app.run_test(size=SIZES["80x24"], notifications=True) as pilot:
        await settle(app, pilot)
        await pilot.press("h", "i")
        await until(pilot, lambda: isinstance(app.screen, HostPicker), "the file is asked for")
        await until(pilot, lambda: "cannot be read" in text_of(app, "#host-note"), "there is no ssh configuration")
        field = app.screen.query_one("#host-file", Input)
        field.value = str(hostfile)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.focused, HostList), "hosts are offered")
        assert "In the inventory already: gpu1." in text_of(app, "#host-note")
        assert "gpu2  8 GPUs" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert isinstance(app.screen, HostPicker), "where nothing is ticked, enter ticks"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, HostsScreen) and "gpu2" in app.fleet.statuses, "it is listed")
        await settle(app, pilot)
        assert list(app.screen.query_one(HostTable).shown) == ["gpu1", "gpu2"]
        text = path.read_text()
        assert text.startswith("# ours\nenvironments:\n- name: gpu1  # the first\n")
        assert [item.name for item in load_inventory(path).environments] == ["gpu1", "gpu2"]
        await pilot.press("escape")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen)
        assert app.screen.state.task_name == "mine"
        assert not app.screen.has_edits
        assert app.screen.state.selected == ("gpu1",)


async def test_an_inventory_without_hosts_says_how_to_come_by_some(tmp_path: Path) -> None:
    app = make_app(Inventory(), inventory_path=tmp_path / "inventory.yaml")
    async with app.run_test(size=SIZES["80x24"]) as pilot:
        await settle(app, pilot)
        await pilot.press("h")
        await settle(app, pilot)
        assert "has no hosts yet. i imports" in " ".join(screen_text(app).split())
        await pilot.press("escape")
        assert isinstance(app.screen, ComposeScreen)
