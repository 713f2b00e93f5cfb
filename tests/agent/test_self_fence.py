"""An attempt that ends by itself where nobody asks after it any more."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.locations import AttemptFiles
from dtagent.supervision.self_fence import FIRST_WORD_S, SelfFence, note_word

from tests.agent.conversation import Conversation, processes_with
from tests.clock import Clock
from tests.waiting import wait_until


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(tmp_path / "root") as conversation:
        yield conversation


def pass_time(clock: Clock, fence: SelfFence, seconds: float) -> None:
    clock.now_s += seconds
    fence.look()


def say_word(files: AttemptFiles, ns: int) -> None:
    """Note a word, at a time that the host's clock may show at any moment."""
    note_word(files)
    os.utime(files.heard, ns=(ns, ns))


def ask(agent: Conversation, job_id: str) -> None:
    agent.call("follow", {"key": {"job_id": job_id, "attempt": 0}, "stamp": "", "offsets": {}, "wait_s": 0})


def run(agent: Conversation, job_id: str, command: str, limit_s: float | None) -> Path:
    directory = Path(agent.prepare(job_id)["directory"])
    agent.start(job_id, [["sh", "-c", command]], self_fence_s=limit_s)
    out = directory / "logs" / "0.out"
    wait_until(lambda: out.exists() and b"began" in out.read_bytes(), "the rank to run")
    return directory


def test_the_greeting_says_that_an_attempt_can_end_by_itself(agent: Conversation) -> None:
    assert agent.call("hello", {"versions": [1]})["fences_itself"] is True


def test_silence_counts_from_the_last_word_whatever_the_hosts_clock_shows(tmp_path: Path, clock: Clock) -> None:
    files = AttemptFiles(tmp_path)
    fence = SelfFence(files, 10, clock)
    say_word(files, 5 * 10**9)
    pass_time(clock, fence, 9)
    pass_time(clock, fence, 9)
    assert not fence.is_due
    say_word(files, 4 * 10**9)  # The clock was put back.
    pass_time(clock, fence, 9)
    pass_time(clock, fence, 10)
    assert not fence.is_due
    pass_time(clock, fence, 0.1)
    assert fence.is_due


def test_the_first_word_may_take_longer(tmp_path: Path, clock: Clock) -> None:
    fence = SelfFence(AttemptFiles(tmp_path), 10, clock)
    pass_time(clock, fence, FIRST_WORD_S)
    assert not fence.is_due
    pass_time(clock, fence, 1)
    assert fence.is_due


def test_a_record_that_is_removed_is_made_anew_and_nothing_ends_for_it(tmp_path: Path, clock: Clock) -> None:
    files = AttemptFiles(tmp_path)
    fence = SelfFence(files, 10, clock)
    say_word(files, 1)
    pass_time(clock, fence, 1)
    files.heard.unlink()
    note_word(files)
    assert not files.heard.exists()
    pass_time(clock, fence, 11)
    assert not fence.is_due
    pass_time(clock, fence, 11)
    assert fence.is_due


def test_without_a_limit_there_is_no_record_and_no_end(tmp_path: Path, clock: Clock) -> None:
    files = AttemptFiles(tmp_path)
    fence = SelfFence(files, None, clock)
    note_word(files)
    pass_time(clock, fence, 10**9)
    assert not fence.is_due
    assert not files.heard.exists()


def test_an_attempt_that_nobody_asks_after_ends_and_says_so(agent: Conversation) -> None:
    run(agent, "quiet", "echo began; exec sleep 300", 1)
    ask(agent, "quiet")
    status = agent.end_of("quiet")  # To ask for its status is not to follow it.
    assert status["state"] == "ended"
    assert status["reason_notice"]["code"] == "self-fenced"
    assert [item["signal"] for item in status["exits"]] == [signal.SIGTERM]
    assert processes_with("DTTUI_JOB_ID=quiet") == []


def test_a_rank_that_ignores_term_is_killed(agent: Conversation) -> None:
    run(agent, "deaf", "trap '' TERM; echo began; while :; do sleep 0.1; done", 1)
    ask(agent, "deaf")
    assert [item["signal"] for item in agent.end_of("deaf")["exits"]] == [signal.SIGKILL]


def test_an_attempt_whose_daemon_is_killed_ends_by_itself(tmp_path: Path) -> None:
    with Conversation(tmp_path / "root", keep_daemon=True) as agent:
        run(agent, "orphan", "echo began; exec sleep 300", 2)
        ask(agent, "orphan")
        daemon = agent.call("hello", {"versions": [1]})["pid"]
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: not processes_with("DTTUI_JOB_ID=orphan"), "the rank to end")
    with Conversation(tmp_path / "root") as agent:
        assert agent.end_of("orphan")["reason_notice"]["code"] == "self-fenced"


def test_without_a_limit_a_job_goes_on_unasked(agent: Conversation) -> None:
    directory = run(agent, "free", "echo began; sleep 3; echo over", None)
    assert agent.end_of("free")["exits"][0]["exit_code"] == 0
    assert (directory / "logs" / "0.out").read_text() == "began\nover\n"
    assert not (directory / "heard").exists()
