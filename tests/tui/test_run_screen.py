"""The run screen over job directories as a controller writes them, to each kind of end."""

from __future__ import annotations

import re
from pathlib import Path

from dtagent.protocol.events import JobState, Metric
from textual.color import Color
from textual.widgets import Select, TabbedContent

from dttui.i18n import msg, set_language
from dttui.jobs.disturbances import APART
from dttui.planning.planner import plan as make_plan
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.run import RunScreen
from dttui.tui.widgets.node_grid import NodeGrid
from dttui.tui.widgets.prose import Prose
from tests.tui import job_files
from tests.tui.catalogue import compile_catalogues
from tests.tui.controllers import controller
from tests.tui.fake_fleet import job, make_app, make_inventory
from tests.tui.job_files import JobWriter
from tests.tui.looking import grid, labels_of, log_of, look, screen_text, settle, text_of, until
from tests.tui.screens import CHOSEN

SIZE = (120, 40)


async def test_a_job_is_followed_live_to_succeeded() -> None:
    inventory = make_inventory()
    writer = JobWriter(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        assert "PENDING" in text_of(app, "#title-left")
        assert "no metrics yet" in screen_text(app)
        writer.state(JobState.LAUNCHING, "starting 14 ranks")
        writer.nodes("prepared")
        await look(app, pilot)
        assert "LAUNCHING" in text_of(app, "#title-left")
        assert grid(app).count("prepared") == 3
        writer.nodes("running")
        writer.state(JobState.RUNNING, "all ranks run")
        writer.samples(97)
        writer.metrics(120)
        await look(app, pilot)
        assert "● RUNNING  attempt 0" in text_of(app, "#title-left")
        assert "step 120" in text_of(app, "#title-right")
        assert "★ pytorch-dev-env" in grid(app)
        assert "ranks 6–13" in grid(app)
        assert re.search(r" 0 ━+ +97% +▇ ━+╸?─* +73G 60°C 390W", grid(app))
        assert grid(app).splitlines()[0].split() == ["util", "mem"] * 2, "a heading over each column of cells"
        assert text_of(app, "#run-places") == ""
        writer.nodes("ended")
        writer.outcome(JobState.SUCCEEDED, "finished in 42 s", 0)
        await look(app, pilot)
        assert text_of(app, "#run-status") == "✓ succeeded · finished in 42 s · exit code 0"
        assert app.screen.query_one(TabbedContent).active == "loss"
        assert "%" not in grid(app), "the last readings are not shown as if they were of now"
        assert "util" not in grid(app)
        assert "✓ ended  ranks 6–13" in grid(app)
        logs, checkpoints = text_of(app, "#run-places").replace("\xa0", " ").splitlines()
        assert logs == f"logs: {writer.directory.path}"
        assert checkpoints.startswith("checkpoints: pytorch-dev-env:/var/tmp/dtagent-1000/jobs/")
        assert checkpoints.endswith("/0/checkpoints and 2 more nodes")
        assert text_of(app, "#run-events").count("SUCCEEDED") == 1
        assert text_of(app, "#run-events").count("finished in 42 s") == 1
        await pilot.press("x")
        await settle(app, pilot)
        assert isinstance(app.screen, RunScreen), "what is over cannot be stopped"


async def test_a_job_that_is_started_again_says_when_and_shows_who_takes_part_now() -> None:
    inventory = make_inventory()
    one, two, *_others = CHOSEN
    writer = JobWriter(job(one, two), inventory)
    writer.watch()
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        writer.nodes("running")
        writer.state(JobState.RUNNING, "all ranks run")
        await look(app, pilot)
        spare = next(item.name for item in inventory.environments if item.name not in CHOSEN)
        why = msg(
            "{why}; starting again at {time}", why=msg("{hosts} could not be reached", hosts=two), time="12:34:56"
        )
        writer.restart(why, make_plan(job(one, spare), inventory))
        await look(app, pilot)
        assert "↻ RESTARTING  attempt 0" in text_of(app, "#title-left")
        assert f"{two} could not be reached; starting again at 12:34:56" in screen_text(app)
        writer.second_attempt(JobState.PREFLIGHT, "checking 2 hosts")
        await look(app, pilot)
        assert "attempt 1" in text_of(app, "#title-left")
        assert spare in grid(app)
        assert two not in grid(app)


async def test_losses_without_a_step_are_drawn_by_epoch_or_in_their_order() -> None:
    inventory = make_inventory()
    for epochs, title in (((0.5, 1.0, 1.5), "loss by epoch"), ((None,) * 3, "loss, the last 3 reports")):
        writer = JobWriter(job(*CHOSEN), inventory)
        writer.state(JobState.RUNNING, "all ranks run")
        app = make_app(inventory, attach=writer.directory)
        async with app.run_test(size=SIZE) as pilot:
            writer.report(Metric(0, epoch=0.1))
            await look(app, pilot)
            assert "no loss and no speed that can be drawn" in screen_text(app)
            for epoch in epochs:
                writer.report(Metric(0, loss=2.5, epoch=epoch, extra={"steps_per_s": 3.0}))
            await look(app, pilot)
            assert "yet." not in screen_text(app)
            assert title in screen_text(app)
            assert title.replace("loss", "steps/s") in screen_text(app)
            assert "steps/s 3" in text_of(app, "#title-right")


async def test_the_share_of_communication_is_shown_beside_the_newest_report_and_drawn() -> None:
    inventory = make_inventory()
    writer = JobWriter(job(*CHOSEN), inventory)
    writer.state(JobState.RUNNING, "all ranks run")
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        for step in (1, 2):
            writer.report(Metric(0, step, loss=2.5))
            writer.report(Metric(0, communication_percent=20.0 + step))
        writer.report(Metric(1, communication_percent=40.0))
        await look(app, pilot)
        assert "communication 31%" in text_of(app, "#title-right")
        assert "communication (%) by step" in screen_text(app)


async def test_what_gpus_do_is_drawn_by_minute_and_leaves_loss_and_speed_the_room_of_a_narrow_screen() -> None:
    inventory = make_inventory()
    writer = JobWriter(job(*CHOSEN), inventory)
    writer.nodes("running")
    writer.state(JobState.RUNNING, "all ranks run")
    writer.samples(40, ago_s=240)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=(80, 24)) as pilot:
        await look(app, pilot)
        assert "GPU utilisation by minute" in screen_text(app)
        assert "has reported no metrics" in screen_text(app), "what its ranks report is told all the same"
        writer.samples(97, ago_s=120)
        writer.metrics(120)
        await look(app, pilot)
        assert "loss by step" in screen_text(app)
        assert "tok/s by step" in screen_text(app)
        assert "GPU utilisation" not in screen_text(app)
        await pilot.press("1", "down")
        await until(pilot, lambda: "GPU utilisation by minute" in screen_text(app), "the third is scrolled to")
        assert "▸ GPU utilisation" in screen_text(app)
        await pilot.resize_terminal(200, 60)
        await settle(app, pilot)
        measures = (
            "loss by step",
            "tok/s by step",
            "GPU utilisation",
            "memory of all GPUs",
            "hottest GPU",
            "power of all",
        )
        assert all(text in screen_text(app) for text in measures)


