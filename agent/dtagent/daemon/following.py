"""The call `follow`: waits for news of an attempt, then reads them. What is told comes from others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from dtagent.attempts.attempts import Attempts
from dtagent.calls import Later, Workers
from dtagent.daemon.attempt_watcher import AttemptSnapshot, AttemptWatcher, look_at
from dtagent.locations import AttemptFiles
from dtagent.logs import streams
from dtagent.logs.trainer_metrics import Training
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import NodeStatus
from dtagent.protocol.logs import FollowReply, FollowRequest, LogChunk
from dtagent.supervision.self_fence import note_word

MAX_WAIT_S = 30.0
GATHER_S = 0.15
MAX_READERS = 16
"""Answers read from disk at a time."""


class Following:
    """Answers those who follow an attempt.

    Args:
        attempts: knows where attempts are.
        status: tells the status of one, in its turn.
        training: has the last look at the logs of an attempt that is over.
    """

    def __init__(
        self, attempts: Attempts, status: Callable[[AttemptKey], Awaitable[NodeStatus]], training: Training
    ) -> None:
        self._attempts = attempts
        self._status = status
        self._training = training
        self._watcher = AttemptWatcher()
        self._workers = Workers("follow", MAX_READERS)

    async def follow(self, request: FollowRequest) -> Later:
        """Wait until there is news of an attempt or the time is up; what is returned reads them.

        Raises:
            RpcError: NO_SUCH_ATTEMPT; BUSY.
        """
        files = self._attempts.files(request.key)
        note_word(files)
        if request.wait_s > 0:

            def is_news(look: AttemptSnapshot) -> bool:
                return look.stamp != request.stamp or streams.has_more(look.sizes, request)

            look = await self._watcher.wait(files, is_news, min(request.wait_s, MAX_WAIT_S))
            if look is not None and look.stamp == request.stamp and streams.is_a_little(look.sizes, request):
                await asyncio.sleep(GATHER_S)  # Else a client that asks again at once gets every line by itself.
        return lambda: self._read(files, request)

    async def _read(self, files: AttemptFiles, request: FollowRequest) -> FollowReply:
        self._attempts.files(request.key)  # It may have been removed meanwhile.
        stamp = (await self._workers.run(lambda: look_at(files))).stamp
        # The status comes first: when it says that all has ended, the bytes read after it are all there are.
        status = await self._status(request.key)

        def read() -> tuple[list[LogChunk], bool]:
            if status.state.is_final and request.wants_trainer:
                with contextlib.suppress(OSError):  # No room for more metrics: the rest is worth having all the same.
                    self._training.look(files, is_over=True)
            return streams.read(files, request)

        chunks, more = await self._workers.run(read)
        return FollowReply(status, stamp, chunks, more)
