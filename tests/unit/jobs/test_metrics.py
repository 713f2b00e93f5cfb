"""Lines of DTTUI_METRICS: what is known gets its name, what is strange never raises and is counted."""

from __future__ import annotations

import pytest
from dtagent.protocol.events import Metric

from dttui.jobs.metrics import MAX_LINE_BYTES, MetricStream


def only(line: bytes, lowest_rank: int, received: float, world_size: int = 1) -> Metric:
    """Return the metric of a line."""
    (metric,) = MetricStream().feed(line + b"\n", lowest_rank, received, world_size)
    return metric


def test_known_numbers_get_their_field_and_others_are_kept_apart() -> None:
    metric = only(b'{"step": 10, "loss": 2.5, "lr": 0.1, "tokens_per_s": 9, "mfu": 0.4, "rank": 3}', 0, 5.0)
    assert (metric.step, metric.loss, metric.learning_rate, metric.rank, metric.time) == (10, 2.5, 0.1, 3, 5.0)
    assert metric.extra == {"mfu": 0.4}


def test_a_line_without_a_rank_is_the_lowest_of_the_node() -> None:
    metric = only(b'{"step": 1}', 6, 0.5)
    assert metric.rank == 6


@pytest.mark.parametrize("time", [b"1e300", b"-1e300", b"1e12"])
def test_a_time_that_no_clock_shows_is_that_of_its_arrival(time: bytes) -> None:
    assert only(b'{"step": 1, "time": %s}' % time, 0, 5.0).time == 5.0


def test_rank_zero_is_not_taken_for_absent() -> None:
    metric = only(b'{"rank": 0}', 6, 0.5)
    assert metric.rank == 0


@pytest.mark.parametrize(
    "line",
    [b"", b"x", b"[1]", b"null", b"\xff", b"[" * MAX_LINE_BYTES, b'{"step": ', b'"step"'],
)
def test_what_is_no_object_is_left_out(line: bytes) -> None:
    assert MetricStream().feed(line + b"\n", 0, 0.0) == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"step": "ten", "loss": []}',
        b'{"step": NaN, "loss": Infinity, "rank": NaN}',
        b'{"step": true}',
        b'{"step": 1e999}',
        b'{"loss": ' + b"9" * 400 + b"}",
    ],
)
def test_values_that_make_no_sense_are_left_out_and_nothing_raises(line: bytes) -> None:
    metric = only(line, 4, 1.0)
    assert (metric.step, metric.loss, metric.rank) == (None, None, 4)


def test_expressions_that_take_too_long_are_noted() -> None:
    stream = MetricStream()
    assert (
        stream.feed(b'{"at": {}, "dropped_patterns": ["reward", 5]}\n{"at": {}, "dropped_patterns": 5}\n', 0, 1.0) == []
    )
    assert stream.dropped_patterns == ("reward", "5")


def test_a_loss_that_is_no_number_is_noticed() -> None:
    broken = only(b'{"step": 4, "loss": NaN, "grad_norm": -Infinity, "lr": 0.1, "mfu": NaN}', 0, 1.0)
    assert broken.not_finite == ["loss", "gradient_norm"]
    assert only(b'{"train_loss": NaN, "step": NaN}', 0, 1.0).not_finite == ["train_loss"]
    whole = only(b'{"step": 4, "loss": 1.0}', 0, 1.0)
    assert whole.not_finite is None


def test_a_speed_for_each_gpu_counts_for_all_of_the_job() -> None:
    metric = only(b'{"step": 4, "tokens_per_s_per_gpu": 1000}', 0, 1.0, world_size=8)
    assert (metric.tokens_per_s, metric.extra) == (8000.0, {"tokens_per_s_per_gpu": 1000.0})


def test_lines_are_put_together_from_parts_and_those_that_cannot_be_read_are_counted() -> None:
    stream = MetricStream()
    assert [item.step for item in stream.feed(b'{"step": 1}\nstep 2 lo', 0, 1.0)] == [1]
    assert stream.unreadable == 0, "a line that has not ended is not judged"
    assert [item.step for item in stream.feed(b'ss 3\n\n  \n[3]\n{"step": 4}\n', 0, 1.0)] == [4]
    assert (stream.unreadable, stream.first_unreadable) == (2, "step 2 loss 3")


def test_a_line_without_end_is_one_line_that_cannot_be_read() -> None:
    stream = MetricStream()
    for _part in range(5):
        assert stream.feed(b"x" * MAX_LINE_BYTES, 0, 1.0) == []
    assert [item.step for item in stream.feed(b'"step": 1}\n{"step": 2}\n', 0, 1.0)] == [2]
    assert stream.unreadable == 1
    assert len(stream.first_unreadable) == 200


def test_the_agents_own_notes_are_no_metrics_and_tell_what_it_passed_over() -> None:
    stream = MetricStream()
    assert (
        stream.feed(b'{"at": {"0.out": 10}}\n{"at": {}, "skipped_bytes": 4096, "unread_lines": 7}\n{"at": 1}\n', 0, 1.0)
        == []
    )
    assert (stream.skipped_bytes, stream.unread_lines, stream.unreadable) == (4096, 7, 0)