async def test_logs_can_be_read_by_node_and_stream_and_follow_their_end() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("2")
        lines = log_of(app)
        assert any(line.startswith("       0 out │ step  200") for line in lines)
        assert any("rank 1 is ready" in line for line in lines)
        app.screen.query_one("#log-node", Select).value = "nlp-research-lab"
        await look(app, pilot)
        app.screen.query_one("#log-stream", Select).value = "13.err"
        await look(app, pilot)
        assert log_of(app) == []
        assert "Nothing has been written yet" in screen_text(app)
        writer.logs("nlp-research-lab", "13.err", "first", "second")
        await look(app, pilot)
        assert log_of(app) == ["first", "second"]


async def test_a_process_that_serves_the_ranks_has_logs_under_its_own_name() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN, framework="horovod"), inventory)
    (served,) = (process.name for process in writer.plan.nodes[0].processes if process.is_service)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("2")
        stream = app.screen.query_one("#log-stream", Select)
        offered = labels_of(stream)
        assert offered[-2:] == ["rendezvous output", "rendezvous errors"]
        assert "launcher output" not in offered
        assert offered[0] == "all ranks", "no line asks to choose"
        assert labels_of(app.screen.query_one("#log-node", Select))[0] == "pytorch-dev-env"
        writer.logs("pytorch-dev-env", f"{served}.err", "14 ranks have met")
        stream.value = f"{served}.err"
        await look(app, pilot)
        assert log_of(app) == ["14 ranks have met"]
        app.screen.query_one("#log-node", Select).value = "llm-training-env"
        await look(app, pilot)
        assert not any("rendezvous" in label for label in labels_of(stream))


