"""Samples of a step shared out by speed: exact sums, what is saved, and who cannot."""

from __future__ import annotations

import json
from math import floor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dttui.frameworks.parts.batches import shares_by_speed
from dttui.inventory.models import Inventory
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.spec.findings import Finding, Severity
from dttui.spec.models import DataParallel, Model, Recovery, Strategy
from tests.unit.planning.test_costing import host
from tests.unit.seed_cluster import make_job

FAST_AND_SLOW = Inventory(environments=(host("a", 1), host("b", 1, "V100", 32), host("c", 2), host("spare", 1)))
KEY = "strategy.data_parallel.shares"


def planned(shares: Any, *, measured: dict[str, float] | None = None, batch: int | None = 26, **fields: Any) -> Plan:
    degrees = fields.pop("degrees", {})
    strategy = Strategy(data_parallel=DataParallel(batch_size=batch, shares=shares), **degrees)
    return plan(make_job("a", "b", "c", strategy=strategy, **fields), FAST_AND_SLOW, measured=measured)


def told(made: Plan) -> dict[str, Finding]:
    return {item.code: item for item in made.findings if item.subject == KEY}


def handed(made: Plan) -> Any:
    """What each node's script finds, which is the same on all."""
    files = [file.text for node in made.nodes for file in node.files if file.path == "dttui_config.json"]
    (shares,) = {json.dumps(json.loads(text)["shares"]) for text in files}
    return json.loads(shares)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=40), st.integers(0, 500))
def test_shares_add_up_and_no_other_ones_end_earlier(speeds: list[float], more: int) -> None:
    total = len(speeds) + more
    shares = shares_by_speed(total, speeds)
    assert sum(shares) == total
    assert min(shares) >= 1
    last = max(count / speed for count, speed in zip(shares, speeds, strict=True))
    # In less time all together make fewer samples, or somebody not even one.
    earlier = last * (1 - 1e-9)
    assert sum(floor(earlier * speed) for speed in speeds) < total or earlier < 1 / min(speeds)


def test_few_samples_leave_nobody_without_one() -> None:
    assert shares_by_speed(4, (1, 1, 0.01, 1)) == (1, 1, 1, 1)
    assert shares_by_speed(10**9, (1, 3)) == (250_000_000, 750_000_000)
    with pytest.raises(ValueError, match="3 samples for 4 ranks"):
        shares_by_speed(3, (1, 1, 1, 1))


def test_shares_follow_the_types_of_gpus_and_the_plan_tells_what_that_saves() -> None:
    made = planned("by_speed", model=Model(parameters=125e6))
    assert made.errors == ()
    # 312 and 125 TFLOP/s: 26 samples make 7.7 and 3.1 of each.
    assert handed(made) == [8, 3, 8, 7]
    finding = told(made)["shares"]
    # Equal shares are 7, 7, 6, 6, and 7 of the V100 take as long as 17.5 of an A100.
    assert "a 8, b 3, c 8 + 7; computing takes 54% less time a step, " in finding.message
    assert " s of equal shares" in finding.message
    assert "examples/gpt" in finding.hint
    balance = next(item for item in made.findings if item.code == "axiom-balance")
    whole = planned("equal", batch=28, model=Model(parameters=125e6))
    equal = next(item for item in whole.findings if item.code == balance.code)
    assert ("53% of the time" in equal.message, "4% of the time" in balance.message) == (True, True)
    assert (equal.severity, balance.severity) == (Severity.WARNING, Severity.INFO)
    assert f"{KEY}: by_speed" in equal.hint
    assert made.estimate is not None
    assert f"{KEY}: all ranks are taken to have as many samples" in made.estimate.not_counted


def test_speeds_by_hand_count_for_every_gpu_of_a_node_and_are_1_for_the_others() -> None:
    made = planned({"b": 0.25, "c": 2})
    assert (made.errors, handed(made)) == ((), [5, 1, 10, 10])


@pytest.mark.parametrize("speeds", [{"a": 1e308, "b": 1e308, "c": 1e308}, {"a": 1e-310, "b": 1e-310, "c": 1e-310}])
def test_speeds_may_be_in_any_unit(speeds: dict[str, float]) -> None:
    made = planned(speeds)
    assert (made.errors, sorted(handed(made) or ())) == ((), [6, 6, 7, 7])


def test_what_was_measured_counts_before_the_types() -> None:
    made = planned("by_speed", measured={"a": 10.0, "b": 10.0, "c": 30.0})
    assert handed(made) == [3, 3, 10, 10]
    assert "shares-measured" in told(made)
    assert handed(planned("by_speed", measured={"a": 10.0, "b": 10.0})) == handed(planned("by_speed"))


def test_equal_shares_are_left_to_the_script() -> None:
    for shares in ("equal", None):
        made = planned(shares)
        assert (handed(made), told(made)) == (None, {})


def test_gpus_of_unknown_speed_have_equal_shares_until_they_are_measured() -> None:
    unknown = Inventory(environments=(host("a", 1), host("b", 1, "Q9", 32)))
    strategy = Strategy(data_parallel=DataParallel(batch_size=8, shares="by_speed"))
    made = plan(make_job("a", "b", strategy=strategy), unknown)
    assert (made.errors, handed(made)) == ((), None)
    finding = told(made)["shares-unknown"]
    assert (finding.severity, "Q9" in finding.message) == (Severity.WARNING, True)
    assert finding.hint == "Write speeds instead of by_speed: shares: {b: 0.5}"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"framework": "deepspeed"}, "DeepSpeed gives every rank as many samples"),
        ({"framework": "megatron-lm"}, "gives every rank as many samples"),
        ({"framework": "tensorflow"}, "gives every rank as many samples"),
        ({"degrees": {"tensor_parallel_size": 2}}, "the job splits the model"),
        ({"framework_options": {"elastic": {"min_nodes": 2}}}, "which ranks an elastic job has is not known"),
        ({"batch": None}, "how many samples a step has is not said"),
        ({"batch": 3}, "3 samples a step are too few for 4 ranks"),
    ],
)
def test_where_samples_cannot_be_shared_out_that_is_an_error(fields: dict[str, Any], says: str) -> None:
    error = told(planned("by_speed", **fields))["shares"]
    assert (error.severity, says in error.message, bool(error.hint)) == (Severity.ERROR, True, True)


def test_a_speed_is_of_a_node_of_the_job() -> None:
    wrong = told(planned({"bb": 0.5}))["shares-unknown-node"]
    assert (wrong.severity, wrong.path[-1]) == (Severity.ERROR, "bb")
    assert '"bb"' in wrong.message
    # Another may have taken its place; and a spare is named for when it does.
    assert told(planned({"spare": 0.5}))["shares-of-nobody"].severity is Severity.INFO
    kept = Recovery(on_node_failure="replace", spares=("spare",))
    assert "shares-of-nobody" not in told(planned({"spare": 0.5}, recovery=kept))


@pytest.mark.parametrize("wrong", ["by_luck", {"a": 0}, {"a": -1}, 3])
def test_what_is_no_way_to_share_out_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        DataParallel(batch_size=8, shares=wrong)
