"""Who is slower by the steps that ranks report, and that nobody is where all make their steps together."""

from __future__ import annotations

from collections.abc import Callable

from dtagent.protocol.events import Metric

from dttui.engine.step_times import StepTimes, slowness


def slower(times: StepTimes) -> list[int]:
    """Return the ranks that are told as slower now."""
    return [rank for rank, late in slowness(times.spans()).items() if late.share > 0]


def report(times: StepTimes, seconds: range, step_of: dict[int, Callable[[int], int]]) -> None:
    """Have ranks report each second; a rank's step is a function of that."""
    for now in seconds:
        for rank, step in step_of.items():
            times.take(Metric(rank, step(now), time=1000.0 + now))


def test_a_rank_that_makes_half_the_steps_of_the_others_is_slower_by_half_of_its_time() -> None:
    times = StepTimes()
    report(times, range(21), {0: lambda now: now, 1: lambda now: now // 2, 2: lambda now: now})
    found = slowness(times.spans())
    assert {rank: late.share for rank, late in found.items()} == {0: 0.0, 1: 0.5, 2: 0.0}
    assert found[1].late_s == 1.0


def test_ranks_that_make_their_steps_together_are_all_as_fast_whoever_holds_them_up_and_reports_late() -> None:
    times = StepTimes()
    together: Callable[[int], int] = lambda now: now // 10  # noqa: E731  one a rank
    for begin in range(0, 400, 100):
        report(times, range(begin, begin + 100), {0: together, 1: lambda now: max(0, now - 12) // 10, 2: together})
        assert slower(times) == []
    times = StepTimes()
    report(times, range(60), {0: lambda now: now, 1: lambda now: max(0, now - 1)})
    report(times, range(60, 100), {0: lambda now: 60, 1: lambda now: 59})  # A checkpoint: nobody goes on.
    report(times, range(100, 104), {0: lambda now: now - 40, 1: lambda now: now - 40})
    assert slower(times) == []


def test_nothing_is_said_while_one_has_made_too_few_steps_or_is_the_only_one_to_report() -> None:
    times = StepTimes()
    report(times, range(30), {0: lambda now: now, 1: lambda now: now // 10})
    assert times.spans() == {}
    report(times, range(30, 60), {0: lambda now: now, 1: lambda now: now // 10})
    assert slower(times) == [1]
    alone = StepTimes()
    report(alone, range(30), {0: lambda now: now})
    assert slowness(alone.spans()) == {}


def test_reports_without_a_step_twice_of_one_or_from_a_checkpoint_on_confuse_nobody() -> None:
    times = StepTimes()
    times.take(Metric(0, None, time=1.0))
    report(times, range(100, 120), {0: lambda now: now, 1: lambda now: now})
    report(times, range(120, 140), {0: lambda now: now - 60, 1: lambda now: now - 60})
    for rank in (0, 1):
        times.take(Metric(rank, 79, time=9999.0))
    assert slowness(times.spans())[1].share == 0.0
    assert times.spans() == {}