async def test_a_state_that_only_another_version_knows_is_shown_as_it_is_and_is_no_silence() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    writer.node("llm-training-env", "migrating", "to another host")
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        assert "? migrating" in grid(app)
        assert "no word" not in screen_text(app)
        await pilot.press("3")
        await look(app, pilot)
        assert "? llm-training-env  migrating  to another host" in text_of(app, "#run-events")


async def test_hostile_logs_events_and_errors_are_shown_as_plain_text() -> None:
    hostile = "[/foo]\x1b]52;c;ZXZpbA==\x07 [bold]b\x1b[2Ja\x9b31md\u202e"
    inventory = make_inventory()
    writer = JobWriter(job(*CHOSEN), inventory)
    writer.state(JobState.RUNNING, hostile)
    writer.nodes("lost", hostile)
    writer.logs("pytorch-dev-env", "0.out", hostile, "progress 1%\rprogress 2%\r")
    writer.rank_failed(
        "pytorch-dev-env", 1, hostile, exit_code=None, signal=11, error=hostile, traceback=hostile, tail=[hostile]
    )
    writer.outcome(JobState.FAILED, hostile, 100)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        for tab in "1234":
            await pilot.press(tab)
            await settle(app, pilot)
            assert not set(screen_text(app)) & {"\x1b", "\x07", "\x9b", "\u202e"}
        assert "[/foo] [bold]bad" in text_of(app, "#run-why")
        assert "signal SIGSEGV" in text_of(app, "#run-why")
        lines = log_of(app)
        assert "       0 out │ [/foo] [bold]bad" in lines
        assert "       0 out │ progress 2%" in lines


async def test_escape_goes_back_and_leaves_the_job_alone() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    before = writer.directory.events.read_bytes()
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("escape")
        await settle(app, pilot)
        assert isinstance(app.screen, ComposeScreen)
    assert writer.directory.events.read_bytes() == before


async def test_a_silent_host_is_told_in_the_headline_and_in_its_row_while_others_go_on() -> None:
    inventory = make_inventory()
    writer = job_files.silent(job(*CHOSEN), inventory)
    async with controller(writer):
        app = make_app(inventory, attach=writer.directory)
        async with app.run_test(size=SIZE) as pilot:
            await look(app, pilot)
            assert re.fullmatch(r"⚠ no word from llm-training-env for \d\d s", text_of(app, "#run-status"))
            rows = {text.split()[0]: text for text in grid(app).splitlines() if "ranks" in text}
            assert re.search(r"\? unknown  ranks 2–5 +no word for \d\ds$", rows["llm-training-env"])
            assert "97%" in rows["nlp-research-lab"]
            writer.node("llm-training-env", "running")
            await look(app, pilot)
            assert text_of(app, "#run-status") == "all 14 ranks run"
            assert "no word" not in grid(app)


