"""The compose screen and files: preview, saving and opening."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from textual.widgets import Input, Select

from dttui import locations
from dttui.spec import dump_job, load_job
from dttui.spec.models import Run
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.preview import PreviewScreen
from dttui.tui.widgets.finding_list import FindingList
from dttui.tui.widgets.plan_tree import PlanTree
from tests.tui.composing import SIZE, FakeLauncher, screen_of, tick
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.job_files import JobWriter
from tests.tui.looking import settle, text_of, toasts, until
from tests.tui.screens import CHOSEN


async def test_the_preview_is_a_tree_of_nodes_with_their_commands_and_files_and_those_of_all_once() -> None:
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
        tree = app.screen.query_one(PlanTree)
        names = [str(node.data.name) for node in tree.root.children if node.data is not None]
        assert names == ["changes", "job file", "on every node", *CHOSEN]
        await pilot.press("left", "down", "down", "right", "down")
        await settle(app, pilot)
        text = text_of(app, "#preview-text")
        assert "--nproc-per-node=8 " in text
        assert "NCCL" not in text, "a command is shown by itself"
        await pilot.press("home", "down", "down", "right", "right")
        await settle(app, pilot)
        assert '"world_size": 14' in text_of(app, "#preview-text")
        await pilot.press("up", "up")
        await settle(app, pilot)
        assert "name: gpt-small" in text_of(app, "#preview-text")
        await pilot.press("escape")
        assert isinstance(app.screen, ComposeScreen)


async def test_the_preview_tells_what_is_new_since_the_last_launch_and_where_there_was_none() -> None:
    inventory = make_inventory()
    before = job(*CHOSEN)
    JobWriter(before, inventory).directory.document.write_text(dump_job(before))
    app = make_app(inventory, draft=job(*CHOSEN, run=Run(script="/opt/train.py", args=("--steps", "900"))))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("p", "c")
        await settle(app, pilot)
        text = text_of(app, "#preview-text")
        assert "against the last launch: gpt-small-" in text
        assert "command launcher on every node" in text
        assert "---steps 200" in text.splitlines()
        assert "+--steps 900" in text.splitlines()
        await pilot.press("escape")
        app.screen.query_one("#task-name", Input).value = "another"
        await settle(app, pilot)
        await pilot.press("p", "c")
        await settle(app, pilot)
        assert "No job called another has been launched" in text_of(app, "#preview-text")


@pytest.mark.parametrize("size", [SIZE, (80, 24)])
async def test_keys_scroll_what_runs_on_a_node_once_it_has_the_focus(size: tuple[int, int]) -> None:
    app = make_app(draft=job(*CHOSEN))
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        await pilot.press("p")
        await settle(app, pilot)
        scroll = app.screen.query_one("#preview-scroll")
        assert scroll.max_scroll_y > 0
        await pilot.press("tab", "end")
        await settle(app, pilot)
        assert scroll.has_focus
        assert scroll.scroll_target_y == scroll.max_scroll_y
        await pilot.press("pageup")
        await settle(app, pilot)
        assert scroll.scroll_target_y < scroll.max_scroll_y


async def test_a_job_that_ships_is_saved_where_the_person_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = make_app(make_inventory(), draft=job(*CHOSEN), base=locations.shipped("examples") / "gpt", demo=True)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("ctrl+s")
        await settle(app, pilot)
        assert app.screen.query_one("#path", Input).value == str(tmp_path / "job.yaml")


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
        await app.workers.wait_for_complete()
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen), "nothing is asked"
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
        assert len(toasts(app)) == 1
        for _turn in range(2):
            await pilot.press("ctrl+s")
            await settle(app, pilot)
            await pilot.press("enter")
            await app.workers.wait_for_complete()
            await settle(app, pilot)
        assert [toast.split(".yaml")[0] for toast in toasts(app)] == [f"Saved {target.with_suffix('')}"] * 3


async def test_a_file_that_somebody_changed_meanwhile_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(dump_job(job(*CHOSEN)))
    app = make_app(make_inventory(), draft=job(*CHOSEN), base=tmp_path, file=path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        path.write_text(theirs := f"# theirs\n{dump_job(job(*CHOSEN))}")
        await pilot.press("ctrl+s")
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "is there already" in text_of(app, ".dialog-text")
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await settle(app, pilot)
        assert toasts(app) == [f"Not saved: {path} is as it was."]
    assert path.read_text() == theirs


async def test_saving_a_job_without_a_name_asks_for_the_name_where_it_is_typed() -> None:
    app = make_app()
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await tick(pilot, 0)
        await pilot.press("ctrl+s")
        await settle(app, pilot)
        assert toasts(app) == ["error: Enter a task name"]
        assert app.focused is not None
        assert app.focused.id == "task-name"


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


async def test_a_file_is_picked_from_the_recent_ones_and_its_directory_by_keys(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(dump_job(job("a100-17", name=name)))
    app = make_app(base=tmp_path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        compose = screen_of(app)

        def is_named(name: str) -> bool:
            return compose.state.task_name == name

        for keys, name in ((("t", "w", "down", "enter"), "two"), (("down", "down", "enter"), "one")):
            await pilot.press("o")
            await settle(app, pilot)
            for key in keys:
                await pilot.press(key)
                await settle(app, pilot)
            await until(pilot, partial(is_named, name), f"{name} is opened")
        await settle(app, pilot)
        app.screen.query_one("#task-name", Input).value = "edited"
        await settle(app, pilot)
        await pilot.press("o")
        await until(pilot, lambda: bool(app.screen.query("#yes")), "edits are not dropped unasked")


async def test_a_job_begins_with_a_template_for_what_is_ticked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = make_app()
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        compose = screen_of(app)
        await pilot.press("N")
        await until(pilot, lambda: bool(app.screen.query("#template-about")), "templates are offered")
        await settle(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.screen.query("#path")), "it is asked where to")
        await settle(app, pilot)
        target = Path(app.screen.query_one("#path", Input).value)
        assert target.parent == tmp_path
        await pilot.press("enter")
        await until(pilot, lambda: compose.state.task_name == target.name, "it is the job")
        assert load_job(target / "job.yaml").name == target.name
        assert compose.state.selected
