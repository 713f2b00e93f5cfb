"""What was composed and not saved is there again after a crash, and offered; whoever leaves on purpose is not asked."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from textual.widgets import Button, TextArea

from dttui import locations
from dttui.compose import documents, kept_drafts
from dttui.compose.kept_drafts import KeptDraft
from dttui.planning import ComposeState
from dttui.tui.app import DttuiApp
from dttui.tui.screens.dialogs import ChoiceDialog
from dttui.tui.screens.job_files import JobFile, Unsaved
from dttui.tui.screens.job_text import JobTextScreen
from tests.tui.composing import screen_of, tick
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.looking import left, screen_text, settle, until
from tests.tui.screens import CHOSEN

SIZE = (120, 40)


def leave_behind(app: DttuiApp, state: ComposeState) -> Path:
    """Have a draft that a process left which has ended."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    kept_drafts.keep(
        KeptDraft(kept_at=1.0, inventory=str(app.options.inventory_path), base="/srv", file=None, state=state)
    )
    (own,) = locations.drafts_directory().iterdir()
    path = own.with_name(own.name.replace(str(os.getpid()), str(process.pid)))
    own.rename(path)
    return path


def test_a_draft_comes_back_as_it_was_whatever_it_lacks() -> None:
    inventory = make_inventory()
    state = replace(
        ComposeState.from_job(job(*CHOSEN, framework="deepspeed"), inventory),
        task_name="",
        arguments="--name 'not closed",
        gpu_counts=(("pytorch-dev-env", 1),),
        options=(("deepspeed", {"optimizer": {"params": {"betas": [0.9, 0.95]}}}),),
    )
    text = KeptDraft(kept_at=1.0, inventory=None, base="/x", file=None, state=state).model_dump_json(exclude_unset=True)
    back = KeptDraft.model_validate_json(text).state
    assert back == state
    assert back.base is not None
    assert state.base is not None
    assert back.base.model_dump(exclude_unset=True) == state.base.model_dump(exclude_unset=True)


async def test_what_is_composed_is_kept_until_it_is_left_on_purpose() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await app.drafts.keep()
        assert not locations.drafts_directory().exists()
        await tick(pilot, 1)
        await settle(app, pilot)
        await app.drafts.keep()
        (path,) = locations.drafts_directory().iterdir()
        assert KeptDraft.model_validate_json(path.read_bytes()).state.selected == ("llm-training-env",)
        assert kept_drafts.left(str(app.options.inventory_path)) is None, "its screen is still there"
        await pilot.press("ctrl+q")
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked")
        app.screen.query_one("#quit", Button).press()
        await left(app)
    assert list(locations.drafts_directory().iterdir()) == []


async def test_a_draft_that_was_left_behind_is_offered_and_taken_up() -> None:
    app = make_app()
    state = ComposeState(task_name="[/x] draft", selected=("a100-17", "a100-18"), master="a100-17")
    path = leave_behind(app, state)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is offered")
        assert "[/x] draft, on 2 environments" in screen_text(app)
        app.screen.query_one("#take", Button).press()
        await until(pilot, lambda: not path.exists(), "it is taken up")
        assert screen_of(app).state == state
        assert screen_of(app).has_edits
        assert screen_of(app).file.base == Path("/srv")
        assert len(list(locations.drafts_directory().iterdir())) == 1, "and kept as this screen's"


async def test_a_draft_that_is_wanted_later_stays() -> None:
    app = make_app()
    path = leave_behind(app, ComposeState(task_name="later"))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is offered")
        await pilot.press("escape")
        await settle(app, pilot)
        assert path.exists()
        assert not screen_of(app).has_edits


def test_a_file_that_is_no_draft_and_one_of_another_inventory_are_passed_over() -> None:
    app = make_app()
    path = leave_behind(app, ComposeState(task_name="x"))
    assert kept_drafts.left("/elsewhere.yaml") is None
    path.write_text("{")
    assert kept_drafts.left(str(app.options.inventory_path)) is None


def test_a_draft_of_another_host_is_none_of_ours_and_a_number_that_was_given_away_again_hides_none() -> None:
    app = make_app()
    path = leave_behind(app, ComposeState(task_name="x"))
    inventory = str(app.options.inventory_path)
    elsewhere = path.rename(path.with_name(path.name.replace("@", "-1@")))
    assert kept_drafts.left(inventory) is None, "a host whose name begins alike"
    elsewhere.rename(path.with_name(f"{path.name.rpartition('@')[0]}@{os.getpid()}-1.json"))
    found = kept_drafts.left(inventory)
    assert found is not None, "a process of that number which was started at another time"
    assert found[1].state.task_name == "x"


async def test_texts_come_back_too_and_a_file_that_somebody_changed_meanwhile_is_known(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("distributed_training:\n  name: mine\n")
    app = make_app(base=tmp_path, file=file)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        screen = screen_of(app)
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, JobTextScreen), "the text")
        app.screen.query_one(TextArea).text = "distributed_training:\n  nmae: x\n"
        await until(pilot, lambda: "nmae" in (screen.file.unfinished or ""), "it is read")
        await app.drafts.keep()
        (path,) = locations.drafts_directory().iterdir()
        draft = KeptDraft.model_validate_json(path.read_bytes())
    file.write_text("distributed_training:\n  name: theirs\n")
    assert draft.unfinished == "distributed_training:\n  nmae: x\n"
    unsaved = Unsaved(draft.state, draft.edited, draft.unfinished)
    found = JobFile.of_draft(draft.base, draft.file, draft.fingerprint, unsaved)
    assert (found.unfinished, found.has_edits) == (draft.unfinished, True)
    assert not documents.is_unchanged(file, found.path, found.fingerprint)
