"""What a draft costs on screen: the summary, the model, recommended degrees, the page about the estimate."""

from __future__ import annotations

import threading

import pytest
from textual.command import CommandList, CommandPalette
from textual.widgets import Input, Select

from dttui.compose import DraftCost, estimates, model_of
from dttui.fleet.states import EnvironmentState
from dttui.inventory.models import Inventory
from dttui.planning import costing
from dttui.planning.compose_state import ComposeState
from dttui.planning.cost.assumptions import Inputs
from dttui.planning.cost.estimate import Estimate, estimate
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.shape import ModelShape
from dttui.spec.models import Model
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.estimate import EstimateScreen, EstimateSection
from dttui.tui.screens.model import ModelDialog
from dttui.tui.screens.preview import PreviewScreen
from dttui.tui.widgets.finding_list import FindingList
from tests.tui.composing import PAIR, SEVEN, SIZE, screen_of, tick
from tests.tui.fake_fleet import environment, job, make_app, make_inventory, set_states, status
from tests.tui.looking import follow, screen_text, settle, text_of, toasts, told, until
from tests.tui.screens import CHOSEN, SIZES


async def test_the_summary_follows_each_tick_with_memory_time_speed_up_and_degrees() -> None:
    app = make_app(draft=job("a100-17", model=Model(parameters=1.3e9)))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        alone = told(app, "#summary")
        assert "of 86 GB ━" in alone
        assert "✓ fits" in alone.replace("\xa0", " ")
        assert "degrees DP 8 · TP 1 · PP 1" in alone
        assert "speed-up" not in alone
        await tick(pilot, 5)
        await settle(app, pilot)
        both = told(app, "#summary")
        assert "degrees DP 16 · TP 1 · PP 1" in both
        assert "× of 2" in both
        assert "step time" in both


async def test_the_model_is_seen_below_the_summary_without_scrolling_and_a_larger_screen_names_more_hosts() -> None:
    hosts = (*CHOSEN, "cv-experiment-env", "a100-17", "a100-18")
    app = make_app(draft=job(*hosts, model=SEVEN))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        assert "network" in told(app, "#summary"), "it tells all that it can"
        assert "… and 2 more" in told(app, "#summary")
        room = app.screen.query_one("#compose-right").region
        for selector in ("#model-text", "#model", "#recommend"):
            assert room.contains_region(app.screen.query_one(selector).region), selector
        await pilot.resize_terminal(200, 60)
        await until(pilot, lambda: "a100-18" in told(app, "#summary"), "all are named")
        assert "more" not in told(app, "#summary").rpartition("★")[2]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [(1.3e9, "✓ fits"), (3.45e9, "⚠ fits, barely"), (3.7e9, "⚠ may not fit"), (7e9, "✗ does not fit")],
)
async def test_whether_it_fits_is_a_sign_and_words_and_not_only_a_colour(parameters: float, words: str) -> None:
    app = make_app(draft=job("a100-17", model=Model(parameters=parameters)))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert words in told(app, "#summary").replace("\xa0", " ")


@pytest.mark.parametrize(
    ("node", "model", "words"),
    [
        ("a100-17", None, "the size of the model is not given → Press w to give it"),
        ("vision-lab", None, "simulated GPUs compute on the CPU"),
        ("ci-runner", SEVEN, "the GPUs of ci-runner are not known → Declare resources.gpu"),
        ("ci-runner", None, "the GPUs of ci-runner are not known"),
        ("strange", SEVEN, 'no GPU type "Voodoo2" is known'),
        ("nowhere", SEVEN, "none of the ticked environments is in the inventory"),
    ],
)
async def test_without_an_estimate_the_summary_says_why(node: str, model: Model | None, words: str) -> None:
    inventory = make_inventory(environment("strange", 2, gpu="Voodoo2"))
    app = make_app(inventory, draft=job(node, **({"model": model} if model else {})))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        shown = told(app, "#summary").replace("\xa0", " ")
        assert words in shown
        assert "step time" not in shown


async def test_live_facts_count_where_they_are_known() -> None:
    app = make_app(draft=job("pytorch-dev-env", model=Model(parameters=1.3e9)))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert "degrees DP 2" in told(app, "#summary")
        richer = environment("pytorch-dev-env", 4, "beijing-a", gpu="H100")
        app.fleet.statuses["pytorch-dev-env"] = status(richer, EnvironmentState.IDLE, 5)
        await follow(app, pilot)
        assert "degrees DP 4" in told(app, "#summary")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EstimateScreen), "the estimate is shown")
        assert "● 4 GPUs" in "".join(str(part.content) for part in app.screen.query(EstimateSection)).replace(
            "\xa0", " "
        )


