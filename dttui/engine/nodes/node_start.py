"""The start of one node, seen from the login node: prepared, held, given its files, started, each asked for safely."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.protocol.preparation import PrepareReply, PrepareRequest
from dtagent.protocol.rpc import ErrorCode

from dttui.engine.context import HostUse
from dttui.engine.nodes.node_run import RETRY_S, NodeRun, is_undecided
from dttui.engine.nodes.start_requests import StartRequests
from dttui.errors import AgentError, HostError, HostUnreachableError
from dttui.i18n import _
from dttui.preflight.agent_age import too_old_for
from dttui.workdir.upload import Bundle, send

PREPARE_DEADLINE_S = 30.0
START_DEADLINE_S = 40.0
RENEW_S = 15.0
"""Between two words to a host that keeps what it has set aside; it does so for 60 s."""
CONTENTION_S = 8.0
"""How long a job that goes first waits for one that gives way."""
CONTENTION_RETRY_S = 0.3
SEND_PATIENCE_S = 30.0
"""How long files may make no way."""


class NodeStart:
    """Takes one node from connected to started."""

    def __init__(self, node: NodeRun) -> None:
        self.node = node
        self._request: PrepareRequest | None = None

    @property
    def name(self) -> str:
        """The environment's."""
        return self.node.name

    async def prepare(
        self,
        master_address: str,
        port_range: tuple[int, int],
        preferred_port: int | None,
        use: HostUse = HostUse(),  # noqa: B008 - it never changes
    ) -> PrepareReply:
        """Make the host ready, within a deadline of its own. Raises HostError."""
        planned = self.node.planned
        declared = self.node.environment.resources.gpu
        is_counted = planned.simulated and declared is not None
        self._request = PrepareRequest(
            key=self.node.key,
            node_rank=planned.node_rank,
            python=planned.python,
            master_address=master_address,
            reserve_port=planned.node_rank == 0 or planned.port_range is not None,
            port_range=planned.port_range or port_range,
            cuda_slots=planned.cuda_slots,
            required_paths=list(planned.required_paths),
            simulated_slots=planned.slots if is_counted else 0,
            simulated_total=declared.count if planned.simulated and declared is not None else 0,
            preferred_port=preferred_port if planned.node_rank == 0 else None,
            is_behind_prefix=bool(planned.prefix),
            asked_at=use.asked_at,
            for_s=use.for_s,
            may_restart=use.may_restart,
            keeps=use.keeps,
            gpu_ids=list(planned.gpu_ids),
        )
        deadline = asyncio.get_running_loop().time() + CONTENTION_S
        while True:
            try:
                reply = await self.node.retry_until_deadline("prepare", self._request, PrepareReply, PREPARE_DEADLINE_S)
                self._refuse_old_agent()
                return reply
            except AgentError as error:
                # Another job is being prepared on the same hosts, and gives way.
                if error.code != ErrorCode.CONTENDED or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(CONTENTION_RETRY_S)

    def _refuse_old_agent(self) -> None:
        """Raise AgentError where the agent is too old to do what the job cannot do without."""
        hello = self.node.client.hello if self.node.client is not None else None
        shared = self.node.shared
        message = too_old_for(
            hello,
            self.node.planned.processes,
            is_elastic=shared.is_elastic,
            requires_group=shared.requires_group,
            fences_itself=shared.fences_itself,
            names_gpus=bool(self.node.planned.gpu_ids),
        )
        if not message:
            return
        hint = _("Upgrade it: dttui agents deploy {host}").format(host=self.name)
        raise AgentError(self.name, message.format(host=self.name), hint)

    @property
    def searches_metrics(self) -> bool:
        """Whether its agent looks for the job's own expressions; so it is said where it cannot be asked now."""
        hello = self.node.client.hello if self.node.client is not None else None
        return hello is None or hello.searches_metrics

    @property
    def checks_health(self) -> bool:
        """Whether its agent runs what says whether the job goes well; so it is said where it cannot be asked now."""
        hello = self.node.client.hello if self.node.client is not None else None
        return hello is None or hello.checks_health

    @property
    def tells_call_times(self) -> bool:
        """Whether its agent tells when ranks called their collectives; so it is said where it cannot be asked now."""
        hello = self.node.client.hello if self.node.client is not None else None
        return hello is None or hello.tells_call_times

    @property
    def keeps_directories(self) -> bool:
        """Whether its agent keeps what an attempt leaves; so it is said where it cannot be asked now."""
        hello = self.node.client.hello if self.node.client is not None else None
        return hello is None or hello.keeps_directories

    async def hold(self) -> None:
        """Keep what was set aside on the host from lapsing, until cancelled. That it has lapsed the start will tell."""
        while True:
            await asyncio.sleep(RENEW_S)
            if self._request is not None:
                with contextlib.suppress(HostError):
                    await self.node.retry_until_deadline("prepare", self._request, PrepareReply, RENEW_S)

    async def send(self, bundle: Bundle, on_progress: Callable[[int, int], None]) -> int:
        """Have the host lay out the job's files; return the bytes that had to be sent.

        Raises:
            HostError: it cannot be reached, or does not take them.
            UsageError: a file changed meanwhile.
        """
        heard = asyncio.get_running_loop().time()

        def went_on(sent: int, left: int) -> None:
            nonlocal heard
            heard = asyncio.get_running_loop().time()
            on_progress(sent, left)

        while True:
            try:
                return await send(await self.node.connect(), self.node.key, bundle, went_on)
            except HostUnreachableError:
                await self.node.drop_link()
                if asyncio.get_running_loop().time() - heard > SEND_PATIENCE_S:
                    raise
            await asyncio.sleep(RETRY_S)

    async def start(self, requests: StartRequests) -> None:
        """Start what is bound, within a deadline of its own. Raises HostError."""
        deadline = asyncio.get_running_loop().time() + START_DEADLINE_S
        while True:
            try:
                client = await self.node.connect()
                call = requests.call(self.name, client)
                self.node.learn(await client.call(call.method, call.request, NodeStatus, brings=call.brings))
                return
            except HostError as error:
                if isinstance(error, AgentError) and error.code is not None and not is_undecided(error):
                    raise
            # Whether it was heard is unknown: that is asked, and only what was not started is started again.
            await self.node.drop_link()
            left_s = max(1.0, deadline - asyncio.get_running_loop().time())
            status = await self.node.retry_until_deadline("status", self.node.key, NodeStatus, left_s)
            if status.state is not NodeState.PREPARED:
                self.node.learn(status)
                return
            if asyncio.get_running_loop().time() > deadline:
                raise HostUnreachableError(self.name, _("{host}: it does not start").format(host=self.name))
