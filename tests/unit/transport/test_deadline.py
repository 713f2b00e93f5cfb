"""A time limit around an operation, and the pauses that do not count."""

from __future__ import annotations

import asyncio

import pytest

from dttui.transport.deadline import Deadline


async def test_what_is_done_in_time_gives_its_result() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    assert await Deadline(5).run(work()) == "done"


async def test_when_the_time_is_up_the_operation_has_cleaned_up_before_the_error_comes() -> None:
    cleaned = False
    deadline = Deadline(0.02)

    async def work() -> None:
        nonlocal cleaned
        deadline.stage = "waiting for Godot"
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned = True

    with pytest.raises(TimeoutError, match="Godot"):
        await deadline.run(work())
    assert cleaned


async def test_pauses_do_not_count_even_when_nested() -> None:
    deadline = Deadline(0.1)

    async def another_runs_out() -> None:
        with pytest.raises(TimeoutError):
            await Deadline(deadline.seconds).run(asyncio.Event().wait())

    async def work() -> str:
        with deadline.paused():
            with deadline.paused():
                await another_runs_out()
            await another_runs_out()
        return "done"

    assert await deadline.run(work()) == "done"


async def test_after_a_pause_the_rest_of_the_time_is_left_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    deadline = Deadline(10)
    reached = False

    async def work() -> None:
        nonlocal now, reached
        now += 6
        with deadline.paused():
            now += 100
        now += 3.9
        await asyncio.sleep(0)
        reached = True
        now += 0.2
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await deadline.run(work())
    assert reached


async def test_cancelling_from_outside_stays_a_cancellation() -> None:
    task = asyncio.create_task(Deadline(5).run(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelling_from_outside_stays_one_where_the_time_was_up_already() -> None:
    cleaning, done = asyncio.Event(), False

    async def work() -> None:
        nonlocal done
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            try:
                await asyncio.Event().wait()
            finally:
                done = True

    task = asyncio.create_task(Deadline(0.01).run(work()))
    await asyncio.wait_for(cleaning.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done


async def test_an_error_of_the_operation_comes_through() -> None:
    async def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await Deadline(5).run(work())
