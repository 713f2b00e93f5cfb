"""The GPUs of the host under the cursor: in wide terminals, and nowhere else."""

from __future__ import annotations

from dtagent.protocol.telemetry import GpuHold

from dttui.fleet.states import EnvironmentState
from dttui.tui.gpu_lines import MOST_GPUS, gpu_lines
from tests.tui.composing import screen_of
from tests.tui.fake_fleet import environment, make_app, set_states, status
from tests.tui.looking import follow, screen_text, settle


def test_each_gpu_tells_how_busy_full_and_warm_it_is_and_who_has_it() -> None:
    hold = GpuHold("li", "bert", [1], since=0.0)
    known = status(environment("gpu1", 2), EnvironmentState.BUSY, 97, holds=[hold])
    head, first, second = gpu_lines(known).plain.splitlines()
    assert "busy" in head
    assert "NVIDIA A100-SXM4-80GB" in first
    assert "97%" in first
    assert "81G / 86G" in first
    assert "72°C" in first
    assert "371 W" in first
    assert first.endswith("free")
    assert "li: bert" in second


def test_a_host_of_which_nothing_is_known_has_no_lines_and_of_very_many_gpus_a_part_is_shown() -> None:
    assert not gpu_lines(status(environment("gpu1", 2), EnvironmentState.UNREACHABLE))
    lines = gpu_lines(status(environment("gpu1", 20), EnvironmentState.IDLE)).plain.splitlines()
    assert len(lines) == MOST_GPUS + 2
    assert "4 more" in lines[-1]


async def test_a_wide_screen_shows_the_gpus_of_the_host_under_the_cursor_and_a_click_ticks_one() -> None:
    app = make_app()
    async with app.run_test(size=(200, 60)) as pilot:
        set_states(app)
        await follow(app, pilot)
        await pilot.press("down", "down", "down")
        await pilot.pause()
        assert "li: bert-large-7, 3h" in screen_text(app)
        await pilot.click("#host-gpus", offset=(1, 3))
        await settle(app, pilot)
        assert [ids for _key, ids in screen_of(app).state.gpu_ids] == [(1,)]
        assert "GPU 1 of 2×V100" in screen_text(app)
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert "li: bert-large-7" not in screen_text(app)
