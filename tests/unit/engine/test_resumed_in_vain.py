"""Which checkpoints are passed over since attempts that went on from them came to nothing."""

from __future__ import annotations

import pytest
from dtagent.protocol.checkpoints import FoundCheckpoint
from dtagent.protocol.events import JobState

from dttui.engine.checkpoints.resume_choice import lost_writers, resumed_in_vain
from dttui.jobs.outcome import AttemptOutcome, NodeEnd, NodeOutcome, Stage
from dttui.planning.resumption import Resume, Resumption
from tests.unit.jobs.test_follow import plan_for

ONLY = Resume(checkpoint="/c/step-1000", directory="/c", step=1000)


def attempt(number: int, cause: str, step: int | None = None, stage: Stage = Stage.RUN) -> AttemptOutcome:
    return AttemptOutcome(
        attempt=number, state=JobState.FAILED, stage=stage, exit_code=100, cause=cause, first_step=step, last_step=step
    )


@pytest.mark.parametrize("cause", ["exit-code", "killed", "segfault", "checkpoint-corrupt", "cuda-oom"])
def test_a_checkpoint_is_passed_over_after_two_attempts_that_died_of_themselves_before_a_step(cause: str) -> None:
    history = [attempt(0, "node-lost", 1), attempt(1, cause), attempt(2, cause)]
    assert resumed_in_vain({0: None, 1: ONLY, 2: ONLY}, history) == ["/c/step-1000"]
    assert resumed_in_vain({0: None, 1: ONLY}, history[:2]) == []


@pytest.mark.parametrize(
    "cause", ["node-lost", "self-fenced", "agent-gone", "gpu-xid", "rendezvous-timeout", "peer-gone", "storage-error"]
)
def test_hosts_that_are_lost_before_the_first_step_say_nothing_against_the_only_checkpoint(cause: str) -> None:
    history = [attempt(0, "node-lost", 1), *(attempt(number, cause) for number in (1, 2, 3))]
    assert resumed_in_vain({0: None, 1: ONLY, 2: ONLY, 3: ONLY}, history) == []


def test_an_exit_code_beside_a_lost_host_says_nothing_against_it() -> None:
    lost = {"gpu2": NodeOutcome(end=NodeEnd.LOST, why="unreachable")}
    said = [attempt(number, "exit-code").model_copy(update={"nodes": lost}) for number in (1, 2)]
    assert resumed_in_vain({0: None, 1: ONLY, 2: ONLY}, [attempt(0, "exit-code", 1), *said]) == []


def test_attempts_that_never_ran_say_nothing_against_it() -> None:
    history = [attempt(0, "exit-code", 1), *(attempt(number, "unknown", stage=Stage.LAUNCH) for number in (1, 2))]
    assert resumed_in_vain({0: None, 1: ONLY, 2: ONLY}, history) == []


def test_of_a_script_that_never_reports_steps_it_is_not_asked_that_it_makes_some() -> None:
    history = [attempt(number, "killed") for number in range(4)]
    assert resumed_in_vain({0: None, 1: ONLY, 2: ONLY, 3: ONLY}, history) == []


def test_where_each_host_went_on_from_its_own_all_of_them_are_passed_over() -> None:
    parts = ONLY.model_copy(update={"elsewhere": {"gpu2": "/d/step-1000"}})
    history = [attempt(0, "killed", 1), attempt(1, "killed"), attempt(2, "killed")]
    assert resumed_in_vain({1: parts, 2: parts}, history) == ["/c/step-1000", "/d/step-1000"]


def test_a_checkpoint_that_the_script_could_not_read_is_passed_over_at_once() -> None:
    unread = attempt(1, "checkpoint-corrupt").model_copy(update={"resumed_from": ONLY.checkpoint})
    assert resumed_in_vain({0: None, 1: ONLY}, [attempt(0, "killed"), unread]) == ["/c/step-1000"]
    later = unread.model_copy(update={"first_step": 1001})
    assert resumed_in_vain({0: None, 1: ONLY}, [attempt(0, "killed", 1), later]) == []


@pytest.mark.parametrize(
    ("wrote", "having", "answered", "lost"),
    [
        ("", "ab", "ab", "c"),
        ("", "ab", "abc", ""),  # That answers and has none.
        ("abc", "a", "ab", "bc"),
        ("ac", "a", "ab", "c"),
        ("", "a", "ab", ""),  # It may have written all by itself.
        ("a", "a", "a", ""),
        ("abc", "", "ab", ""),
        ("", "AB", "ab", ""),  # All see one directory.
        ("AC", "A", "ab", ""),  # They may.
    ],
)
def test_who_was_one_of_several_that_wrote_and_is_gone_has_taken_its_part_with_it(
    wrote: str, having: str, answered: str, lost: str
) -> None:
    """In capitals it is the same that several have, or as long."""
    plan = plan_for(*"abc")
    found = {
        name.lower(): FoundCheckpoint("/c/step-9", "complete-file", 9, 5, 1.0 if name.isupper() else float(ord(name)))
        for name in having
    }
    sizes = {name.lower(): 5 if name.isupper() else ord(name) for name in wrote}
    nodes = {name: NodeOutcome(end=NodeEnd.LOST, checkpoint_bytes=sizes.get(name)) for name in "abc"}
    outcome = attempt(0, "node-lost", 1).model_copy(update={"nodes": nodes})
    sharded = plan.model_copy(update={"framework": "pytorch-fsdp"})
    assert lost_writers(sharded, outcome, found, answered) == [*lost]
    if having.isupper():  # Not where each is to have copies of the others'.
        copied = sharded.model_copy(update={"resumption": Resumption(copies=1, place="/c")})
        assert lost_writers(copied, outcome, found, answered) == ["c"]
    assert lost_writers(plan.model_copy(update={"framework": "pytorch-ddp"}), outcome, found, answered) == []
