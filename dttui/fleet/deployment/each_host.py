"""Doing something on many hosts at a time: a connection and a deadline for each. Knows nothing of what is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from dttui.errors import AgentError, DttuiError, HostError, HostUnreachableError, OutOfTimeError
from dttui.fleet.waiting import Asking, OnWait, saying
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.time_limits import left_for_work_s
from dttui.transport.base import CONNECT_TIMEOUT_S, Connection, Prompter, Transport
from dttui.transport.deadline import Deadline
from dttui.transport.turns import Turns

CONCURRENCY = 128
"""Hosts at a time: with fewer, those that answer slowly hold up all others."""
AHEAD = 4
"""Times as many are connected to meanwhile, hosts that do not answer left out."""
ANSWER_S = 1.0
"""How long a host usually takes to be connected to, at most."""
DEADLINE_S = 180.0
FAREWELL_S = 0.5
"""How long what was broken off may take to end its connection before that is told."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Visit:
    """One host while it is worked on."""

    connection: Connection
    deadline: Deadline
    """Stands still while `paused`, for what is no fault of the host."""
    say: Callable[[str], None]
    """Tells the person what is being done."""

    @property
    def host(self) -> str:
        """Name of the environment."""
        return self.connection.environment.name


def _late(name: str) -> OutOfTimeError:
    message = _("{host}: broken off, since the time for all hosts was up").format(host=name)
    return OutOfTimeError(name, message, _("Run the same command again: it goes on where this one ended."))


class _Due:
    """By when each of the hosts that are not done yet is done or given up, as far as that is known."""

    def __init__(self, names: Sequence[str]) -> None:
        self._ends: dict[str, float | None] = dict.fromkeys(names)

    @property
    def names(self) -> list[str]:
        """The hosts that are not done yet."""
        return list(self._ends)

    def begin(self, name: str, limit_s: float) -> None:
        self._ends[name] = asyncio.get_running_loop().time() + limit_s

    def end(self, name: str) -> None:
        self._ends.pop(name, None)

    def left_s(self) -> float:
        """Return the seconds until the last of them; one whose turn is still to come counts as if it came now."""
        now = asyncio.get_running_loop().time()
        return max((now + CONNECT_TIMEOUT_S if end is None else end for end in self._ends.values()), default=now) - now


async def on_each(
    environments: Sequence[Environment],
    transport: Transport,
    prompter: Prompter,
    act: Callable[[Visit], Coroutine[Any, Any, Result]],
    *,
    on_progress: Callable[[str, str], None] = lambda host, message: None,
    deadline_s: float = DEADLINE_S,
    concurrency: int = CONCURRENCY,
    on_wait: OnWait | None = None,
    on_done: Callable[[str, Result | HostError], None] = lambda host, result: None,
) -> list[Result | HostError]:
    """Connect to hosts and act on each; return what came of it, in their order.

    Args:
        environments: the hosts.
        transport: how to reach them.
        prompter: asked for passwords and new host keys while connecting.
        act: what to do; the connection is closed afterwards.
        on_progress: told a host's name and what is being done there.
        deadline_s: for each host, from the connection on; connecting has its own.
        concurrency: how many hosts at a time.
        on_wait: told meanwhile who is waited for.
        on_done: told a host's name and what came of it, as soon as that is known.
    """
    asking, due = Asking(prompter), _Due([environment.name for environment in environments])
    slots = asyncio.Semaphore(concurrency)
    connecting = Turns(concurrency * AHEAD, ANSWER_S)

    async def visit(environment: Environment) -> Result:
        name = environment.name
        async with connecting.turn() as keep_turn:
            on_progress(name, _("connecting"))
            due.begin(name, CONNECT_TIMEOUT_S)
            # It has a deadline of its own, which stands still while a person is asked or others' questions are open.
            connection = await transport.connect(environment, asking, CONNECT_TIMEOUT_S)
            keep_turn()
            try:
                async with slots:
                    due.begin(name, deadline_s)
                    deadline = Deadline(deadline_s)
                    return await deadline.run(act(Visit(connection, deadline, partial(on_progress, name))))
            finally:
                await connection.close()

    async def one(environment: Environment) -> Result | HostError:
        result = await attempted(environment)
        on_done(environment.name, result)
        return result

    async def attempted(environment: Environment) -> Result | HostError:
        name = environment.name
        try:
            return await visit(environment)
        except TimeoutError:
            message = _("{host}: not done within {seconds:g} s").format(host=name, seconds=deadline_s)
            return HostUnreachableError(name, message, _("Look whether the host is overloaded or its disk hangs."))
        except HostError as error:
            return error
        except DttuiError as error:
            return AgentError(name, f"{name}: {error.message}", error.hint)
        finally:
            due.end(name)

    tasks = [asyncio.create_task(one(environment)) for environment in environments]
    left_s = left_for_work_s()
    try:
        async with saying(on_wait, asking, lambda: (due.names, due.left_s() + asking.took_s)):
            if left_s is not None and tasks:
                _done, late = await asyncio.wait(tasks, timeout=left_s)
                for task in late:
                    task.cancel()
                if late:  # Over a slow link even a farewell takes long.
                    _done, late = await asyncio.wait(late, timeout=FAREWELL_S)
                    return [
                        _late(environment.name) if task in late or task.cancelled() else task.result()
                        for environment, task in zip(environments, tasks, strict=True)
                    ]
            found = await asyncio.gather(*tasks)
            return list(found)
    finally:
        for task in tasks:
            task.cancel()
        if left_s is None:
            await asyncio.gather(*tasks, return_exceptions=True)
