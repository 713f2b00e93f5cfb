"""The compose screen: ticking, master, framework, summary, validation and launch."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Button, Input, Select

from dttui.fleet.states import EnvironmentState
from dttui.frameworks import frameworks
from dttui.tui.screens.run import RunScreen
from dttui.tui.widgets.finding_list import FindingList
from tests.tui.composing import SIZE, FakeLauncher, choose_framework, lines_of, screen_of, tick
from tests.tui.fake_fleet import environment, job, make_app, make_inventory, set_states, status
from tests.tui.looking import follow, labels_of, settle, text_of, toasts, told
from tests.tui.screens import CHOSEN


async def test_the_first_ticked_is_the_master_and_unticking_it_moves_the_badge() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await settle(app, pilot)
        await tick(pilot, 1)
        assert screen_of(app).state.master == "llm-training-env"
        assert "★" not in lines_of(app)
        await tick(pilot, 0, 2)
        await settle(app, pilot)
        assert screen_of(app).state.selected == ("llm-training-env", "pytorch-dev-env", "nlp-research-lab")
        assert lines_of(app).count("★") == 1
        assert "★ llm-training-env  master" in lines_of(app)
        await tick(pilot, 1)
        await settle(app, pilot)
        assert "★ pytorch-dev-env  master" in lines_of(app)
        await pilot.press("home", "down", "down", "m")
        await settle(app, pilot)
        assert "★ nlp-research-lab  master" in lines_of(app)
        master = app.screen.query_one("#master", Select)
        assert master.value == "nlp-research-lab"
        assert labels_of(master) == ["pytorch-dev-env", "nlp-research-lab"], "no line asks to choose"
        await tick(pilot, 2)
        await settle(app, pilot)
        assert "★" not in lines_of(app)


async def test_three_keys_tick_three_environments_and_what_becomes_the_master_is_ticked_too() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("space", "space", "m")
        await settle(app, pilot)
        state = screen_of(app).state
        assert state.selected == ("pytorch-dev-env", "llm-training-env", "nlp-research-lab")
        assert state.master == "nlp-research-lab"
        await pilot.press("end", "space")
        await settle(app, pilot)
        assert len(screen_of(app).state.selected) == 4, "from the last one there is nowhere to go"


async def test_the_summary_adds_up_the_seeds_own_example() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert "Tick the environments" in told(app, "#summary")
        await tick(pilot, 0)
        await settle(app, pilot)
        summary = told(app, "#summary")
        assert "Single-machine training" in summary
        assert "begin within 10 seconds" in summary
        assert not app.screen.query_one("#master-field").display
        assert not app.screen.query_one("#network-note").display
        await tick(pilot, 1, 2)
        await settle(app, pilot)
        summary = told(app, "#summary")
        for figure in ("nodes 3", "GPUs 14 (A100)", "GPU memory 1120 GB", "CPUs 112", "memory 896 GB", "zones 3 ⚠"):
            assert figure in summary
        assert "uses PyTorch DDP" in summary
        assert "★ pytorch-dev-env 2×A100" in summary
        assert app.screen.query_one("#master-field").display
        assert app.screen.query_one("#network-note").display
        assert "3 of 8 ticked · 14 GPUs · 3 zones ⚠" in text_of(app, "#title-right")
        assert "across zones" in text_of(app, "#findings-text")


async def test_facts_win_over_what_is_declared() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await tick(pilot, 0)
        richer = environment("pytorch-dev-env", 4, "beijing-a", gpu="H100")
        app.fleet.statuses["pytorch-dev-env"] = status(richer, EnvironmentState.IDLE, 5)
        await follow(app, pilot)
        assert "GPUs 4 (H100)" in told(app, "#summary")
        assert "4×H100" in lines_of(app)


async def test_what_is_missing_is_said_in_order_and_one_at_a_time() -> None:
    inventory = make_inventory()
    launcher = FakeLauncher(inventory)
    app = make_app(inventory, launch=launcher)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        assert toasts(app)[-1] == "error: Enter a task name"
        assert text_of(app, "#readiness") == "✗ Enter a task name"
        await pilot.press(*"mini", "ctrl+l")
        await settle(app, pilot)
        assert toasts(app)[-1] == "error: Choose a dataset, or none"
        dataset = app.screen.query_one("#dataset", Select)
        assert app.focused is dataset
        await pilot.press("enter", "home", "enter")
        await settle(app, pilot)
        first = dataset.value
        assert first == labels_of(dataset)[0], "what asked for a choice cannot be taken, and is no line of the list now"
        dataset.value = ""
        await settle(app, pilot)
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        assert toasts(app)[-1] == "error: Tick at least one environment"
        await tick(pilot, 0, 1)
        screen = screen_of(app)
        screen.set_state(screen.state.choose_master("nowhere"))
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        assert toasts(app)[-1] == "error: Choose a valid master"
        screen.set_state(screen.state.choose_master("llm-training-env"))
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        assert toasts(app)[-1] == "error: Enter the script to run"
        await pilot.press(*"/opt/train.py", "ctrl+l")
        await settle(app, pilot)
        assert len(launcher.launched) == 1
        job = launcher.launched[0][0].job
        assert (job.name, job.dataset, job.run and job.run.script) == ("mini", "none", "/opt/train.py")
        assert job.cluster.master is not None
        assert job.cluster.master.id == "llm-training-env"


async def test_a_draft_is_filled_in_and_launches_at_once() -> None:
    inventory = make_inventory()
    launcher = FakeLauncher(inventory)
    app = make_app(inventory, draft=job(*CHOSEN), launch=launcher)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        set_states(app)
        await settle(app, pilot)
        assert screen_of(app).state.selected == CHOSEN
        assert app.screen.query_one("#task-name", Input).value == "gpt-small"
        assert app.screen.query_one("#arguments", Input).value == "--steps 200"
        assert text_of(app, "#readiness") == "✓ ready to launch"
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        submission, plan = launcher.launched[0]
        assert submission.job == job(*CHOSEN)
        assert plan.world_size == 14
        assert "Training job created: distributed · 3 nodes · 14 GPUs in all" in toasts(app)
        assert isinstance(app.screen, RunScreen)


async def test_ticked_hosts_that_cannot_be_used_are_a_warning_and_no_green_light() -> None:
    inventory = make_inventory()
    launcher = FakeLauncher(inventory)
    app = make_app(inventory, draft=job("pytorch-dev-env", "a100-17"), launch=launcher)
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await follow(app, pilot)
        assert text_of(app, "#readiness") == "⚠ 1 of 2 hosts cannot be used now"
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        assert len(launcher.launched) == 1


async def test_an_error_of_the_plan_is_shown_and_nothing_is_launched(tmp_path: Path) -> None:
    inventory = make_inventory()
    launcher = FakeLauncher(inventory)
    draft = job("pytorch-dev-env")
    assert draft.run is not None
    draft = draft.model_copy(update={"run": draft.run.model_copy(update={"script": "absent.py"})})
    app = make_app(inventory, draft=draft, base=tmp_path, launch=launcher)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        assert "there is no script absent.py" in text_of(app, "#findings-text")
        assert "forbid the launch" in text_of(app, "#readiness")
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        assert "there is no script absent.py" in toasts(app)[-1]
        assert launcher.launched == []
        (tmp_path / "absent.py").write_text("print()")
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        assert len(launcher.launched) == 1


async def test_an_environment_that_cannot_be_used_is_warned_of_while_it_is_ticked() -> None:
    app = make_app(draft=job("a100-17"))
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await follow(app, pilot)
        said = "a100-17 cannot be used now: no answer within 20 s"
        assert said in text_of(app, "#findings-text"), "its name is told once"
        await pilot.press("home", *["down"] * 4, "space")
        await settle(app, pilot)
        assert not app.screen.query_one(FindingList).display


async def test_the_panel_tells_the_framework_its_kind_and_what_it_is_for_and_offers() -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        for item in frameworks():
            await choose_framework(app, pilot, item.name)
            assert str(app.screen.query_one("#framework", Button).label) == f"{item.label} · {item.summary}"
            assert told(app, "#framework-description") == item.description
            assert told(app, "#framework-features") == " · ".join(item.features)
        assert screen_of(app).state.framework == "command"
        assert text_of(app, "#program-label") == "Command"
        assert "uses Command" in told(app, "#summary")


@pytest.mark.parametrize("size", [SIZE, (80, 24)])
async def test_f_goes_to_the_framework_and_changes_no_other_field(size: tuple[int, int]) -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        await pilot.press("f")
        await settle(app, pilot)
        assert app.focused is app.screen.query_one("#framework", Button)
        await pilot.press("X")
        await settle(app, pilot)
        assert screen_of(app).state.task_name == "gpt-small"


async def test_f_does_nothing_where_there_is_no_framework_to_choose() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        focused = app.focused
        await pilot.press("f")
        await settle(app, pilot)
        assert app.focused is focused
        shown = [screen_of(app).query_one(f"#compose-{side}").display for side in ("left", "right")]
        assert shown == [True, False]
        await pilot.press("v")
        await settle(app, pilot)
        assert app.focused is app.screen.query_one("#task-name", Input)


async def test_choosing_command_and_going_back_keeps_the_script() -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        for framework, label, program in (
            ("command", "Command", "python /opt/train.py"),
            ("pytorch-ddp", "Script", "/opt/train.py"),
        ):
            await choose_framework(app, pilot, framework)
            assert text_of(app, "#program-label") == label
            assert app.screen.query_one("#program", Input).value == program
            assert app.screen.query_one("#arguments", Input).value == "--steps 200"
