"""The run screen of a job that failed: why, at which node and rank, and what to try."""

from __future__ import annotations

import threading

import pytest
from dtagent.protocol.events import JobState
from textual.widgets import Select, TabbedContent

from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.models import Diagnosis, Evidence
from dttui.tui.widgets.metric_plots import MetricPlots
from tests.tui import job_files
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.job_files import JobWriter
from tests.tui.looking import grid, log_of, look, screen_text, settle, text_of, until
from tests.tui.screens import CHOSEN

SIZE = (120, 40)


async def test_a_failure_opens_why_with_node_rank_cause_and_what_to_try() -> None:
    inventory = make_inventory()
    app = make_app(inventory, attach=job_files.failed(job(*CHOSEN), inventory).directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        assert app.screen.query_one(TabbedContent).active == "why"
        why = text_of(app, "#run-why")
        assert "node nlp-research-lab    rank 13    ending exit code 1" in why
        assert 'line 41, in step\n    raise ValueError(f"batch {index} has no samples")' in why
        assert "rank 13: reading shard 118" in why
        assert why.count("Traceback (most recent call last)") == 1, "the tail does not repeat the traceback"
        assert "What to try\n• " in why
        assert "✗ failed · rank 13 on nlp-research-lab exited with code 1 · exit code 100" in text_of(
            app, "#run-status"
        )
        assert "13 ⚠ failed" in grid(app)
        await pilot.press("1", "4")
        assert app.screen.query_one(TabbedContent).active == "why"


async def test_a_launch_that_failed_before_any_rank_says_why_too() -> None:
    inventory = make_inventory()
    writer = JobWriter(job(*CHOSEN), inventory)
    writer.node("llm-training-env", "failed", "no room left on the disk")
    writer.outcome(JobState.FAILED, "llm-training-env refused: no room left on the disk", 5)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        why = text_of(app, "#run-why")
        assert "llm-training-env refused" in why
        assert "Nothing is left running" in why
        assert "✗ no room left on the disk" in grid(app)


async def test_the_logs_open_at_what_failed_unless_a_person_has_chosen_before() -> None:
    inventory = make_inventory()
    writer = job_files.failed(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("2")
        await look(app, pilot)
        assert app.screen.query_one("#log-node", Select).value == "nlp-research-lab"
        assert app.screen.query_one("#log-stream", Select).value == "13.err"
        assert "ValueError: batch 118 has no samples" in log_of(app)
    again = job_files.running(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=again.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        app.screen.query_one("#log-stream", Select).value = "1.out"
        await look(app, pilot)
        again.rank_failed("nlp-research-lab", 13, "rank 13 failed", exit_code=1)
        await look(app, pilot)
        assert app.screen.query_one("#log-stream", Select).value == "1.out"


async def test_the_reason_is_found_out_beside_the_screen_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    may_go_on, running, most = threading.Event(), [], []

    def slow(evidence: Evidence) -> Diagnosis:
        running.append(evidence)
        most.append(len(running))
        assert may_go_on.wait(60)
        running.pop()
        return diagnose(evidence)

    monkeypatch.setattr("dttui.diagnosis.diagnose.diagnose", slow)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: running, "the reason is being found out")
        node = writer.plan.nodes[-1]
        writer.rank_failed(node.name, node.ranks[-1], "rank 13 failed", exit_code=1)
        writer.outcome(JobState.FAILED, "rank 13 failed", 100)
        await until(pilot, lambda: "FAILED" in text_of(app, "#title-left"), "the screen goes on meanwhile")
        assert "failed" not in text_of(app, "#run-why")
        may_go_on.set()
        await until(pilot, lambda: "✗ rank 13 failed" in text_of(app, "#run-why"), "the newer reason is told")
        assert "so far" not in text_of(app, "#run-why")
        assert max(most) == 1


async def test_why_takes_most_of_a_short_screen_and_the_keys_scroll_it_at_once() -> None:
    inventory = make_inventory()
    app = make_app(inventory, attach=job_files.failed(job(*CHOSEN), inventory).directory)
    async with app.run_test(size=(80, 24)) as pilot:
        await look(app, pilot)
        scroll = app.screen.query_one("#run-why-scroll")
        assert app.focused is scroll
        assert scroll.size.height >= 15
        assert scroll.show_vertical_scrollbar
        for key in ("down", "pagedown", "end"):
            scroll.scroll_home(animate=False)
            await settle(app, pilot)
            assert scroll.scroll_y == 0
            await pilot.press(key)
            await settle(app, pilot)
            assert scroll.scroll_y > 0, key
        assert "checkpoints:" in screen_text(app), "the places follow what is to be read first"
        await pilot.press("1")
        await settle(app, pilot)
        assert app.focused is app.screen.query_one(MetricPlots)
        assert app.screen.query_one("#run-places").display
        for key, name in (("2", "#log"), ("3", "#run-event-scroll"), ("4", "#run-why-scroll")):
            await pilot.press(key)
            await settle(app, pilot)
            assert app.focused is app.screen.query_one(name)


async def test_why_names_the_errors_of_a_refused_launch_and_not_its_warnings() -> None:
    inventory = make_inventory()
    writer = JobWriter(job(*CHOSEN), inventory)
    writer.finding("warning", "lab1 is in use: CPU 98%")
    writer.finding("error", "lab2 has no torch")
    writer.outcome(JobState.FAILED, "preflight refused the launch", 4)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        why = text_of(app, "#run-why")
        assert "✗ lab2 has no torch" in why
        assert "lab1" not in why
        assert "⚠ lab1 is in use: CPU 98%" in text_of(app, "#run-events")


async def test_a_hang_is_told_on_top_and_under_why_for_as_long_as_it_lasts() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    writer.watch()
    app = make_app(inventory, attach=writer.directory)
    said = "no step and no line of any rank for 312 s: rank 9 on nlp-research-lab is at data.py:31"
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        writer.hang("warning", said)
        await look(app, pilot)
        assert text_of(app, "#run-status") == f"⚠ {said}"
        await until(pilot, lambda: said in text_of(app, "#run-why"), "why")
        writer.hang("info", "after 40 s the ranks go on")
        await look(app, pilot)
        assert said not in text_of(app, "#run-status")
        await until(pilot, lambda: said not in text_of(app, "#run-why"), "why")


async def test_an_unhealthy_host_is_told_on_top_below_its_name_and_under_why_for_as_long_as_it_lasts() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    writer.watch()
    app = make_app(inventory, attach=writer.directory)
    what = "check exited with 3: no batch"
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        writer.health("warning", "llm-training-env", what)
        await look(app, pilot)
        assert text_of(app, "#run-status") == f"⚠ llm-training-env is unhealthy: {what}"
        assert f": {what}" in grid(app)
        assert "✗ unhealthy for 3m" in grid(app)
        await until(pilot, lambda: what in text_of(app, "#run-why"), "why")
        writer.health("info", "llm-training-env")
        await look(app, pilot)
        assert what not in text_of(app, "#run-status") + grid(app)
        await until(pilot, lambda: what not in text_of(app, "#run-why"), "why")
