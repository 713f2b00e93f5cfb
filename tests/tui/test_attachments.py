"""Conversations with controllers: one for each job, with whichever controller it has."""

from __future__ import annotations

from typing import Any, cast

from dttui import jobs
from dttui.app import App
from dttui.launch.control import ControllerClient
from dttui.tui.attachments import Attachments
from tests.tui.fake_fleet import job, make_inventory
from tests.tui.job_files import JobWriter


class Client:
    """A conversation that is open until it is closed."""

    is_open = True

    async def close(self) -> None:
        self.is_open = False


class Face:
    """Has a controller for whoever attaches."""

    def __init__(self) -> None:
        self.made: list[Client] = []

    def revive(self, *_which: object, **_how: object) -> bool:
        return False

    async def attach(self, *_which: object) -> ControllerClient:
        self.made.append(Client())
        return cast(ControllerClient, self.made[-1])


async def test_the_conversation_with_a_controller_that_died_is_ended_before_the_next_one() -> None:
    face, writer = Face(), JobWriter(job("pytorch-dev-env"), make_inventory())
    attachments = Attachments(cast(App, face), cast(Any, None))
    dead = await attachments.attach(writer.directory)
    assert await attachments.attach(jobs.find(writer.job_id)) is not dead
    assert [client.is_open for client in face.made] == [False, True]
    writer.watch()
    assert cast(Any, await attachments.attach(writer.directory)) is face.made[1]
    await attachments.close()
    assert [client.is_open for client in face.made] == [False, False]