async def test_a_number_that_is_not_of_what_is_ticked_now_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    gate.set()
    asked: list[tuple[str, ...]] = []

    def slow(state: ComposeState, *rest: object) -> DraftCost:
        asked.append(state.selected)
        assert gate.wait(60)
        return at_once(state, *rest)  # type: ignore[arg-type]  # passed on as they came

    at_once = estimates.cost_of_draft
    monkeypatch.setattr(estimates, "cost_of_draft", slow)
    app = make_app(draft=job("a100-17", model=Model(parameters=1.3e9)))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert "degrees DP 8" in told(app, "#summary")
        gate.clear()
        asked.clear()
        await tick(pilot, 5, 0, 1)
        await until(pilot, lambda: asked, "the estimate is asked for")
        assert "step time … speed-up" not in told(app, "#summary")
        assert "memory/GPU … left out … step time … assumed … degrees …" in told(app, "#summary")
        assert len(asked) == 1, "one look at a time"
        gate.set()
        await settle(app, pilot)
        assert "degrees DP 22" in told(app, "#summary")
        assert len(asked) == 2, "those between are skipped"


async def test_typing_into_the_form_does_not_estimate_anew() -> None:
    app = make_app(draft=job("a100-17", model=SEVEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        before = screen_of(app).draft.costed
        app.screen.query_one("#arguments", Input).focus()
        await pilot.press("quotation_mark")
        await settle(app, pilot)
        assert screen_of(app).draft.costed == before
        assert "step time" in told(app, "#summary")


async def test_a_model_can_be_given_without_a_job_file() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await tick(pilot, 4)
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, ModelDialog), "the model is asked for")
        await pilot.press(*"7x", "enter")
        assert "Parameters: 7x is no number such as 7B" in text_of(app, "#model-problem")
        await pilot.press("backspace", "B")
        layers = app.screen.query_one("#model-layers", Input)
        assert layers.placeholder == "32", "what is left empty is shown"
        layers.value = "1.5"
        await pilot.press("enter")
        assert "Layers: 1.5 is no number such as 32" in text_of(app, "#model-problem")
        layers.value = "1e9"
        await pilot.press("enter")
        assert "Layers: 1e9 is no number such as 32" in text_of(app, "#model-problem")
        layers.value = "36"
        app.screen.query_one("#model-precision", Select).value = "fp16"
        app.screen.query_one("#model-attention", Select).value = "flash"
        app.screen.query_one("#model-kv-heads", Input).value = "8"
        await pilot.pause()
        await pilot.click("#ok")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "the dialog is closed")
        await settle(app, pilot)
        assert text_of(app, "#model-text") == "7B · 36 layers · fp16"
        assert "step time" in told(app, "#summary")
        assert "flash attention" in told(app, "#summary")
        screen = screen_of(app)
        assert model_of(screen.state) == Model(
            parameters=7e9, layers=36, kv_heads=8, attention="flash", precision="fp16"
        )
        assert screen.has_edits


async def test_a_model_is_given_in_other_words_and_taken_away_again() -> None:
    app = make_app(draft=job("a100-17", model=Model(name="mine", layers=24, hidden_size=2048, tied=False)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, ModelDialog), "the model is asked for")
        assert app.screen.query_one("#model-parameters", Input).placeholder == "1.418B"
        app.screen.query_one("#model-hidden-size", Input).value = ""
        await pilot.click("#ok")
        assert "needs its number of parameters" in text_of(app, "#model-problem")
        await pilot.press("escape")
        await settle(app, pilot)
        assert not screen_of(app).has_edits
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, ModelDialog), "the model is asked for")
        for field in app.screen.query(Input):
            field.value = ""
        await pilot.click("#ok")
        await settle(app, pilot)
        assert model_of(screen_of(app).state) == Model(tied=False)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
async def test_what_does_not_fit_is_not_called_ready_to_launch(size: tuple[int, int]) -> None:
    app = make_app(draft=job(*PAIR, model=Model(parameters=700e9)))
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        await until(pilot, lambda: "by the estimate" in screen_text(app), "the estimate is there")
        await settle(app, pilot)
        assert "ready to launch" not in screen_text(app)
        assert "⚠ does not fit by the estimate; can be launched" in screen_text(app)


async def test_with_nothing_ticked_recommending_and_estimating_say_so() -> None:
    app = make_app()
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        for key in ("d", "e"):
            await pilot.press(key)
            await settle(app, pilot)
            assert toasts(app)[-1] == "error: Tick at least one environment"
            app.clear_notifications()


async def test_the_palette_has_recommend_estimate_and_model() -> None:
    app = make_app(draft=job("a100-17", model=SEVEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette), "the palette is open")
        commands = app.screen.query_one(CommandList)
        for word in ("recommend", "estimate", "model"):
            app.screen.query_one(Input).value = word
            await until(
                pilot,
                lambda wanted=word: commands.option_count and wanted in str(commands.get_option_at_index(0).prompt),  # type: ignore[misc]  # bound at once
                f"the palette offers {word}",
            )