async def test_a_host_without_an_agent_is_a_warning_and_none_of_its_old_readings_is_shown_as_new() -> None:
    inventory = make_inventory()
    writer = job_files.agent_gone(job(*CHOSEN), inventory)
    async with controller(writer):
        app = make_app(inventory, attach=writer.directory)
        async with app.run_test(size=SIZE) as pilot:
            await look(app, pilot)
            told = "⚠ the agent of llm-training-env is gone: h, then d (deploy) on llm-training-env brings it back"
            assert text_of(app, "#run-status") == told
            rows = {text.split()[0]: text for text in grid(app).splitlines() if "ranks" in text}
            assert re.search(r"\? agent gone  ranks 2–5 *$", rows["llm-training-env"])
            assert "97%" in rows["nlp-research-lab"]
            assert "\n  2" not in grid(app)
            writer.node("llm-training-env", "running")
            await look(app, pilot)
            rows = {text.split()[0]: text for text in grid(app).splitlines() if "ranks" in text}
            assert "97%" in rows["llm-training-env"]


async def test_no_line_of_an_event_but_its_first_begins_at_the_margin() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    writer.finding("warning", "x" * 40 + " 06:35:00  ✓ SUCCEEDED  finished in 9 s" * 8)
    async with controller(writer):
        app = make_app(inventory, attach=writer.directory)
        for size in ((80, 24), (120, 40), (200, 60)):
            async with app.run_test(size=size) as pilot:
                await look(app, pilot)
                app.screen.query_one(TabbedContent).active = "events"
                await settle(app, pilot)
                shown = app.screen.query_one("#run-events", Prose).render().plain.splitlines()
                theirs = [text for text in shown if "SUCCEEDED" in text]
                assert len(theirs) > 1
                assert [text for text in theirs if not text.startswith(" " * 10)] in ([], theirs[:1])
            app = make_app(inventory, attach=writer.directory)


async def test_who_has_not_come_to_the_rendezvous_and_why_is_told_until_all_have_come() -> None:
    inventory = make_inventory()
    writer = job_files.waiting(job(*CHOSEN), inventory)
    async with controller(writer):
        app = make_app(inventory, attach=writer.directory)
        async with app.run_test(size=SIZE) as pilot:
            await look(app, pilot)
            assert "RENDEZVOUS" in text_of(app, "#title-left")
            told = "1 of 3 nodes have joined after 40 s; waiting for llm-training-env"
            assert text_of(app, "#run-status") == told
            lines = grid(app).splitlines()
            first, second, third = (next(text for text in lines if name in text and "ranks" in text) for name in CHOSEN)
            assert first.endswith("has joined, and waits")
            assert second.endswith("has not joined · No route to host (errno: 113), 10.0.0.11:29517")
            assert third.endswith("does not say whether it has joined")
            writer.progress("everybody has come", missing={})
            writer.state(JobState.RUNNING, "all 14 ranks run")
            await look(app, pilot)
            assert "joined" not in screen_text(app)
            assert text_of(app, "#run-status") == "all 14 ranks run"


async def test_a_stop_tells_where_it_had_to_kill_and_an_old_job_speaks_the_language_of_the_reader() -> None:
    inventory = make_inventory()
    writer = job_files.cancelled(job(*CHOSEN), inventory)
    compile_catalogues()
    for language, status, note in (
        (
            "en",
            "stopped on request; killed on nlp-research-lab",
            "ranks 0–1   ended by itself after SIGTERM",
        ),
        ("zh", "应要求停止；在 nlp-research-lab 上被强制结束", "收到 SIGTERM 后自行结束"),
    ):
        set_language(language)
        app = make_app(inventory, attach=writer.directory)
        async with app.run_test(size=(80, 24)) as pilot:
            await look(app, pilot)
            assert status in text_of(app, "#run-status")
            assert note in grid(app)
            assert status in text_of(app, "#run-events")


async def test_a_job_directory_without_a_plan_yet_is_no_error(tmp_path: Path) -> None:
    inventory = make_inventory()
    writer = JobWriter(job(*CHOSEN), inventory)
    writer.directory.plan.unlink()
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        assert writer.job_id in text_of(app, "#title-left")
        writer.directory.plan.write_text(writer.plan.model_dump_json())
        await look(app, pilot)
        assert "gpt-small" in text_of(app, "#title-left")
        assert "nlp-research-lab" in grid(app)


