"""Messages that are stored and told again in another language, by themselves and as events of a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState, NodeStanding

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.errors import HostError, PreflightError
from dttui.i18n import Message, _, in_a_row, joined, msg, ngettext, nmsg, retell, sentences, set_language, told_now
from dttui.jobs import JobDirectory
from dttui.jobs.board import Board, Judgement
from dttui.jobs.checks import Check, cells_to_data
from dttui.jobs.event_log import EventLog
from dttui.spec.findings import error
from dttui.words import listed

pytestmark = pytest.mark.usefixtures("english")


def test_a_message_is_said_in_the_language_of_the_moment_and_again_in_another() -> None:
    inner = msg("rank {rank} on {host}", rank=3, host="gpu1")
    message = msg("{who} exited with code {code}", who=inner, code=1)
    assert message == "rank 3 on gpu1 exited with code 1"
    set_language("zh")
    assert retell(message.recipe) == "gpu1 上的 rank 3 以退出码 1 退出"


@pytest.mark.parametrize(("count", "text"), [(1, "checking 1 host"), (3, "checking 3 hosts")])
def test_the_form_of_a_message_follows_the_count(count: int, text: str) -> None:
    message = nmsg("checking {count} host", "checking {count} hosts", count)
    assert message == text
    assert retell(message.recipe) == text


def test_braces_in_a_value_are_only_text() -> None:
    assert retell(msg("{host}: {reason}", host="{0}", reason="{reason!r:>9} {").recipe) == "{0}: {reason!r:>9} {"


def test_an_event_is_read_in_the_language_of_its_reader() -> None:
    directory = jobs.create("job")
    log = EventLog(directory.events)
    log.add(EventKind.JOB_STATE, msg("finished in {seconds} s", seconds=41), data={"state": JobState.SUCCEEDED.value})
    log.add(EventKind.PROGRESS, "what a script said")
    assert [event.message for event in directory.read_events()] == ["finished in 41 s", "what a script said"]
    set_language("zh")
    assert [event.message for event in directory.read_events()] == ["用时 41 秒，已完成", "what a script said"]
    assert jobs.summarize(directory).reason == "用时 41 秒，已完成"


@pytest.mark.parametrize(
    "recipe",
    [
        "{}",
        '{"id": "{x}", "values": {}}',
        '{"id": "a", "values": 3}',
        '{"id": "{a.b}", "values": {"a": 1}}',
    ],
)
def test_an_event_with_a_spoilt_recipe_keeps_its_message(tmp_path: Path, recipe: str) -> None:
    directory = JobDirectory(tmp_path)
    directory.events.write_text(
        f'{{"seq": 0, "time": 1.0, "kind": "progress", "message": "as it was", "told": {recipe}}}\n'
    )
    assert [event.message for event in directory.read_events()] == ["as it was"]


def again(message: str) -> str:
    """Return a message as a reader gets it from a file."""
    assert isinstance(message, Message)
    return retell(json.loads(json.dumps(message.recipe)))


def test_any_message_that_was_filled_in_can_be_told_again() -> None:
    message = _("{host}: no answer within {seconds:g} s").format(host=Path("gpu1"), seconds=2.5)
    count = ngettext("{count} GPU in all", "{count} GPUs in all", 3).format(count=3)
    assert (message, count) == ("gpu1: no answer within 2.5 s", "3 GPUs in all")
    set_language("zh")
    assert again(message) == "gpu1：2.5 秒内没有回答"
    assert again(count) == "总计 3 个 GPU"
    assert again(_("no route")) == "无路由"


def test_text_before_and_after_a_message_stays_as_it_is() -> None:
    message = "gpu3 → gpu1:29517 " + _("no route") + " ({0})"
    assert message == "gpu3 → gpu1:29517 no route ({0})"
    set_language("zh")
    assert again(message) == "gpu3 → gpu1:29517 无路由 ({0})"


def test_sentences_are_parted_as_the_language_has_it() -> None:
    hints = [_("Look at that path on the host."), _("Look who made it, and remove it.")]
    told = sentences(hints)
    assert told == " ".join(hints)
    set_language("zh")
    assert told_now(told) == "".join(map(told_now, hints))
    assert sentences([]) == ""


def test_messages_in_a_row_are_each_told_again() -> None:
    row = joined(" · ", ["NCCL 2.27", _("no route"), _("driver {version}").format(version="570")])
    assert (row, joined(", ", ["a"]), joined(", ", [])) == ("NCCL 2.27 · no route · driver 570", "a", "")
    set_language("zh")
    assert again(row) == "NCCL 2.27 · 无路由 · 驱动 570"


def test_between_names_stands_what_the_language_has_there_and_again_in_another_one() -> None:
    zones = tuple(f"zone-{letter}" for letter in "ab")
    told = msg("training across zones may suffer from the latency between them: {zones}", zones=in_a_row(zones))
    assert told.endswith(": zone-a, zone-b")
    many = listed(["{a}", "b", "c"], 2)
    set_language("zh")
    assert retell(told.recipe).endswith("：zone-a、zone-b")
    assert isinstance(many, Message)
    assert retell(many.recipe).startswith("{a}、b")
    assert in_a_row([]) == ""
    assert retell(in_a_row(["a"]).recipe) == "a"


def test_a_number_that_no_file_holds_is_told_all_the_same() -> None:
    assert msg("{host} does not answer within {seconds:.0f} s", host="gpu1", seconds=float("inf")).endswith("inf s")


def test_an_error_of_a_host_and_a_finding_are_read_in_the_language_of_their_reader() -> None:
    directory = jobs.create("job")
    log = AttemptLog(EventLog(directory.events), 0)
    failure = HostError("gpu1", _("{host}: no answer within {seconds:g} s").format(host="gpu1", seconds=4))
    log.note("gpu1", NodeStanding.FAILED, failure.message)
    board = Board(("gpu1",))
    said = _("{host}: {python} has no {package}").format(host="gpu1", python="/py", package="torch")
    found = error("package-missing", "gpu1", said, _("Install the same version everywhere."))
    board.put("gpu1", {Check.SOFTWARE: Judgement(_("no route"), (found,)), Check.PATHS: Judgement("", (found,))}, 0.1)
    board.say([error("b", "x", msg("rolling back"))])
    for item in board.findings:
        log.tell(item)
    log.add(EventKind.PREFLIGHT, "", node="gpu1", data={"cells": cells_to_data(board.rows["gpu1"])})
    with pytest.raises(PreflightError) as refused:
        board.raise_errors()
    log.progress(refused.value.message)
    set_language("zh")
    node, finding, _other, cells, refusal = directory.read_events()
    assert node.message == "gpu1：4 秒内没有回答"
    assert finding.message == "gpu1：/py 中没有 torch"
    assert finding.data["hint"] == "请在各处安装相同的版本。"
    assert cells.data["cells"]["software"]["text"] == "无路由"
    assert refusal.message.startswith("gpu1：/py 中没有 torch")
    assert "and 1 more" not in refusal.message


def test_a_recipe_for_data_that_is_not_there_does_no_harm(tmp_path: Path) -> None:
    line = '{"seq": 0, "time": 1.0, "kind": "finding", "message": "m", "data": {"hint": "h"}, "told": {"data": %s}}\n'
    directory = JobDirectory(tmp_path)
    for spoilt in (
        '[[["a", "b"], {"id": "no route"}]]',
        '[[["hint"], 3]]',
        '{"hint": 1}',
        "[3]",
        '[[[], {"id": "x"}]]',
    ):
        directory.events.write_text(line % spoilt)
        assert [(event.message, event.data) for event in directory.read_events()] == [("m", {"hint": "h"})]


def test_a_message_is_told_in_the_language_chosen_since_and_other_text_stays() -> None:
    message, nothing, known = msg("no {x}", x=1), _(""), _("Training job created")
    set_language("zh")
    assert told_now(known) == "训练任务创建成功"
    assert told_now(message) == "no 1"
    assert told_now(nothing) == ""
    assert told_now("Training job created") == "Training job created"
