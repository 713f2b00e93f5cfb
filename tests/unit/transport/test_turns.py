"""Whose turn it is where many want the same: those that never answer hold up nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from dttui.transport.deadline import Deadline
from dttui.transport.ssh.dials import Dials
from dttui.transport.ssh.threads import Threads
from dttui.transport.turns import Turns
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("unhurried")

DEADLINE_S = 10.0


class Line:
    """Something that was dialled."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


async def never() -> Line:
    await asyncio.get_running_loop().create_future()
    return Line()


async def test_who_holds_a_place_for_long_goes_on_without_it() -> None:
    turns = Turns(2, 0.05)
    inside: list[int] = []

    async def hang(number: int) -> None:
        async with turns.turn():
            inside.append(number)
            await never()

    tasks = [asyncio.create_task(hang(number)) for number in range(7)]
    await until(lambda: len(inside) == 7, "all to come in", DEADLINE_S)
    assert inside == list(range(7))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with turns.turn(), turns.turn():  # Both places are free, however their holders ended.
        pass


async def test_a_place_that_is_kept_is_free_at_the_end_and_only_once() -> None:
    turns = Turns(1, 0.01)
    order: list[str] = []

    async def second() -> None:
        async with turns.turn():
            order.append("second")

    async with turns.turn() as keep:
        keep()
        task = asyncio.create_task(second())
        await asyncio.wait({task}, timeout=0.1)
        order.append("first")
    await task
    assert order == ["first", "second"]
    async with turns.turn() as keep:
        keep()
        task = asyncio.create_task(second())
        await asyncio.wait({task}, timeout=0)
        assert not task.done()
    await task


async def test_an_answer_is_found_however_many_places_are_taken_by_those_who_never_answer() -> None:
    dials = Dials(10, patience_s=0.02)
    in_flight = most = 0

    async def dial(answers: bool) -> Line:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        try:
            if not answers:
                await never()
            await asyncio.sleep(0)
            return Line()
        finally:
            in_flight -= 1

    def run(answers: bool) -> asyncio.Task[Line]:
        deadline = Deadline(DEADLINE_S)
        return asyncio.create_task(deadline.run(dials.run(lambda: dial(answers), deadline)))

    silent = [run(answers=False) for _each in range(60)]
    live = [run(answers=True) for _each in range(40)]
    lines = await asyncio.wait_for(asyncio.gather(*live), DEADLINE_S)
    assert not any(line.is_closed for line in lines)
    assert most == 10
    assert not any(task.done() for task in silent)
    for task in silent:
        task.cancel()
    await asyncio.gather(*silent, return_exceptions=True)
    assert in_flight == 0
    again = [run(answers=True) for _each in range(20)]
    assert len(await asyncio.wait_for(asyncio.gather(*again), DEADLINE_S)) == 20


async def test_who_answers_late_is_reached_however_many_new_ones_there_are_all_the_time() -> None:
    dials = Dials(2, patience_s=0.05)
    crowd: set[asyncio.Task[object]] = set()

    async def give_up() -> None:
        deadline = Deadline(0.5)
        await deadline.run(dials.run(never, deadline))

    def come(_done: object = None) -> None:
        """There is always one more, who never answers and gives up after a while."""
        task: asyncio.Task[object] = asyncio.create_task(give_up())
        crowd.add(task)

        def gone(done: asyncio.Task[object]) -> None:
            crowd.discard(done)
            if not done.cancelled() and done.exception() is not None and not is_over:
                come()

        task.add_done_callback(gone)

    async def late() -> Line:
        await asyncio.sleep(0.15)  # Three times as long as the first turn.
        return Line()

    is_over = False
    for _each in range(20):
        come()
    deadline = Deadline(DEADLINE_S)
    try:
        assert await deadline.run(dials.run(late, deadline)) is not None
    finally:
        is_over = True
        for task in list(crowd):
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)


async def test_while_some_have_had_no_turn_those_that_have_hold_a_quarter_of_the_places_at_most() -> None:
    places, count = 8, 80
    dials = Dials(places, patience_s=0.02)
    begun: set[int] = set()
    again, most_again = 0, 0

    def dial_of(number: int) -> Callable[[], Coroutine[object, object, Line]]:
        async def dial() -> Line:
            nonlocal again, most_again
            is_again = number in begun
            begun.add(number)
            again += is_again
            if len(begun) < count - places:  # The last ones may have been given theirs already.
                most_again = max(most_again, again)
            try:
                await never()
            finally:
                again -= is_again
            raise AssertionError

        return dial

    async def reach(number: int) -> None:
        deadline = Deadline(DEADLINE_S)
        await deadline.run(dials.run(dial_of(number), deadline))

    tasks = [asyncio.create_task(reach(number)) for number in range(count)]
    await until(lambda: len(begun) == count, "all to have had a turn", DEADLINE_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert 0 < most_again <= places // 4


async def test_the_wait_for_the_first_turn_does_not_count_and_no_answer_ends_by_the_deadline() -> None:
    dials = Dials(1, patience_s=60.0)
    first, second = Deadline(0.2), Deadline(0.2)
    tasks = [asyncio.create_task(each.run(dials.run(never, each))) for each in (first, second)]
    loop = asyncio.get_running_loop()
    began = loop.time()
    for task in tasks:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), DEADLINE_S)
    assert loop.time() - began > 0.35


async def test_what_is_reached_in_the_moment_that_it_is_given_up_is_closed() -> None:
    dials, deadline, line = Dials(1), Deadline(DEADLINE_S), Line()

    async def dial() -> Line:
        whole.cancel()
        return line

    whole = asyncio.create_task(dials.run(dial, deadline))
    with pytest.raises(asyncio.CancelledError):
        await whole
    assert line.is_closed


async def test_what_goes_wrong_in_a_look_up_reaches_who_waits_for_it() -> None:
    threads = Threads()
    try:
        with pytest.raises(ValueError, match="nonsense"):
            await asyncio.wait_for(threads.looking_up(int, "nonsense"), DEADLINE_S)
    finally:
        threads.close()
