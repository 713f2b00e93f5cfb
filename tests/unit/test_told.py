"""Messages that are stored and told again in another language, by themselves and as events of a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState

from dttui.i18n import ntold, retell, set_language, told
from dttui.services import jobs
from dttui.services.jobs import EventLog, JobDirectory
from tests.tui.catalogue import compile_catalogues


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    compile_catalogues()
    set_language("en")
    yield
    set_language("en")


def test_a_message_is_said_in_the_language_of_the_moment_and_again_in_another() -> None:
    inner = told("rank {rank} on {host}", rank=3, host="gpu1")
    message = told("{who} exited with code {code}", who=inner, code=1)
    assert message == "rank 3 on gpu1 exited with code 1"
    set_language("zh")
    assert retell(message.recipe) == "gpu1 上的 rank 3 以退出码 1 退出"


@pytest.mark.parametrize(("count", "text"), [(1, "checking 1 host"), (3, "checking 3 hosts")])
def test_the_form_of_a_message_follows_the_count(count: int, text: str) -> None:
    message = ntold("checking {count} host", "checking {count} hosts", count)
    assert message == text
    assert retell(message.recipe) == text


def test_braces_in_a_value_are_only_text() -> None:
    assert retell(told("{host}: {reason}", host="{0}", reason="{reason!r:>9} {").recipe) == "{0}: {reason!r:>9} {"


def test_an_event_is_read_in_the_language_of_its_reader() -> None:
    directory = jobs.create("job")
    log = EventLog(directory)
    log.add(EventKind.JOB_STATE, told("finished in {seconds} s", seconds=41), data={"state": JobState.SUCCEEDED.value})
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
