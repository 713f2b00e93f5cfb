"""The compose screen: ticking, master, summary, validation, launch, and what may come from anywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Select

from dttui import locations
from dttui.inventory.models import Inventory
from dttui.planning.models import Plan
from dttui.services.fleet import EnvironmentState
from dttui.services.jobs import JobDirectory
from dttui.services.launch import Submission
from dttui.spec import dump_job, load_job
from dttui.tui.app import DttuiApp
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.preview import PreviewScreen
from dttui.tui.screens.run import RunScreen
from dttui.tui.widgets.distributed_panel import DistributedPanel
from dttui.tui.widgets.environment_list import EnvironmentList
from dttui.tui.widgets.finding_list import FindingList
from dttui.tui.widgets.summary import Summary
from tests.tui.fake_fleet import environment, job, make_app, make_inventory, set_states, status
from tests.tui.job_files import running
from tests.tui.looking import screen_text, text_of, toasts
from tests.tui.screens import CHOSEN, settle

SIZE = (120, 40)


@dataclass
class FakeLauncher:
    """Keeps what it was to launch, and answers with a job that a test wrote."""

    inventory: Inventory
    launched: list[tuple[Submission, Plan]] = field(default_factory=list)

    def __call__(self, submission: Submission, plan: Plan) -> JobDirectory:
        self.launched.append((submission, plan))
        return running(submission.job, self.inventory).directory


def screen_of(app: DttuiApp) -> ComposeScreen:
    screen = app.screen
    assert isinstance(screen, ComposeScreen)
    return screen


def lines_of(app: DttuiApp) -> str:
    listed = app.screen.query_one(EnvironmentList)
    return "\n".join(listed.render_line(y).text for y in range(listed.size.height))


async def tick(pilot: Pilot[None], *positions: int) -> None:
    """Tick the environments at these places of the list, in this order."""
    for position in positions:
        await pilot.press("home", *["down"] * position, "space")


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
        assert app.screen.query_one("#master", Select).value == "nlp-research-lab"
        await tick(pilot, 2)
        await settle(app, pilot)
        assert "★" not in lines_of(app)


async def test_only_what_is_ticked_can_become_master() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await tick(pilot, 0, 1)
        await pilot.press("end", "m")
        await settle(app, pilot)
        assert screen_of(app).state.master == "pytorch-dev-env"
        assert "Tick the environment first" in toasts(app)[-1]


async def test_the_summary_adds_up_the_seeds_own_example() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert "Tick the environments" in text_of(app, "#summary")
        await tick(pilot, 0)
        await settle(app, pilot)
        summary = text_of(app, "#summary")
        assert "Single-machine training" in summary
        assert "begin within 10 seconds" in summary
        assert not app.screen.query_one(DistributedPanel).display
        await tick(pilot, 1, 2)
        await settle(app, pilot)
        summary = text_of(app, "#summary")
        for figure in ("nodes   3", "GPUs    14 (A100)", "CPUs    112", "memory  896 GB", "zones   3 ⚠"):
            assert figure in summary
        assert "uses PyTorch DDP" in summary
        assert "★ pytorch-dev-env   2×A100" in summary
        assert app.screen.query_one(DistributedPanel).display
        assert "3 of 8 ticked · 14 GPUs · 3 zones ⚠" in text_of(app, "#title-right")
        assert "across zones" in text_of(app, "#findings-text")


async def test_facts_win_over_what_is_declared() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await tick(pilot, 0)
        richer = environment("pytorch-dev-env", 4, "beijing-a", gpu="H100")
        app.fleet.statuses["pytorch-dev-env"] = status(richer, EnvironmentState.IDLE, 5)
        await pilot.pause(0.4)
        await settle(app, pilot)
        assert "GPUs    4 (H100)" in text_of(app, "#summary")
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
        app.screen.query_one("#dataset", Select).value = ""
        await pilot.pause()
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        assert toasts(app)[-1] == "error: Tick at least one environment"
        await tick(pilot, 0, 1)
        screen = screen_of(app)
        screen._become(screen.state.choose_master("nowhere"))
        await pilot.press("ctrl+l")
        await settle(app, pilot)
        assert toasts(app)[-1] == "error: Choose a valid master"
        screen._become(screen.state.choose_master("llm-training-env"))
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
        assert toasts(app)[-1] == "Training job created: distributed · 3 nodes · 14 GPUs in all"
        assert isinstance(app.screen, RunScreen)


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
        await pilot.pause(0.4)
        await settle(app, pilot)
        assert "a100-17 cannot be used now" in text_of(app, "#findings-text")
        await pilot.press("home", *["down"] * 4, "space")
        await settle(app, pilot)
        assert not app.screen.query_one(FindingList).display


async def test_frameworks_that_are_not_there_yet_are_shown_and_cannot_be_chosen() -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        select = app.screen.query_one("#framework", Select)
        options = select.query_one(OptionList)
        shown = {str(options.get_option_at_index(index).prompt): index for index in range(options.option_count)}
        later = [index for label, index in shown.items() if "not yet there" in label]
        assert len(later) == 5
        assert all(options.get_option_at_index(index).disabled for index in later)
        select.value = "deepspeed"
        await settle(app, pilot)
        assert select.value == "pytorch-ddp"
        select.value = "command"
        await settle(app, pilot)
        assert screen_of(app).state.framework == "command"
        assert text_of(app, "#program-label") == "Command"
        assert "Command" in text_of(app, "#summary") or "uses" in text_of(app, "#summary")


async def test_filter_and_sort_change_what_is_shown_and_not_what_is_ticked() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await tick(pilot, 0)
        await pilot.press("slash", *"a100 shenzhen", "enter")
        await settle(app, pilot)
        listed = app.screen.query_one(EnvironmentList)
        assert list(listed.shown) == ["llm-training-env", "a100-17", "a100-18"]
        assert app.focused is listed
        assert screen_of(app).state.selected == ("pytorch-dev-env",)
        assert "3 of 8 shown  esc shows all" in text_of(app, "#list-caption")
        await pilot.press("escape")
        await settle(app, pilot)
        assert len(listed.shown) == 8
        assert "esc" not in text_of(app, "#list-caption")
        await pilot.press("slash", *"zzz", "escape")
        await settle(app, pilot)
        assert len(listed.shown) == 8
        assert app.focused is listed
        await pilot.press("s", "s")
        await settle(app, pilot)
        assert "most GPUs first" in text_of(app, "#list-caption")
        assert list(listed.shown)[:3] == ["nlp-research-lab", "a100-17", "a100-18"]
        await pilot.press("s")
        assert listed.shown[0] == "a100-17"


async def test_a_click_ticks_the_row_that_was_clicked() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.click(EnvironmentList, offset=(20, 5))
        await settle(app, pilot)
        assert screen_of(app).state.selected == ("nlp-research-lab",)
        await pilot.click(EnvironmentList, offset=(20, 4))
        await settle(app, pilot)
        assert screen_of(app).state.selected == ()


async def test_thousands_of_environments_scroll_and_follow_the_fleet() -> None:
    many = Inventory(environments=tuple(environment(f"node-{number:04d}", 8) for number in range(3000)))
    app = make_app(many)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("end", "space")
        await settle(app, pilot)
        assert "node-2999" in lines_of(app)
        assert screen_of(app).state.selected == ("node-2999",)
        last = app.fleet.statuses["node-2999"].environment
        app.fleet.statuses["node-2999"] = status(last, EnvironmentState.BUSY, 97, reason="li")
        await pilot.pause(0.4)
        await settle(app, pilot)
        assert "busy (li)" in lines_of(app)


async def test_a_slash_can_be_typed_into_a_field() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        app.screen.query_one("#program", Input).focus()
        await pilot.press("slash", "s", "r", "v", "question_mark")
        assert app.screen.query_one("#program", Input).value == "/srv?"
        assert isinstance(app.screen, ComposeScreen)


async def test_the_preview_shows_ranks_command_and_files_of_each_node() -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("p")
        await settle(app, pilot)
        assert isinstance(app.screen, PreviewScreen)
        text = text_of(app, "#preview-text")
        assert "ranks: 0–1 · 2 processes" in text
        assert "--nproc-per-node=2" in text
        assert "--master-port=${MASTER_PORT} " in text
        await pilot.press("down", "down")
        await settle(app, pilot)
        assert "ranks: 6–13 · 8 processes" in text_of(app, "#preview-text")
        await pilot.press("escape")
        assert isinstance(app.screen, ComposeScreen)


async def test_the_preview_of_a_job_that_is_not_filled_in_says_what_is_missing() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await tick(pilot, 0, 1)
        await pilot.press("p")
        await settle(app, pilot)
        assert isinstance(app.screen, PreviewScreen)
        assert "The errors below" in text_of(app, "#preview-text")
        said = text_of(app, "#findings-text")
        for words in ("Enter a task name", "Choose a dataset, or none", "Enter the script to run"):
            assert words in said


@pytest.mark.parametrize(
    ("options", "besides"),
    [
        ({"demo": True}, " --demo"),
        ({"inventory_path": Path("/srv/hosts.yaml")}, " --inventory /srv/hosts.yaml"),
        ({"inventory_path": locations.inventory_file}, ""),
    ],
)
async def test_saving_tells_the_command_that_runs_the_file_and_that_comments_go(
    tmp_path: Path, options: dict[str, object], besides: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("# mine\n")
    options = {name: value() if callable(value) else value for name, value in options.items()}
    app = make_app(make_inventory(), draft=job(*CHOSEN), base=tmp_path, **options)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        await pilot.press("ctrl+s")
        await settle(app, pilot)
        assert f"`dttui --apply FILE{besides}`" in text_of(app, ".dialog-text")
        await pilot.press("enter")
        await settle(app, pilot)
        assert "The comments in it are not kept." in text_of(app, ".dialog-text")
        await pilot.press("right", "enter")
        await app.workers.wait_for_complete()
        await settle(app, pilot)
        assert toasts(app)[-1] == f"Saved {path}.: Run it without the screen: dttui --apply {path}{besides}"
    assert load_job(path) == job(*CHOSEN)


async def test_saved_over_the_file_it_was_read_from_a_job_keeps_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    before = f"# mine\n{dump_job(job(*CHOSEN))}".replace("  name: ", "  name:   ")
    path.write_text(before)
    app = make_app(make_inventory(), draft=job(*CHOSEN), base=tmp_path, file=path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        app.screen.query_one("#task-name", Input).value = "renamed"
        await settle(app, pilot)
        await pilot.press("ctrl+s")
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "is there already" in text_of(app, ".dialog-text")
        assert "The comments in it are not kept." not in text_of(app, ".dialog-text")
        await pilot.press("right", "enter")
        await app.workers.wait_for_complete()
        await settle(app, pilot)
    assert path.read_text() == before.replace(f"  name:   {job(*CHOSEN).name}", "  name:   renamed")


async def test_what_is_saved_runs_the_same_from_where_it_lies(tmp_path: Path) -> None:
    inventory = make_inventory()
    source = tmp_path / "project"
    source.mkdir()
    (source / "train.py").write_text("print()")
    draft = job("pytorch-dev-env")
    assert draft.run is not None
    draft = draft.model_copy(update={"run": draft.run.model_copy(update={"script": "train.py"})})
    app = make_app(inventory, draft=draft, base=source, launch=FakeLauncher(inventory))
    target = tmp_path / "jobs" / "mini.yaml"
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        await pilot.press("ctrl+s")
        await settle(app, pilot)
        app.screen.query_one("#path", Input).value = str(target)
        await pilot.press("enter")
        await settle(app, pilot)
        await app.workers.wait_for_complete()
        saved = load_job(target)
        assert saved.run is not None
        assert saved.run.workdir == "../project"
        await settle(app, pilot)
        assert not app.screen.query_one(FindingList).display, text_of(app, "#findings-text")
        await pilot.press("ctrl+s")
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "is there already" in text_of(app, ".dialog-text")


async def test_a_job_file_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "distributed_training:\n  name: opened\n  framework: pytorch-ddp\n  dataset: {id: imagenet}\n"
        "  run: {script: /opt/a.py}\n  cluster: {nodes: [{id: a100-17}]}\n"
    )
    (tmp_path / "bad.yaml").write_text("distributed_training:\n  nme: opened\n")
    app = make_app()
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        for name in ("bad.yaml", "job.yaml"):
            await pilot.press("o")
            await settle(app, pilot)
            app.screen.query_one("#path", Input).value = str(tmp_path / name)
            await pilot.press("enter")
            await app.workers.wait_for_complete()
            await settle(app, pilot)
        assert any("bad.yaml:2:3" in toast for toast in toasts(app))
        state = screen_of(app).state
        assert (state.task_name, state.selected) == ("opened", ("a100-17",))
        assert app.screen.query_one("#dataset", Select).value != Select.NULL


HOSTILE = "[/foo] [bold]x\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202e"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_hostile_names_and_reasons_neither_break_the_screen_nor_reach_the_terminal(size: tuple[int, int]) -> None:
    named = environment("evil", 2).model_copy(
        update={"name": "[/foo] [bold]", "zone": "[/z]", "kind": "[k", "image": "]"}
    )
    inventory = Inventory(environments=(named, environment("good", 2, "[/y]")))
    app = make_app(inventory, draft=job("[/foo] [bold]", "good"))
    async with app.run_test(size=size, notifications=True) as pilot:
        known = app.fleet.statuses["[/foo] [bold]"].environment
        app.fleet.statuses["[/foo] [bold]"] = status(
            known, EnvironmentState.UNREACHABLE, reason=f"said {HOSTILE}", hint=HOSTILE
        )
        await pilot.pause(0.4)
        await settle(app, pilot)
        assert "[/foo] [bold]" in lines_of(app)
        await pilot.press("p")
        await settle(app, pilot)
        assert not set(screen_text(app)) & {"\x1b", "\x07", "\u202e"}


async def test_chinese_names_keep_the_columns_aligned() -> None:
    inventory = make_inventory(chinese=True)
    app = make_app(inventory, draft=job("pytorch-dev-env", "视觉实验室"))
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await pilot.pause(0.4)
        await settle(app, pilot)
        listed = app.screen.query_one(EnvironmentList)
        strips = [listed.render_line(y) for y in range(0, 16, 2)]
        assert {strip.cell_length for strip in strips} == {listed.size.width}
        starts = set()
        for strip in strips:
            before = strip.text.partition("可用区")[0]
            starts.add(sum(2 if ord(character) > 0x2E80 else 1 for character in before))
        assert len(starts) == 1
        assert "视觉实验室" in text_of(app, "#summary")


async def test_summary_and_list_say_that_gpus_are_simulated() -> None:
    app = make_app(draft=job("vision-lab"))
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await pilot.pause(0.4)
        await settle(app, pilot)
        assert "4×A100 80 GB sim" in lines_of(app)
        assert "simulated" in str(app.screen.query_one(Summary).content)


async def test_a_node_that_the_inventory_lacks_is_listed_until_it_is_unticked() -> None:
    app = make_app(draft=job("gone-env", "pytorch-dev-env"))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert "gone-env" in lines_of(app)
        assert "not in the inventory" in lines_of(app)
        assert 'the inventory has no environment "gone-env"' in text_of(app, "#findings-text")
        await pilot.press("home", "space")
        await settle(app, pilot)
        assert "gone-env" not in lines_of(app)
        assert screen_of(app).state.selected == ("pytorch-dev-env",)
        assert screen_of(app).state.master == "pytorch-dev-env"


@pytest.mark.parametrize("size", [SIZE, (80, 24)])
async def test_f_goes_to_the_framework_and_changes_no_other_field(size: tuple[int, int]) -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        await pilot.press("f")
        await settle(app, pilot)
        assert app.focused is app.screen.query_one("#framework", Select)
        await pilot.press("X")
        await settle(app, pilot)
        assert screen_of(app).state.task_name == "gpt-small"


async def test_f_does_nothing_where_there_is_no_framework_to_choose() -> None:
    app = make_app(draft=job("pytorch-dev-env"))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        focused = app.focused
        await pilot.press("f")
        await settle(app, pilot)
        assert app.focused is focused
        assert screen_of(app).has_class("-on-environments")
        await pilot.press("v")
        await settle(app, pilot)
        assert app.focused is app.screen.query_one("#task-name", Input)


async def test_choosing_command_and_going_back_keeps_the_script() -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        select = app.screen.query_one("#framework", Select)
        for framework, label, program in (
            ("command", "Command", "python /opt/train.py"),
            ("pytorch-ddp", "Script", "/opt/train.py"),
        ):
            select.value = framework
            await settle(app, pilot)
            assert text_of(app, "#program-label") == label
            assert app.screen.query_one("#program", Input).value == program
            assert app.screen.query_one("#arguments", Input).value == "--steps 200"


async def test_an_environment_that_the_inventory_lacks_counts_as_one_of_the_jobs_nodes() -> None:
    app = make_app(draft=job("pytorch-dev-env", "elsewhere"))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        summary = text_of(app, "#summary")
        assert "Distributed training" in summary
        assert "nodes   2" in summary
        assert re.search(r"elsewhere +not in the inventory", summary)
        assert text_of(app, "#title-right").startswith("2 of 9 ticked · 2 GPUs")
        assert app.screen.query_one(DistributedPanel).display
        await tick(pilot, 1)
        await settle(app, pilot)
        assert screen_of(app).state.selected == ("elsewhere",)
        assert "Single-machine training" in text_of(app, "#summary")
        assert not app.screen.query_one(DistributedPanel).display
        await pilot.press("home", "space")
        await settle(app, pilot)
        assert text_of(app, "#title-right").startswith("0 of 8 ticked")
