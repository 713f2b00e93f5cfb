"""Sections of a job are filled in on the compose screen, and findings lead to the field that mends them."""

from __future__ import annotations

from textual.pilot import Pilot
from textual.widgets import Button, Input, Select

from dttui.spec.models import Alert, DatasetRef, Job, Strategy
from dttui.tui.app import DttuiApp
from dttui.tui.guide_lines import TickedHost, commands, framework_lines, usual_row
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.guide import GuideDialog
from dttui.tui.screens.section import SectionDialog
from dttui.tui.screens.section_items import ItemsDialog
from dttui.tui.widgets.finding_list import FindingList
from dttui.tui.widgets.fold import FoldHead
from dttui.tui.widgets.paragraphs import Paragraphs
from tests.tui.composing import PAIR, SEVEN, SIZE, screen_of
from tests.tui.fake_fleet import job, make_app
from tests.tui.looking import screen_text, settle, text_of, toasts, until


def field(app: DttuiApp, name: str) -> Input | Select[str] | Button:
    dialog = app.screen
    assert isinstance(dialog, SectionDialog)
    found = dialog.query_one(f"#field-{[item.name for item in dialog.form.fields].index(name)}")
    assert isinstance(found, (Input, Select, Button))
    return found


def type_into(app: DttuiApp, name: str, text: str) -> None:
    found = field(app, name)
    assert isinstance(found, Input)
    found.focus()
    found.value = text


def made(app: DttuiApp) -> Job:
    return screen_of(app).state.to_job()


async def opened(app: DttuiApp, pilot: Pilot[None], section: str) -> SectionDialog:
    """Open a section by its line."""
    app.screen.query_one(f"#section-{section}", Button).press()
    await until(pilot, lambda: isinstance(app.screen, SectionDialog), "the section is open")
    dialog = app.screen
    assert isinstance(dialog, SectionDialog)
    return dialog


async def test_degrees_are_said_by_key_and_shown_in_their_line() -> None:
    app = make_app(draft=job(*PAIR))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, SectionDialog), "the section is open")
        type_into(app, "tensor_parallel_size", "2")
        type_into(app, "data_parallel.batch_size", "many")
        await pilot.press("enter")
        await settle(app, pilot)
        assert '✗ expected a whole number, found "many"' in screen_text(app)
        type_into(app, "data_parallel.batch_size", "448")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "it is taken")
        await settle(app, pilot)
        strategy = made(app).strategy
        assert strategy.data_parallel is not None
        assert (strategy.tensor_parallel_size, strategy.data_parallel.batch_size) == (2, 448)
        label = str(app.screen.query_one("#section-strategy", Button).label)
        assert "tensor_parallel_size 2" in label
        await pilot.press("a")
        await pilot.pause()
        assert app.screen.query_one("#section-strategy").has_focus


async def test_alerts_are_added_one_by_one_and_a_wrong_one_is_told_where_it_is() -> None:
    app = make_app(draft=job("pytorch-dev-env"))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await opened(app, pilot, "monitoring")
        field(app, "alerts").focus()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ItemsDialog), "the list is open")
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, SectionDialog), "an alert is asked for")
        type_into(app, "metric", "loss is large")
        await pilot.press("enter")
        await settle(app, pilot)
        assert "✗" in screen_text(app)
        type_into(app, "metric", "loss > 10")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ItemsDialog), "it is in the list")
        assert "metric: loss > 10" in screen_text(app)
        app.screen.query_one("#ok", Button).press()
        await until(pilot, lambda: isinstance(app.screen, SectionDialog), "the list is taken")
        app.screen.query_one("#ok", Button).press()
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "the section is taken")
        assert made(app).monitoring.alerts == (Alert(metric="loss > 10"),)


async def test_what_is_within_a_long_section_is_folded_until_it_is_opened() -> None:
    app = make_app(draft=job("pytorch-dev-env", model=SEVEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        dialog = await opened(app, pilot, "model")
        head = next(item for item in dialog.query(FoldHead) if item.group == "lora")
        assert not head.is_open
        head.focus()
        await pilot.press("enter")
        await settle(app, pilot)
        row = field(app, "lora.rank").parent
        assert row is not None
        assert row.display
        type_into(app, "lora.rank", "16")
        await pilot.press("escape")
        await settle(app, pilot)
        assert not screen_of(app).has_edits


async def test_from_a_finding_a_person_comes_to_the_field_that_mends_it() -> None:
    draft = job(*PAIR, strategy=Strategy(tensor_parallel_size=3))
    app = make_app(draft=draft)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert "does not divide" in text_of(app, "#findings-text")
        await pilot.press("n")
        assert app.screen.query_one(FindingList).has_focus
        assert app.screen.query_one("#findings-text", Paragraphs).cursor == 0
        await pilot.press("down", "escape")
        await settle(app, pilot)
        await pilot.press("n")
        assert app.screen.query_one("#findings-text", Paragraphs).cursor == 0, "it begins with the gravest"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, SectionDialog), "the section is open")
        await settle(app, pilot)
        assert field(app, "tensor_parallel_size").has_focus
        type_into(app, "tensor_parallel_size", "2")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "it is mended")
        await settle(app, pilot)
        assert "does not divide" not in text_of(app, "#findings-text")


async def test_a_click_on_a_finding_leads_there_too() -> None:
    app = make_app(draft=job(*PAIR, strategy=Strategy(tensor_parallel_size=3)))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.click("#findings-text", offset=(4, 0))
        await until(pilot, lambda: isinstance(app.screen, SectionDialog), "the section is open")


async def test_a_dataset_and_its_version_are_fields_of_their_own() -> None:
    app = make_app(draft=job("pytorch-dev-env"))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert not app.screen.query_one("#version-field").display
        app.screen.query_one("#dataset", Select).value = "imagenet"
        await settle(app, pilot)
        assert made(app).dataset == DatasetRef(id="imagenet")
        app.screen.query_one("#version", Select).value = "v2"
        app.screen.query_one("#dataset-path", Input).value = "/fast/imagenet"
        await settle(app, pilot)
        assert made(app).dataset == DatasetRef(id="imagenet", version="v2", path="/fast/imagenet")
        app.screen.query_one("#dataset", Select).value = ""
        await settle(app, pilot)
        assert made(app).dataset == "none"


async def test_the_guide_marks_the_row_of_the_draft_and_its_commands_are_copied() -> None:
    app = make_app(draft=job(*PAIR))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, GuideDialog), "the guide is open")
        assert "▸ 2–4" in screen_text(app)
        await pilot.press("c")
        await settle(app, pilot)
        assert "ping -c 3 a100-17.example.org" in app.clipboard
        assert "nvidia-smi\n" in app.clipboard
        assert "The commands are copied." in toasts(app)


def test_the_seeds_rows_are_found_by_nodes_and_gpus() -> None:
    assert [usual_row(*draft) for draft in ((0, 0), (1, 2), (1, 8), (2, 4), (3, 24), (4, 32), (8, 64))] == [
        None, 0, 1, 2, 2, 3, 4,
    ]  # fmt: skip
    assert "Megatron-LM" in framework_lines(8, 64)[5].plain
    assert framework_lines(8, 64)[5].plain.startswith("▸")


def test_what_is_to_be_copied_cannot_be_taken_for_more_than_an_address() -> None:
    told = [command for command, _about in commands([TickedHost("10.0.0.1; reboot", is_master=True)], "py thon")]
    assert told[0] == "ping -c 3 '10.0.0.1; reboot'"
    assert "nc -vz '10.0.0.1; reboot' 29500" in told
    assert told[-1].startswith("'py thon' -c ")