async def test_the_page_about_an_estimate_has_parts_inputs_scaling_failures_and_axioms() -> None:
    app = make_app(draft=job(*CHOSEN, model=SEVEN))
    async with app.run_test(size=SIZE) as pilot:
        set_states(app)
        await follow(app, pilot)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EstimateScreen), "the estimate is shown")
        parts = {
            str(part.border_title): str(part.content).replace("\xa0", " ") for part in app.screen.query(EstimateSection)
        }
        for title, words in {
            "What it is of": ("Llama-like, 7B: 32 layers of 4,096", "14 × A100-80GB on ", "14 replicas, ZeRO 0"),
            "Memory of the fullest GPU": ("activations", "not counted: ", "✗ does not fit", "→  ZeRO 1: "),
            "Time of a step": ("data parallel", "tokens/s", "of the peak", "tokens a day", "140B tokens", "MWh"),
            "More nodes, same global batch": ("nodes  speed-up  efficiency", "3 "),
            "Failures and checkpoints": ("checkpoint every", "Young and Daly"),
            "Rules of thumb, no part of the estimate": ("(estimate: 112 GB)",),
            "In formal terms": ("S = (N, M, C, D)", "pytorch-dev-env", "data 14 × tensor 1 × pipeline 1", "nccl"),
            "The four axioms": ("✓ gradients are synchronised", "⚠ communication costs"),
            "What it rests on": ("● 14 GPUs", "◆ 7B parameters", "○ 32 layers", "○ 5.50 µs to start a kernel"),
        }.items():
            for word in words:
                assert word in parts[title]
        await pilot.press("end")
        await until(
            pilot, lambda: "peak 312 TFLOP/s" in screen_text(app).replace("\xa0", " "), "the keys scroll to the end"
        )
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "back at the job")


async def test_the_preview_leads_to_the_estimate_and_back() -> None:
    app = make_app(draft=job(*PAIR, model=SEVEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        for key, screen in (("p", PreviewScreen), ("e", EstimateScreen), ("escape", PreviewScreen)):
            await pilot.press(key)
            await until(pilot, lambda wanted=screen: isinstance(app.screen, wanted), f"{key} shows {screen.__name__}")  # type: ignore[misc]  # bound at once


async def test_axioms_that_hold_share_a_line_and_one_that_does_not_has_its_own() -> None:
    app = make_app(draft=job(*CHOSEN, model=SEVEN))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        said = text_of(app, "#findings-text")
        assert "warning: communication costs" in said
        assert "✓ 3 of the 4 axioms of distributed training hold" in said
        assert "load is balanced" not in said


@pytest.mark.parametrize("size", [(80, 24), SIZE])
async def test_findings_that_do_not_fit_can_be_scrolled_by_keys(size: tuple[int, int]) -> None:
    app = make_app(draft=job(*CHOSEN, model=SEVEN))
    async with app.run_test(size=size) as pilot:
        set_states(app)
        await follow(app, pilot)
        findings = app.screen.query_one(FindingList)
        await until(
            pilot, lambda: findings.border_title == "Findings · n and ↓ to one, enter to its field", "it says how"
        )
        findings.focus()
        await pilot.press("end")
        await until(pilot, lambda: "axioms of distributed training hold" in screen_text(app), "the end is seen")
        await pilot.press("escape")
        await until(pilot, lambda: app.focused is app.screen.query_one("#environments"), "back at the list")


async def test_findings_that_fit_take_no_focus() -> None:
    app = make_app(draft=job("a100-17", "a100-18"))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        findings = app.screen.query_one(FindingList)
        assert not findings.focusable


async def test_a_tick_among_thousands_is_shown_without_waiting_for_its_estimate() -> None:
    many = Inventory(environments=tuple(environment(f"node-{number:04d}", 8, "z") for number in range(5000)))
    draft = job(*(f"node-{number:04d}" for number in range(63)), model=SEVEN)
    app = make_app(many, draft=draft)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        screen_of(app).set_state(screen_of(app).state.toggle("node-0063"))
        assert "64 of 5000 ticked · 512 GPUs" in text_of(app, "#title-right")
        await settle(app, pilot)
        assert "degrees DP 512" in told(app, "#summary")


async def test_each_change_of_the_draft_is_estimated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(shape: ModelShape, layout: Layout, hardware: Hardware, inputs: Inputs) -> Estimate:
        asked.append(hardware.gpus)
        return estimate(shape, layout, hardware, inputs)

    monkeypatch.setattr(costing, "estimate", counted)
    app = make_app(draft=job("a100-17", model=Model(parameters=1.3e9)))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        assert asked == [8]
        await tick(pilot, 5)
        await settle(app, pilot)
        assert asked == [8, 16]
        preview, cost = screen_of(app).draft.preview, screen_of(app).draft.cost
        assert preview.plan is not None
        assert cost is not None
        assert preview.plan.estimate is cost.estimate, "summary and plan show the same one"
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EstimateScreen), "the estimate is shown")
        await pilot.press("escape")
        app.screen.query_one("#arguments", Input).value = "--epochs 3"
        await settle(app, pilot)
        assert asked == [8, 16], "neither its page nor the form asks again"
        changed = environment("a100-18", 4, gpu="A100")
        app.fleet.statuses["a100-18"] = status(changed, EnvironmentState.IDLE, 5)
        await follow(app, pilot)
        await settle(app, pilot)
        assert asked == [8, 16, 12], "what a host says is of the draft, too"
