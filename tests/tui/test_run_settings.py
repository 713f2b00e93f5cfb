"""Options of the framework, interpreter, prefix and image: edited on the compose screen, and kept in the job."""

from __future__ import annotations

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Select

from dttui.frameworks import frameworks, registry
from dttui.frameworks.command import Command
from dttui.frameworks.unavailable import Unavailable
from dttui.i18n import set_language
from dttui.planning.compose_state import ComposeState
from dttui.spec.models import Container, Job, Run
from dttui.tui.app import DttuiApp
from dttui.tui.screens.frameworks import FrameworkDialog
from dttui.tui.screens.section import SectionDialog
from dttui.tui.widgets.prose import Prose
from tests.tui.catalogue import compile_catalogues
from tests.tui.composing import SIZE, choose_framework, screen_of, tick
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.looking import screen_text, settle, text_of, toasts, told, until
from tests.tui.screens import CHOSEN

TOLD = {"gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 0.003}}}


async def open_dialog(app: DttuiApp, pilot: Pilot[None], key: str, kind: type) -> None:
    await pilot.press(key)
    await until(pilot, lambda: isinstance(app.screen, kind), f"{kind.__name__} is open")
    await settle(app, pilot)


def field(app: DttuiApp, name: str) -> Input | Select[str]:
    dialog = app.screen
    assert isinstance(dialog, SectionDialog)
    index = [item.name for item in dialog.form.fields].index(name)
    found = dialog.query_one(f"#field-{index}")
    assert isinstance(found, (Input, Select))
    return found


def made(app: DttuiApp) -> Job:
    return screen_of(app).state.to_job()


@pytest.mark.parametrize("size", [SIZE, (80, 24)])
async def test_options_are_written_into_the_job_and_what_is_wrong_is_said_at_the_field(size: tuple[int, int]) -> None:
    app = make_app(draft=job(*CHOSEN, framework="deepspeed", framework_options=TOLD))
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        await open_dialog(app, pilot, "t", SectionDialog)
        shown = screen_text(app)
        assert "Options of DeepSpeed" in shown
        assert "deepspeed | trainer | accelerate | none" in shown
        assert "How the script is given the file" in shown
        field(app, "gradient_clipping").focus()
        field(app, "gradient_clipping").value = "much"
        await pilot.press("enter")
        await settle(app, pilot)
        lines = screen_text(app).splitlines()
        (at,) = [index for index, text in enumerate(lines) if "gradient_clipping  " in text and "much" in text]
        assert '✗ expected a number, found "much"' in lines[at + 1]
        assert app.focused is field(app, "gradient_clipping")
        field(app, "gradient_clipping").value = "0.5"
        field(app, "offload_optimizer").value = "cpu"
        await pilot.press("enter")
        await settle(app, pilot)
        assert made(app).framework_options == {**TOLD, "gradient_clipping": 0.5, "offload_optimizer": "cpu"}
        assert told(app, "#options-text").startswith("3 given: gradient_clipping, optimizer")


async def test_escape_changes_no_option_and_nothing_is_wrong_before_it_was_tried() -> None:
    app = make_app(draft=job(*CHOSEN, framework="deepspeed", framework_options=TOLD))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await open_dialog(app, pilot, "t", SectionDialog)
        field(app, "gradient_clipping").focus()
        await pilot.press("x")
        await settle(app, pilot)
        assert "✗" not in screen_text(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert not screen_of(app).has_edits


async def test_options_that_are_wrong_in_the_file_are_told_at_once() -> None:
    app = make_app(draft=job(*CHOSEN, framework="deepspeed", framework_options={"gradient_cliping": 1}))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await open_dialog(app, pilot, "t", SectionDialog)
        assert "DeepSpeed has no option gradient_cliping" in screen_text(app)
        assert app.focused is field(app, "gradient_cliping")
        await pilot.press("backspace", "enter")
        await settle(app, pilot)
        assert made(app).framework_options == {}


async def test_options_are_there_again_when_the_framework_is_chosen_again() -> None:
    app = make_app(draft=job(*CHOSEN, framework="deepspeed", framework_options=TOLD))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await choose_framework(app, pilot, "tensorflow")
        assert made(app).framework_options == {}
        assert not app.screen.query_one("#options-field").display
        await pilot.press("t")
        await settle(app, pilot)
        assert "TensorFlow has no options." in toasts(app)[-1]
        await choose_framework(app, pilot, "deepspeed")
        assert made(app).framework_options == TOLD


async def test_interpreter_and_prefix_are_fields_of_the_job() -> None:
    app = make_app(draft=job("pytorch-dev-env"))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        app.screen.query_one("#python", Input).value = "/opt/ds/bin/python"
        app.screen.query_one("#prefix", Input).value = "numactl '--cpunodebind=0"
        await settle(app, pilot)
        assert "The prefix has a quotation mark that is not closed" in text_of(app, "#readiness")
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        assert app.focused is app.screen.query_one("#prefix", Input)
        app.screen.query_one("#prefix", Input).value = "numactl '--cpunodebind=0'"
        await settle(app, pilot)
        run = made(app).run
        assert run is not None
        assert (run.python, run.prefix) == ("/opt/ds/bin/python", ("numactl", "--cpunodebind=0"))


async def test_an_image_is_chosen_in_a_dialog_and_dropped_by_emptying_it() -> None:
    app = make_app(draft=job("pytorch-dev-env"))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await open_dialog(app, pilot, "i", SectionDialog)
        field(app, "engine").value = "podman"
        field(app, "image").value = "pytorch/pytorch:2.9.0"
        app.screen.query_one("#ok").focus()
        await pilot.press("enter")
        await settle(app, pilot)
        run = made(app).run
        assert run is not None
        assert run.container == Container(engine="podman", image="pytorch/pytorch:2.9.0")
        assert text_of(app, "#container-text") == "podman · pytorch/pytorch:2.9.0"
        await open_dialog(app, pilot, "i", SectionDialog)
        field(app, "engine").clear()
        field(app, "image").value = ""
        app.screen.query_one("#ok").focus()
        await pilot.press("enter")
        await settle(app, pilot)
        run = made(app).run
        assert run is not None
        assert run.container is None


@pytest.mark.parametrize(("key", "framework"), [("i", "deepspeed"), ("t", "deepspeed"), ("t", "pytorch-fsdp")])
async def test_what_a_field_is_for_is_told_in_chinese_and_nothing_of_it_is_cut(key: str, framework: str) -> None:
    compile_catalogues()
    set_language("zh")
    app = make_app(make_inventory(chinese=True), draft=job(*CHOSEN, framework=framework))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await open_dialog(app, pilot, key, SectionDialog)
        dialog = app.screen
        assert isinstance(dialog, SectionDialog)
        about = dialog.query_one("#section-about", Prose)
        for item in dialog.form.fields:
            field(app, item.name).focus()
            await pilot.pause()
            name, *said = text_of(app, "#section-about").splitlines()
            assert name.startswith(f"{item.name}  ")
            assert len(said) == len(item.about)
            assert all(any("\u4e00" <= character <= "\u9fff" for character in part) for part in said), said
            lines = about.get_content_height(about.size, about.size, about.content_size.width)
            assert lines <= about.content_size.height


def test_what_the_screen_does_not_show_of_run_is_kept() -> None:
    run = Run(
        script="/opt/train.py",
        python="/opt/bin/python",
        env={"A": "1"},
        secrets=("TOKEN",),
        prefix=("nice", "-n 5"),
        warm_start=True,
        container=Container(engine="docker", image="torch:2"),
    )
    draft = job("pytorch-dev-env", run=run)
    assert ComposeState.from_job(draft, make_inventory()).to_job() == draft


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_frameworks_are_offered_with_what_each_is_for_and_offers(language: str) -> None:
    compile_catalogues()
    set_language(language)
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("f")
        await settle(app, pilot)
        await open_dialog(app, pilot, "enter", FrameworkDialog)
        for item in frameworks():
            about = app.screen.query_one("#framework-about", Prose)
            assert f"{item.label} · {item.summary}" in screen_text(app)
            assert text_of(app, "#framework-about").splitlines()[: 1 + len(item.features)] == [
                item.description,
                *(f"• {feature}" for feature in item.features),
            ]
            lines = about.get_content_height(about.size, about.size, about.content_size.width)
            assert lines <= about.content_size.height, "nothing of it is cut"
            await pilot.press("down")
            await settle(app, pilot)
        await pilot.press("home", "down", "down", "enter")
        await settle(app, pilot)
        assert screen_of(app).state.framework == "deepspeed"


async def test_the_zh_panel_tells_of_each_framework_what_it_is_for_in_chinese() -> None:
    compile_catalogues()
    set_language("zh")
    app = make_app(make_inventory(chinese=True), draft=job(*CHOSEN))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        for item in frameworks():
            await choose_framework(app, pilot, item.name)
            assert any("\u4e00" <= character <= "\u9fff" for character in item.description)
            assert text_of(app, "#framework-description") == item.description
            assert text_of(app, "#framework-features") == " · ".join(item.features)


async def test_a_framework_that_cannot_be_used_says_why_and_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Command()
    monkeypatch.setattr(theirs, "available", False, raising=False)
    listed = (*frameworks(), theirs, Unavailable("mine", "Mine", "mine cannot be loaded: no torch", "Mend it."))
    monkeypatch.setattr(registry, "frameworks", lambda: listed)
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("f")
        await settle(app, pilot)
        await open_dialog(app, pilot, "enter", FrameworkDialog)
        await pilot.press("end", "enter")
        await settle(app, pilot)
        assert isinstance(app.screen, FrameworkDialog)
        assert app.screen.query_one(OptionList).highlighted == len(frameworks()) + 1
        assert "Mine · cannot be used" in screen_text(app)
        assert "✗ mine cannot be loaded: no torch" in screen_text(app)
        assert "Mend it." in screen_text(app)
        await pilot.press("up", "enter")
        await settle(app, pilot)
        assert isinstance(app.screen, FrameworkDialog)
        why = "✗ Command says itself that this version of dttui cannot launch it."
        assert text_of(app, "#framework-about").startswith(why)
        await pilot.press("escape")
        await settle(app, pilot)
        assert screen_of(app).state.framework == "pytorch-ddp"


async def test_one_environment_has_a_framework_and_options_but_no_master() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await tick(pilot, 0)
        await settle(app, pilot)
        await choose_framework(app, pilot, "deepspeed")
        await open_dialog(app, pilot, "t", SectionDialog)
        await pilot.press("escape")
        await settle(app, pilot)
        assert screen_of(app).state.framework == "deepspeed"
        assert not app.screen.query_one("#master-field").display


async def test_v_goes_from_the_list_to_the_fields_and_back() -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("v")
        await settle(app, pilot)
        assert app.focused is app.screen.query_one("#task-name", Input)
        await pilot.press("escape")
        await settle(app, pilot)
        assert app.focused is app.screen.query_one("#environments")


async def test_what_is_typed_in_one_go_comes_to_one_field_after_the_other() -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await open_dialog(app, pilot, "t", SectionDialog)
        for key in ("3", "tab", "7", "down", "4", "4"):  # As a terminal gives what was pasted: none waits for another.
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: field(app, "elastic.wait_s").value == "44", "the last is typed")
        assert [field(app, f"elastic.{name}").value for name in ("min_nodes", "max_restarts")] == ["3", "7"]
        await pilot.press("up", "up", "end", "1")
        assert field(app, "elastic.min_nodes").value == "31"


@pytest.mark.parametrize("size", [SIZE, (80, 24)])
async def test_how_often_a_command_is_started_is_chosen_with_what_that_means(size: tuple[int, int]) -> None:
    app = make_app(draft=job(*CHOSEN, framework="command", run=Run(command=("bash", "run.sh"), workdir=".")))
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        await pilot.press("v", "tab", "tab", "tab")
        await settle(app, pilot)
        assert app.focused is app.screen.query_one("#per")
        assert "Each GPU has a process of its own" in screen_text(app)
        app.screen.query_one("#per", Select).value = "node"
        await settle(app, pilot)
        assert "It sees all GPUs of its node" in screen_text(app)
        run = made(app).run
        assert run is not None
        assert run.per == "node"
        app.screen.query_one("#per", Select).value = "gpu"
        await settle(app, pilot)
        assert made(app).run == Run(command=("bash", "run.sh"), workdir=".")


async def test_of_a_script_it_is_not_asked_and_comes_back_with_the_command() -> None:
    app = make_app(draft=job(*CHOSEN, framework="command", run=Run(command=("python", "t.py"), per="node")))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert app.screen.query_one("#per-field").display
        await choose_framework(app, pilot, "pytorch-ddp")
        await settle(app, pilot)
        assert not app.screen.query_one("#per-field").display
        assert not app.screen.query_one("#per-note").display
        run = made(app).run
        assert run is not None
        assert run.per == "gpu"
        await choose_framework(app, pilot, "command")
        await settle(app, pilot)
        run = made(app).run
        assert run is not None
        assert (run.per, run.command) == ("node", ("python", "t.py"))


async def test_what_was_typed_before_esc_can_be_had_again() -> None:
    app = make_app(draft=job("a100-17", framework="deepspeed"))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, SectionDialog), "the options are asked for")
        await pilot.press("tab", *"x77")
        await pilot.press("escape")
        await settle(app, pilot)
        assert "ctrl+r puts it back" in toasts(app)[-1]
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, SectionDialog), "they are asked for again")
        await settle(app, pilot)
        assert "x77" not in screen_text(app)
        await pilot.press("ctrl+r")
        await settle(app, pilot)
        assert "x77" in screen_text(app)