async def test_a_thousand_ranks_are_shown_at_every_size() -> None:
    from dttui.inventory.models import Inventory
    from tests.tui.fake_fleet import environment

    inventory = Inventory(environments=tuple(environment(f"node-{number:03d}", 8) for number in range(128)))
    writer = job_files.running(job(*(item.name for item in inventory.environments)), inventory)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=(80, 24)) as pilot:
        await look(app, pilot)
        assert "ranks 0–7" in screen_text(app)
        nodes = app.screen.query_one(NodeGrid)
        nodes.focus()
        await pilot.press("end")
        await settle(app, pilot)
        assert "1023" in screen_text(app)


async def test_events_begin_at_the_newest_and_follow_until_a_person_scrolls_up() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    for number in range(40):
        writer.progress(f"said {number}")
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=(80, 24)) as pilot:
        await look(app, pilot)
        await pilot.press("3")
        await settle(app, pilot)
        assert "said 39" in screen_text(app)
        writer.progress("said more")
        await look(app, pilot)
        assert "said more" in screen_text(app)
        await pilot.press("up", "up", "up")
        await settle(app, pilot)
        writer.progress("said later")
        writer.progress("said last")
        await look(app, pilot)
        assert "said 36" in screen_text(app)
        assert "said last" not in screen_text(app).replace("said later", "")
        await pilot.press("end")
        await settle(app, pilot)
        writer.progress("said after all")
        await look(app, pilot)
        assert "said after all" in screen_text(app)


async def test_a_few_events_stand_at_the_top() -> None:
    inventory = make_inventory()
    writer = JobWriter(job("pytorch-dev-env"), inventory)
    writer.progress("said first")
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("3")
        await settle(app, pilot)
        scroll = app.screen.query_one("#run-event-scroll")
        assert "said first" in screen_text(app).splitlines()[scroll.region.y]


async def test_the_preflight_is_on_top_while_it_goes_on_and_stays_behind_its_tab() -> None:
    inventory = make_inventory()
    writer = job_files.checked(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=(80, 24)) as pilot:
        await look(app, pilot)
        assert app.screen.query_one(TabbedContent).active == "checks"
        shown = screen_text(app)
        assert "reach agent torch" in shown
        assert "✗ 4.0" in shown
        assert "master-unreachable: llm-training-env → pytorch-dev-env:29517 timed out" in shown
        assert "→ pytorch-dev-env eth0 0.12 ms" in shown
        writer.state(JobState.LAUNCHING, "preparing 3 hosts")
        await look(app, pilot)
        assert app.screen.query_one(TabbedContent).active == "loss"
        await pilot.press("5")
        await settle(app, pilot)
        assert "✗ 4.0" in screen_text(app)


async def test_a_tab_that_was_chosen_during_the_preflight_stays() -> None:
    inventory = make_inventory()
    writer = job_files.checked(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=writer.directory)
    async with app.run_test(size=SIZE) as pilot:
        await look(app, pilot)
        await pilot.press("3")
        await settle(app, pilot)
        writer.state(JobState.LAUNCHING, "preparing 3 hosts")
        await look(app, pilot)
        assert app.screen.query_one(TabbedContent).active == "events"


async def test_ranks_that_train_apart_are_a_warning_while_they_run_and_in_a_good_end() -> None:
    inventory = make_inventory()
    writer = job_files.running(job(*CHOSEN), inventory)
    app = make_app(inventory, attach=writer.directory)
    async with controller(writer), app.run_test(size=SIZE) as pilot:
        writer.finding("warning", "they do not train together", APART)
        await look(app, pilot)
        assert text_of(app, "#run-status") == "⚠ they do not train together"
        writer.outcome(JobState.SUCCEEDED, "they do not train together. Why", 0)
        await look(app, pilot)
        assert text_of(app, "#run-status") == "⚠ succeeded · they do not train together. Why · exit code 0"
        assert "⚠ SUCCEEDED" in screen_text(app)
        assert "✓ SUCCEEDED" not in screen_text(app)
        shown = app.screen.query_one("#run-status").styles.background
        assert shown == Color.parse(app.theme_variables["state-unknown"])
