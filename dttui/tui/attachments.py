"""Conversations with controllers of jobs, kept while the app runs, so that their questions reach a person."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dttui.app import App, ControllerClient, Prompter
from dttui.diagnosis.stack_report import NodeStacks
from dttui.jobs import JobDirectory


class Attachments:
    """One client a job at most."""

    def __init__(self, face: App, prompter: Prompter) -> None:
        self._face = face
        self._prompter = prompter
        self._clients: dict[str, ControllerClient] = {}
        self._turn = asyncio.Lock()

    async def attach(self, directory: JobDirectory) -> ControllerClient:
        """Return the conversation with a job's controller; with a new one where that has died.

        Raises:
            NotFinishedError: no controller is there.
        """
        async with self._turn:
            client = self._clients.get(directory.job_id)
            if client is None or not directory.has_controller():
                if client is not None:
                    await self._clients.pop(directory.job_id).close()
                self._face.revive(directory, expects_client=True)
                client = await self._face.attach(directory, self._prompter)
                self._clients[directory.job_id] = client
            return client

    async def stop(self, directory: JobDirectory, *, force: bool) -> None:
        """Ask for a job to be stopped. Raises NotFinishedError where no controller is there."""
        await asyncio.to_thread(self._face.stop, directory, force=force)

    async def stacks(self, directory: JobDirectory) -> Sequence[NodeStacks]:
        """Return where the ranks of a job stand. Raises DttuiError where nobody tells."""
        return await self._face.stacks(directory, None, self._prompter)

    async def close(self) -> None:
        """Leave all; the jobs go on."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
