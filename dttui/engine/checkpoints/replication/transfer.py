"""One copy of one checkpoint from one node to another: both agents are told the key of that copy, and nobody else."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from dtagent.protocol import sentences
from dtagent.protocol.checkpoints import PART, FoundCheckpoint
from dtagent.protocol.replication import (
    KEY_BYTES,
    MAX_COPY_S,
    MAX_STORES,
    SendReply,
    SendRequest,
    TakeReply,
    TakeRequest,
)
from dtagent.protocol.rpc import ErrorCode

from dttui.agent_words import agent_text
from dttui.engine.nodes.node_run import NodeRun
from dttui.errors import AgentError, HostError
from dttui.i18n import msg
from dttui.planning.resumption import Resumption

LOOK_AGAIN_S = 1.0
"""Where another copy is written at the same place, and ranks wait for this one."""


@dataclass(frozen=True)
class Stores:
    """Where hosts keep copies."""

    own: str
    """Of this attempt."""
    older: Sequence[str]
    """Of those before, the newest first."""


class CopyFailedError(Exception):
    """There is no copy.

    Args:
        why: says why.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


async def transfer(
    source: NodeRun,
    target: NodeRun,
    checkpoint: FoundCheckpoint,
    written: tuple[int, int],
    stores: Stores,
    resumption: Resumption,
    *,
    is_awaited: bool = False,
) -> SendReply:
    """Have a checkpoint copied.

    Args:
        source: where it lies.
        target: where it is to be, too.
        checkpoint: as it is at the source.
        written: attempt that wrote it, and node rank of the node that did.
        stores: of the job.
        resumption: how many stay, and how much of the network it may take.
        is_awaited: whether ranks wait for it: then it may take all there is of the network, and waits for a copy that
            an attempt before has left under way.

    Raises:
        CopyFailedError: it could not be.
    """
    if source.client is None or target.client is None:
        raise CopyFailedError(msg("could not be reached; what runs there is unknown"))
    first, last = target.environment.ports
    address = target.planned.address
    # A part is of use with those of the others, of which the newest may not be here yet: the one before stays too.
    keep = resumption.keep + (checkpoint.form == PART)
    loop = asyncio.get_running_loop()
    until = loop.time() + (MAX_COPY_S if is_awaited else 0)
    while True:
        key = secrets.token_hex(KEY_BYTES)
        take = TakeRequest(key, stores.own, address, (first, last), list(stores.older[: MAX_STORES - 1]), keep)
        try:
            port = (await target.client.call("copy_take", take, TakeReply)).port
            send = SendRequest(
                key,
                checkpoint.path,
                checkpoint.form,
                *written,
                address,
                port,
                checkpoint.step,
                checkpoint.time,
                0 if is_awaited else resumption.copy_bytes_per_s,
                checkpoint.size_bytes,
                checkpoint.changed_ns,
            )
            reply = await source.client.call("copy_send", send, SendReply, MAX_COPY_S)
        except HostError as error:
            why, is_under_way = error.message, isinstance(error, AgentError) and error.code == ErrorCode.BUSY
        else:
            if reply.path:
                return reply
            why = agent_text(reply.detail, notice := reply.detail_notice)
            is_under_way = notice is not None and notice.code == sentences.COPY_UNDER_WAY.code
        if not is_under_way or loop.time() >= until:
            raise CopyFailedError(why)
        await asyncio.sleep(LOOK_AGAIN_S)
