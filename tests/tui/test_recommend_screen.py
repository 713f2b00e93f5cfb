"""Recommended degrees on screen: asked for, chosen, and promised what they then cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import OptionList

from dttui.cli.estimate_text import SHOWN, advice_lines
from dttui.compose import estimates, with_layout
from dttui.planning.compose_state import ComposeState
from dttui.spec import dump_job, load_job
from dttui.spec.models import DataParallel, Model, ModelParallel, PipelineParallel, Strategy
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.model import ModelDialog
from dttui.tui.screens.recommend import RecommendDialog
from tests.tui.composing import PAIR, SEVEN, SIZE, screen_of
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.looking import screen_text, settle, text_of, toasts, told, until
from tests.tui.screens import SIZES


async def test_recommending_asks_for_the_model_first_and_escape_changes_nothing() -> None:
    app = make_app(draft=job(*PAIR))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, ModelDialog), "the model is asked for")
        await pilot.press("escape")
        await settle(app, pilot)
        composing = screen_of(app)
        assert not composing.has_edits
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, ModelDialog), "the model is asked for")
        await pilot.press(*"7B", "enter")
        await until(pilot, lambda: isinstance(app.screen, RecommendDialog), "degrees are offered")
        asked = text_of(app, "#layouts-for")
        assert "16 × A100-80GB · global batch 496 (taken by default)" in asked
        assert "only the size is given" in asked
        assert "from 1 to 10 B parameters" in asked
        before = composing.state
        await pilot.press("down", "escape")
        await settle(app, pilot)
        assert screen_of(app).state == before


async def test_chosen_degrees_are_in_the_job_the_estimate_and_the_saved_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    draft = job(*PAIR, model=Model(parameters=7e9, precision="bf16"))
    path.write_text("# mine\n" + dump_job(draft).replace("  model:", "  # the model\n  model:"))
    app = make_app(draft=draft, base=tmp_path, file=path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        app.screen.query_one("#recommend").scroll_visible(animate=False)
        await settle(app, pilot)
        await pilot.click("#recommend")
        offer = await until(
            pilot, lambda: isinstance(app.screen, RecommendDialog) and app.screen, "degrees are offered"
        )
        assert isinstance(offer, RecommendDialog)
        await pilot.press("down", "down")
        await until(
            pilot, lambda: "slower than the fastest" in text_of(app, "#layout-reasons"), "it says what is against"
        )
        wanted = offer.offer.advice.candidates[2]
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "the dialog is closed")
        await settle(app, pilot)
        filled = toasts(app)[-1]
        assert filled.startswith("Filled in: ")
        assert "; ".join(wanted.reasons) in filled.replace("\n", "; ")
        cost = screen_of(app).draft.cost
        assert cost is not None
        assert cost.estimate is not None
        assert cost.estimate.step_time_s == wanted.estimate.step_time_s
        assert cost.estimate.memory_per_gpu_gb == wanted.estimate.memory_per_gpu_gb
        degrees = (
            f"DP {wanted.data_parallel_size} · TP {wanted.tensor_parallel_size} · PP {wanted.pipeline_parallel_size}"
        )
        assert f"degrees {degrees}" in told(app, "#summary")
        await pilot.press("ctrl+s")
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen)  # The comments are kept: nothing to ask.
        await app.workers.wait_for_complete()
        await settle(app, pilot)
    assert path.read_text().startswith("# mine\n")
    assert "  # the model\n" in path.read_text()
    strategy = load_job(path).strategy
    assert strategy.tensor_parallel_size == wanted.tensor_parallel_size
    assert strategy.data_parallel is not None
    assert strategy.data_parallel.batch_size == wanted.global_batch
    assert strategy.recomputation == wanted.recompute


async def test_the_terminal_recommends_in_the_rows_and_words_of_the_screen() -> None:
    app = make_app(draft=job(*PAIR, model=SEVEN))
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(app, pilot)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, RecommendDialog), "degrees are offered")
        dialog = app.screen
        assert isinstance(dialog, RecommendDialog)
        told = [line.strip() for line in advice_lines(dialog.offer)]
        layouts = dialog.query_one(OptionList)
        rows = [str(layouts.get_option_at_index(index).prompt) for index in range(SHOWN)]
        printed = [line.partition(". ")[2] for line in told if line[0:1].isdigit() and ". " in line[:4]]
        # A job file has frameworks by their names, the screen by their labels.
        assert [line.partition("→")[0].split() for line in printed] == [row.partition("→")[0].split() for row in rows]
        assert ["→" in line for line in printed] == ["→" in row for row in rows]
        for index in range(SHOWN):
            layouts.highlighted = index
            await settle(app, pilot)
            first = dialog.offer.advice.candidates[index].reasons[0]
            assert any(line.startswith(first) and line in text_of(app, "#layout-reasons") for line in told)


async def test_a_layout_that_the_framework_cannot_train_takes_one_that_can() -> None:
    app = make_app(draft=job(*PAIR, model=SEVEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, RecommendDialog), "degrees are offered")
        await settle(app, pilot)
        layouts = app.screen.query_one(OptionList)
        rows = [str(layouts.get_option_at_index(index).prompt) for index in range(layouts.option_count)]
        splitting = next(index for index, row in enumerate(rows) if "→ Megatron-LM" in row)
        await pilot.press(*["down"] * splitting, "enter")
        await until(pilot, lambda: screen_of(app).state.framework == "megatron-lm", "the framework has changed")


@pytest.mark.parametrize("parameters", [1.3e9, 7e9, 22e9])
def test_every_layout_that_is_offered_costs_in_the_job_what_was_promised(parameters: float) -> None:
    inventory = make_inventory()
    strategy = Strategy(
        type="hybrid",
        model_parallel=ModelParallel(pipeline_stages=2),
        pipeline_parallel=PipelineParallel(pipeline_stages=2, schedule="GPipe"),
        data_parallel=DataParallel(batch_size=256, num_workers=4),
    )
    draft = job(*PAIR, model=Model(parameters=parameters), strategy=strategy)
    state = ComposeState.from_job(draft, inventory)
    offer = estimates.advise(state, inventory, {})
    assert offer.global_batch == 256
    assert offer.batch_is_given
    for wanted in offer.advice.candidates:
        changed = with_layout(state, wanted)
        cost = estimates.cost_of_draft(changed, inventory, {})
        assert cost.estimate is not None
        assert cost.estimate.step_time_s == wanted.estimate.step_time_s
        assert cost.estimate.memory_per_gpu_gb == wanted.estimate.memory_per_gpu_gb
        kept = changed.to_job().strategy.data_parallel
        assert kept is not None
        assert kept.num_workers == 4
        assert ComposeState.from_job(changed.to_job(), inventory).to_job() == changed.to_job()


@pytest.mark.parametrize(
    ("node", "model", "words"),
    [
        ("a100-17", Model(parameters=1e12), "no degrees would work: training all of the model needs at least"),
        ("vision-lab", SEVEN, "simulated GPUs compute on the CPU"),
    ],
)
async def test_what_cannot_be_recommended_is_said_with_what_would_help(node: str, model: Model, words: str) -> None:
    app = make_app(draft=job(node, model=model))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        await pilot.press("d")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen)
        assert words in toasts(app)[-1]
        assert "Tick " in toasts(app)[-1].partition("→")[2]
        assert not screen_of(app).has_edits


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
async def test_the_offer_fits_every_size_with_its_buttons(size: tuple[int, int]) -> None:
    app = make_app(draft=job(*PAIR, model=SEVEN))
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, RecommendDialog), "degrees are offered")
        await settle(app, pilot)
        shown = screen_text(app)
        for word in ("ZeRO", "SP", "GB/GPU", "Use it", "Cancel", "layouts compared"):
            assert word in shown
        layouts = app.screen.query_one(OptionList)
        assert all(
            len(line) <= layouts.content_size.width for line in str(layouts.get_option_at_index(0).prompt).split("\n")
        )
