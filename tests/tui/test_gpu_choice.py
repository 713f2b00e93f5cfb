"""GPUs of a host that are chosen singly: by the dialog, by a click, shown on the list, and saved."""

from __future__ import annotations

from dtagent.protocol.telemetry import GpuHold
from textual.widgets import Button

from dttui.fleet.states import EnvironmentState
from dttui.spec.models import GpuRequest, Node, NodeResources
from dttui.tui.gpu_lines import KnownGpu, gpu_lines, known_gpus, tick_head, tick_line
from dttui.tui.rows import GpusAsked, environment_row
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.gpu_dialog import GpuDialog, GpuList, gpus_to_choose, why_none
from tests.tui.composing import SIZE, lines_of, screen_of
from tests.tui.fake_fleet import environment, job, make_app, status
from tests.tui.looking import follow, screen_text, settle, toasts, until

A, C = "pytorch-dev-env", "nlp-research-lab"
IDLE = EnvironmentState.IDLE


def named(key: str, *ids: int) -> Node:
    return Node(id=key, resources=NodeResources(gpu=GpuRequest(ids=ids)))


def test_each_gpu_that_can_be_chosen_tells_what_it_does_within_80_columns() -> None:
    known = known_gpus(status(environment("gpu1", 2), EnvironmentState.BUSY, 97))
    line = tick_line(known[1], is_ticked=True, names=True)
    assert line.plain.split() == ["☑", "1", "A100", *line.plain.split()[3:]]
    assert "97%" in line.plain
    assert "81G / 86G" in line.plain
    assert line.plain.endswith("free")
    assert line.cell_length <= 68
    assert tick_line(known[1], is_ticked=False, names=False).plain.startswith("☐   1 ")
    assert tick_line(KnownGpu(0), is_ticked=False, names=False).plain.endswith("no reading")
    head = tick_head(names=True).plain
    assert head.index("used by") == line.plain.index("free")
    assert head.index("GPU") == line.plain.index("A100")


def test_what_the_inventory_says_counts_until_the_host_has_told() -> None:
    assert [gpu.index for gpu in gpus_to_choose(status(environment("a", 3), EnvironmentState.UNREACHABLE))] == [0, 1, 2]
    for gpus, simulated, state, why in (
        (2, True, IDLE, "Simulated GPUs have no numbers: + and - say how many are used."),
        (0, False, IDLE, "a has no GPU."),
        (0, False, EnvironmentState.UNREACHABLE, "Nothing is known of the GPUs of a yet."),
    ):
        seen = status(environment("a", gpus, simulated=simulated), state)
        assert gpus_to_choose(seen) == []
        assert why_none(seen) == why


def test_the_row_and_the_lines_beside_the_list_show_which_are_chosen() -> None:
    seen = status(environment("gpu1", 4), IDLE)
    assert environment_row(seen, GpusAsked(2, (1, 3))).gpus == "GPU 1,3 of 4×A100-80GB"
    lines = gpu_lines(seen, (1, 3)).plain.splitlines()
    assert [line[0] for line in lines[1:]] == ["☐", "☑", "☐", "☑"]
    assert "☐" not in gpu_lines(seen).plain


async def test_gpus_are_ticked_in_the_dialog_and_go_into_the_job() -> None:
    """By keys: those that are free, one less; then by the mouse, and back to any by `n`."""
    app = make_app(draft=job(A))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        hold = GpuHold("li", "bert-large-7", [0, 1, 5], since=0.0)
        known = app.fleet.statuses[C].environment
        app.fleet.statuses[C] = status(known, EnvironmentState.BUSY, 38, holds=[hold])
        await follow(app, pilot)
        await pilot.press("home", "down", "down", "G")
        await until(pilot, lambda: isinstance(app.screen, GpuDialog), "the GPUs are offered")
        assert screen_text(app).count("li: bert-large-7") == 3
        await pilot.press("a", "end", "space", "enter")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "they are taken")
        await settle(app, pilot)
        assert screen_of(app).state.gpu_ids == ((C, (2, 3, 4, 6)),)
        assert "GPU 2–4,6 of 8×A100" in lines_of(app)
        assert screen_of(app).state.to_job().cluster.nodes == (job(A).cluster.nodes[0], named(C, 2, 3, 4, 6))
        await pilot.press("G")
        await until(pilot, lambda: isinstance(app.screen, GpuDialog), "they are offered again")
        await pilot.click(GpuList, offset=(4, 0))
        await until(pilot, lambda: "☑   0" in screen_text(app), "the first is ticked by the mouse")
        assert str(app.screen.query_one("#ok", Button).label) == "Use 5 GPUs"
        await pilot.press("n", "enter")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "any are taken")
        await settle(app, pilot)
        assert (screen_of(app).state.gpu_counts, screen_of(app).state.gpu_ids) == (((C, 4),), ())
        await pilot.press("G")
        await until(pilot, lambda: isinstance(app.screen, GpuDialog), "they are offered once more")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "it is left as it was")
        assert screen_of(app).state.gpu_counts == ((C, 4),)
        await pilot.press("end", "G")
        await settle(app, pilot)
        assert "Simulated GPUs have no numbers" in toasts(app)[-1]
