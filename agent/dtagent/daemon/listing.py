"""The call `attempts`: where every attempt of this host stands. Newer dttui than 0.1 does without."""

from __future__ import annotations

import logging

from dtagent.attempts.attempts import Attempts
from dtagent.daemon.attempt_calls import Changes
from dtagent.errors import RpcError
from dtagent.protocol.jobs import NodeStatus

LOG = logging.getLogger("dtagent")


class AttemptListing:
    """Asks one attempt after the other, each in its turn."""

    def __init__(self, attempts: Attempts, changes: Changes) -> None:
        self._attempts = attempts
        self._changes = changes
        self._told: set[str] = set()
        """Damage that was logged."""

    async def statuses(self, _: None) -> list[NodeStatus]:
        """Return where those stand that can tell."""
        return await self._changes.run(self._read)

    def _read(self) -> list[NodeStatus]:
        found = []
        for key in self._attempts.census.known_keys():
            try:
                with self._changes.locks.hold(key):
                    found.append(self._attempts.status(key))
            except RpcError as error:  # It was removed meanwhile, or is damaged.
                told = f"{key.job_id}/{key.attempt}: {error}"
                if told not in self._told:
                    self._told.add(told)
                    LOG.warning("%s", told)
        return found
