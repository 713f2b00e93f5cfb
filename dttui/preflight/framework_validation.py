"""Has what a framework would be given read by its own code, on one node of those with the same versions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from dtagent.protocol.facts import HostFacts
from dtagent.protocol.probes import ValidationReply
from dtagent.protocol.rpc import ErrorCode

from dttui.errors import AgentError, HostError
from dttui.i18n import _, joined
from dttui.jobs.board import Judgement
from dttui.planning.models import Plan, PlannedNode
from dttui.preflight.framework_answers import TIMEOUT_S, judge_answer, request_for, versions_of
from dttui.preflight.nodes import Checked

MOST_ASKED = 2
"""Nodes with the same versions that are asked: where the first does not answer, the next one."""


@dataclass
class _Alike:
    """The nodes with the same versions, whose frameworks say the same."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: int = 0
    has_answered: bool = False


class FrameworkCheck:
    """What the framework's own code says of a job, by the nodes that were asked.

    Args:
        is_thorough: ask about the launcher's arguments too.
    """

    def __init__(self, *, is_thorough: bool) -> None:
        self._is_thorough = is_thorough
        self._alike: dict[object, _Alike] = {}
        self._replies: dict[str, ValidationReply] = {}

    @property
    def answered(self) -> list[str]:
        """The nodes that said something."""
        return [name for name, reply in self._replies.items() if reply.unseen is None]

    async def check(self, node: Checked, plan: Plan, facts: HostFacts) -> bool:
        """Ask a node unless one with the same versions has answered; return whether it was asked."""
        versions = versions_of(node.planned, facts)
        if versions is None:
            return False
        alike = self._alike.setdefault(versions, _Alike())
        async with alike.turn:
            if alike.has_answered or alike.asked == MOST_ASKED:
                return False
            alike.asked += 1
            was_asked = await self.ask(node, node.planned, plan)
            alike.has_answered = not was_asked or node.planned.name in self.answered
            return was_asked

    async def ask(self, node: Checked, planned: PlannedNode, plan: Plan) -> bool:
        """Ask a node; return whether there was anything to ask."""
        request = request_for(plan, planned, thorough=self._is_thorough)
        if request is None:
            return False
        try:
            client = await node.connect()
            reply = await client.call("verdict", request, ValidationReply, TIMEOUT_S)
        except AgentError as failure:
            is_old = failure.code == ErrorCode.UNKNOWN_METHOD
            reply = ValidationReply(unseen=_("its agent is too old for this check") if is_old else failure.message)
        except HostError as failure:  # A host that is gone is told of by the other checks.
            reply = ValidationReply(unseen=failure.message)
        self._replies[planned.name] = reply
        return True

    def add_to(self, judged: Judgement, planned: PlannedNode) -> Judgement:
        """Return what is said of a node's software with what its framework said."""
        if planned.name not in self._replies:
            return judged
        said, found = judge_answer(planned, self._replies[planned.name])
        return replace(judged, text=joined(" · ", filter(None, (judged.text, said))), findings=judged.findings + found)
