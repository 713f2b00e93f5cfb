"""What follows an attempt: by cause, by count, by who is left."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from dtagent.protocol.events import JobState

from dttui.diagnosis.causes import by_signal
from dttui.diagnosis.table import RECOGNISERS
from dttui.engine.decision import FIRST_DELAY_S, MOST_DELAY_S, NODE_DELAY_S, End, Restart, decide, restarts_in_vain
from dttui.jobs.outcome import (
    UNFIT,
    UNREACHABLE,
    AttemptOutcome,
    FirstFailure,
    NodeEnd,
    NodeOutcome,
    RankOutcome,
    Stage,
)
from dttui.planning.recovery import RecoveryPolicy
from dttui.spec.failure_causes import KIND_OF_CAUSE, CauseKind, kind_of
from dttui.spec.models import RecoveryAction

RESTART = RecoveryPolicy(max_restarts=3)
REPLACE = RecoveryPolicy(action=RecoveryAction.REPLACE, max_restarts=3, spares=("c", "d"))


def failed(
    cause: str | None = "killed",
    *,
    ends: Mapping[str, NodeEnd] | None = None,
    at: str = "a",
    steps: int | None = None,
    code: int | None = None,
    attempt: int = 0,
    is_shared: bool = False,
) -> AttemptOutcome:
    """Return an attempt on `a` and `b` that failed at one of them."""
    ranks = {0: RankOutcome(exit_code=code)} if code is not None else {}
    nodes = {
        name: NodeOutcome(end=end, ranks=ranks if name == at else {})
        for name, end in {"a": NodeEnd.CLEAN, "b": NodeEnd.CLEAN, **(ends or {})}.items()
    }
    first = FirstFailure(node=at, rank=0, cause=cause, is_shared=is_shared) if cause is not None else None
    return AttemptOutcome(attempt=attempt, state=JobState.FAILED, nodes=nodes, first_failure=first, last_step=steps)


@pytest.mark.parametrize(
    ("cause", "is_tried"),
    [
        ("missing-module", False),
        ("arguments", False),
        ("exception", False),
        ("not-finite", False),
        ("collective-mismatch", False),
        ("cuda-oom", False),
        ("interrupted", False),
        ("of-a-later-version", False),
        ("node-lost", True),
        ("killed", True),
        ("segfault", True),
        ("gpu-ecc", True),
        ("gpu-xid", True),
        ("collective-timeout", True),
        ("peer-gone", True),
        ("rendezvous-timeout", True),
        ("hang", True),
        ("exit-code", True),
        (None, True),
    ],
)
def test_what_comes_of_the_script_is_not_tried_again_and_what_comes_of_hosts_is(
    cause: str | None, is_tried: bool
) -> None:
    assert isinstance(decide(failed(cause), RESTART, []), Restart if is_tried else End)


def test_a_checkpoint_that_cannot_be_read_is_no_reason_to_end_where_an_older_one_may_do() -> None:
    outcome = failed("checkpoint-corrupt")
    assert isinstance(decide(outcome, RESTART, []), End), "the script reads something of its own"
    resumed = outcome.model_copy(update={"resumed_from": "/kept/step-40"})
    assert isinstance(decide(resumed, RESTART, [failed(steps=50)]), Restart)
    assert isinstance(decide(resumed.model_copy(update={"first_step": 41}), RESTART, []), End)
    never = RecoveryPolicy(max_restarts=3, no_retry_on=("checkpoint-corrupt",))
    assert isinstance(decide(resumed, never, [failed(steps=50)]), End)


def test_a_signal_and_what_follows_from_another_ranks_failure_have_a_kind_and_other_causes_the_scripts() -> None:
    assert {by_signal(number)[0] for number in range(1, 65)} <= KIND_OF_CAUSE.keys()
    assert all(kind_of(row.code).is_retried for row in RECOGNISERS if row.is_consequence)
    assert kind_of("added-by-somebody") is CauseKind.SCRIPT


def test_what_the_job_says_of_a_cause_counts_before_its_kind() -> None:
    named = RESTART.model_copy(update={"retry_on": ("missing-module",)})
    kind = RESTART.model_copy(update={"retry_on": ("script",), "no_retry_on": ("not-finite",)})
    code = RESTART.model_copy(update={"no_retry_on": (75,)})
    assert isinstance(decide(failed("missing-module"), named, []), Restart)
    assert isinstance(decide(failed("exception"), kind, []), Restart)
    assert isinstance(decide(failed("not-finite"), kind, []), End)
    assert isinstance(decide(failed("exit-code", code=75), code, []), End)
    assert isinstance(decide(failed("exit-code", code=74), code, []), Restart)
    assert isinstance(decide(failed("killed"), RESTART.model_copy(update={"no_retry_on": ("signal",)}), []), End)


def test_the_end_says_why_no_attempt_follows() -> None:
    decided = decide(failed("exception"), RESTART, [])
    assert isinstance(decided, End)
    assert decided.why == "it is not tried again for this cause: exception"


@pytest.mark.parametrize(
    ("steps", "used"),
    [
        ((None,), 0),
        ((None, None, None), 2),
        ((5, None), 1),
        ((5, 5, 5), 2),
        ((5, 6, 6), 1),
        ((5, 6, 7), 0),
        ((None, 1), 0),
        ((50, 20, 60, 10), 1),
    ],
)
def test_an_attempt_counts_unless_it_makes_a_step_that_none_before_has_made(
    steps: tuple[int | None, ...], used: int
) -> None:
    assert restarts_in_vain([failed(steps=step) for step in steps]) == used


def test_waits_double_until_a_new_step_is_made_of_which_the_attempt_after_begins_at_once() -> None:
    policy = RecoveryPolicy(max_restarts=100)
    delays = []
    for count in range(14):
        decided = decide(failed(steps=1), policy, [failed(steps=1)] * count)
        assert isinstance(decided, Restart)
        delays.append(decided.delay_s)
    assert delays[:4] == [FIRST_DELAY_S * factor for factor in (0, 2, 4, 8)]
    assert delays[-1] == MOST_DELAY_S
    stepless = decide(failed(), policy, [])
    assert isinstance(stepless, Restart)
    assert stepless.delay_s == FIRST_DELAY_S
    fresh = decide(failed(steps=2), policy, [failed(steps=1)] * 9)
    assert isinstance(fresh, Restart)
    assert fresh.delay_s == 0


def test_max_restarts_is_the_end() -> None:
    decided = decide(failed(), RESTART, [failed()] * 3)
    assert isinstance(decided, End)
    assert decided.why is not None
    assert "3 new attempts" in decided.why


def test_neither_a_stop_nor_success_nor_a_job_without_a_policy_is_followed_by_an_attempt() -> None:
    for state in (JobState.SUCCEEDED, JobState.CANCELLED):
        assert decide(failed().model_copy(update={"state": state}), RESTART, []) == End()
    stop = RecoveryPolicy(action=RecoveryAction.STOP, max_restarts=3)
    assert decide(failed(), stop, []) == decide(failed(), RecoveryPolicy(), []) == End()


def test_what_a_person_launched_and_a_check_refused_is_theirs_and_a_later_attempt_is_tried_again() -> None:
    refused = AttemptOutcome(
        state=JobState.FAILED,
        stage=Stage.PREFLIGHT,
        cause="host-unreachable",
        nodes={"a": NodeOutcome(end=NodeEnd.UNTOUCHED), "b": NodeOutcome(end=NodeEnd.UNTOUCHED, why=UNREACHABLE)},
    )
    assert decide(refused, RESTART, []) == End()
    decided = decide(refused, RESTART, [failed()])
    assert isinstance(decided, Restart)
    assert decided.awaited == ("b",)
    assert decided.delay_s == 2 * NODE_DELAY_S
    replaced = decide(refused, REPLACE, [failed()])
    assert isinstance(replaced, Restart)
    assert replaced.changes == {"b": "c"}


@pytest.mark.parametrize("end", [NodeEnd.LOST, NodeEnd.AGENT_GONE, NodeEnd.UNCLEAN])
def test_a_host_that_is_not_proven_clean_is_waited_for_replaced_or_done_without(end: NodeEnd) -> None:
    lost = failed("node-lost", ends={"b": end}, at="b")
    waiting = decide(lost, RESTART, [])
    assert isinstance(waiting, Restart)
    assert (waiting.changes, waiting.awaited, waiting.delay_s) == ({}, ("b",), NODE_DELAY_S)
    replaced = decide(lost, REPLACE, [])
    assert isinstance(replaced, Restart)
    assert (replaced.changes, replaced.awaited, replaced.delay_s) == ({"b": "c"}, (), FIRST_DELAY_S)
    without = decide(lost, RESTART.model_copy(update={"min_nodes": 1}), [])
    assert isinstance(without, Restart)
    assert without.changes == {"b": None}
    needed = decide(lost, RESTART.model_copy(update={"min_nodes": 2}), [])
    assert isinstance(needed, Restart)
    assert needed.awaited == ("b",)


def test_where_no_host_answers_it_is_rather_this_machine_that_is_cut_off() -> None:
    lost = failed("node-lost", ends={"a": NodeEnd.LOST, "b": NodeEnd.LOST})
    decided = decide(lost, REPLACE, [])
    assert isinstance(decided, Restart)
    assert (decided.changes, decided.awaited) == ({}, ("a", "b"))


def test_a_spare_is_used_once_and_the_last_ones_loss_is_waited_for() -> None:
    first = failed("node-lost", ends={"b": NodeEnd.LOST}, at="b", steps=1)
    second = failed("node-lost", ends={"c": NodeEnd.LOST}, at="c", steps=2)
    second = second.model_copy(update={"nodes": {name: second.nodes[name] for name in ("a", "c")}})
    decided = decide(second, REPLACE, [first])
    assert isinstance(decided, Restart)
    assert decided.changes == {"c": "d"}
    third = failed("node-lost", ends={"d": NodeEnd.LOST}, at="d", steps=3)
    third = third.model_copy(update={"nodes": {name: third.nodes[name] for name in ("a", "d")}})
    decided = decide(third, REPLACE, [first, second])
    assert isinstance(decided, Restart)
    assert (decided.changes, decided.awaited) == ({}, ("d",))


SPARES = ("s1", "s2", "s3", "s4")
MANY = RecoveryPolicy(action=RecoveryAction.REPLACE, max_restarts=3, spares=SPARES)
LOST = failed("node-lost", ends={"b": NodeEnd.LOST}, at="b", steps=5)


def refused(*names: str, why: str = UNREACHABLE) -> AttemptOutcome:
    """Return an attempt on `a` and others on which a check let nothing start."""
    nodes = {name: NodeOutcome(end=NodeEnd.UNTOUCHED, why=why) for name in names}
    return AttemptOutcome(
        state=JobState.FAILED,
        stage=Stage.PREFLIGHT,
        cause="preflight",
        nodes={"a": NodeOutcome(end=NodeEnd.UNTOUCHED), **nodes},
    )


def follow(attempts: list[AttemptOutcome], policy: RecoveryPolicy = MANY, most: int = 50) -> list[Restart]:
    """Refuse whatever spare is tried, until the job is over; return all that was decided before that."""
    decided = []
    while isinstance(step := decide(attempts[-1], policy, attempts[:-1]), Restart):
        decided.append(step)
        assert len(decided) <= most, "it never ends"
        there = [step.changes.get(name, name) for name in attempts[-1].nodes]
        attempts.append(refused(*(name for name in there if name not in ("a", None))))
    return decided


@pytest.mark.parametrize("why", [UNREACHABLE, UNFIT])
def test_spares_that_are_refused_cost_no_restart_while_another_one_is_free(why: str) -> None:
    history = [LOST]
    for spare, following in itertools.pairwise(SPARES):
        history.append(refused(spare, why=why))
        decided = decide(history[-1], MANY, history[:-1])
        assert isinstance(decided, Restart), f"{following} was not tried"
        assert (decided.changes, decided.awaited) == ({spare: following}, ())
        assert (decided.set_aside, decided.suspects) == ((), ())


def test_spares_that_were_refused_are_tried_again_in_turn_once_no_other_is_left_and_not_for_ever() -> None:
    decided = follow([LOST])
    tried = [next(iter(step.changes.values())) for step in decided]
    assert tried == ["s1", "s2", "s3", "s4", "s1", "s2"]
    assert [step.delay_s for step in decided[:4]] == [0.0, FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert [step.delay_s for step in decided[4:]] == [2 * NODE_DELAY_S, 4 * NODE_DELAY_S]
    assert {step.set_aside for step in decided} == {()}


def test_in_an_outage_the_next_of_many_spares_is_tried_ever_later() -> None:
    many = MANY.model_copy(update={"spares": tuple(f"s{number}" for number in range(200))})
    delays = [step.delay_s for step in follow([LOST], many, most=300)]
    assert delays[1:5] == [FIRST_DELAY_S * factor for factor in (1, 2, 4, 8)]
    assert set(delays[11:200]) == {MOST_DELAY_S}


def test_a_spare_that_was_refused_is_tried_again_where_the_only_other_one_turns_out_to_be_unfit() -> None:
    once = MANY.model_copy(update={"max_restarts": 1, "spares": ("s1", "s2")})
    history = [LOST, refused("s1")]
    assert decide(history[-1], once, history[:-1]).changes == {"s1": "s2"}  # type: ignore[union-attr]
    decided = decide(history[-1], once.model_copy(update={"unfit": ("s2",)}), history[:-1])
    assert isinstance(decided, Restart)
    assert (decided.changes, decided.awaited) == ({}, ("s1",))
    history.append(refused("s1"))
    assert isinstance(decide(history[-1], once.model_copy(update={"unfit": ("s2",)}), history[:-1]), End)


def test_a_refused_spare_is_not_tried_again_where_the_job_can_do_without_or_its_host_still_answers() -> None:
    two = MANY.model_copy(update={"spares": ("s1", "s2")})
    history = [LOST, refused("s1")]
    without = decide(refused("s2"), two.model_copy(update={"min_nodes": 1}), history)
    assert isinstance(without, Restart)
    assert without.changes == {"s2": None}
    broken = failed("gpu-ecc", at="s2", steps=6)
    broken = broken.model_copy(update={"nodes": {"a": broken.nodes["a"], "s2": NodeOutcome(end=NodeEnd.CLEAN)}})
    decided = decide(broken, two, history)
    assert isinstance(decided, Restart)
    assert (decided.changes, decided.delay_s) == ({}, 0.0)


def test_an_attempt_that_refused_a_node_of_the_job_beside_a_spare_counts() -> None:
    both = refused("s1", "c")
    assert restarts_in_vain([LOST, refused("s1")], SPARES) == 0
    assert restarts_in_vain([LOST, both], SPARES) == 1
    assert restarts_in_vain([LOST, refused("s1"), refused("s1")], SPARES) == 1
    assert restarts_in_vain([LOST, refused("s1")]) == 1


def test_hardware_that_failed_goes_at_once_and_other_failures_of_one_host_the_second_time() -> None:
    decided = decide(failed("gpu-ecc", at="b"), REPLACE, [])
    assert isinstance(decided, Restart)
    assert decided.changes == {"b": "c"}
    once = decide(failed("killed", at="b"), REPLACE, [])
    assert isinstance(once, Restart)
    assert once.changes == {}
    twice = decide(failed("killed", at="b"), REPLACE, [failed("killed", at="b")])
    assert isinstance(twice, Restart)
    assert (twice.changes, twice.set_aside) == ({"b": "c"}, ("b",))
    ill = failed(None).model_copy(update={"cause": "unhealthy", "blamed": ("b",)})
    once, again = decide(ill, REPLACE, []), decide(ill, REPLACE, [ill])
    assert isinstance(once, Restart)
    assert isinstance(again, Restart)
    assert (once.changes, again.changes, again.set_aside) == ({}, {"b": "c"}, ("b",))
    slow = decide(failed(None).model_copy(update={"cause": "straggler", "blamed": ("b",)}), REPLACE, [])
    assert isinstance(slow, Restart)
    assert slow.changes == {"b": "c"}
    shared = decide(failed("killed", at="b", is_shared=True), REPLACE, [failed("killed", at="b")])
    assert isinstance(shared, Restart)
    assert shared.changes == {}


def test_a_straggler_goes_also_where_it_is_the_only_host_or_others_are_suspects() -> None:
    slow = failed("straggler", steps=5).model_copy(update={"cause": "straggler", "blamed": ("a",)})
    alone = slow.model_copy(update={"nodes": {"a": slow.nodes["a"]}})
    suspect = failed("killed", at="b", steps=1)
    for outcome, history in ((alone, []), (slow, [suspect, suspect])):
        decided = decide(outcome, REPLACE, history)
        assert isinstance(decided, Restart)
        assert decided.changes == {"a": "c"}


def test_a_suspect_without_whom_it_cannot_be_done_is_named() -> None:
    decided = decide(failed("killed", at="b"), RESTART, [failed("killed", at="b")])
    assert isinstance(decided, Restart)
    assert (decided.changes, decided.suspects, decided.awaited) == ({}, ("b",), ())


def test_kinds_of_causes_are_told_apart() -> None:
    assert kind_of(None).is_retried
    assert not kind_of("of-a-later-version").is_retried
