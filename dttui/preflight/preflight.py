"""Runs a preflight: asks all nodes at once, each check with its own deadline, and writes what comes to the board."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TypeVar

from dtagent.protocol.facts import HostFacts, PythonFacts
from dtagent.protocol.probes import ImageReply, ImageRequest, PathsReply, PathsRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.protocol.telemetry import HostSample

from dttui.errors import REFUSALS, AgentError, AgentGoneError, HostError
from dttui.frameworks.bundle import holes_in
from dttui.i18n import _, joined
from dttui.inventory.models import Inventory, Reach
from dttui.jobs.board import Board, Changed, Judgement, forbidding
from dttui.jobs.checks import Check, CheckStatus, check_name
from dttui.launch.command_line import needs_on_host
from dttui.planning.binding import checkpoint_directory
from dttui.planning.cost.links import MeasuredLink
from dttui.planning.models import Finding, Plan, PlannedNode
from dttui.planning.resumption import Resumption
from dttui.preflight import hosts
from dttui.preflight.agent_age import age_findings
from dttui.preflight.container import image_drift, judge_image
from dttui.preflight.framework_answers import shape_of, unread
from dttui.preflight.framework_validation import FrameworkCheck
from dttui.preflight.imported import in_container, missing_modules, python_inside
from dttui.preflight.node_reachability import Network, record
from dttui.preflight.nodes import Checked
from dttui.preflight.room import GPU_WAIT_S, SAMPLE_WAIT_S, judge_gpus, read_sample, wait_for_room
from dttui.preflight.software import differences, drift_findings, facts_request, judge_software, versions_of
from dttui.rpc.client import AgentClient
from dttui.spec.findings import error, warning
from dttui.transport.deadline import within

FACTS_TIMEOUT_S = 30.0
PATHS_S = 5.0
PATHS_TIMEOUT_S = 8.0
IMAGE_TIMEOUT_S = 20.0
PING_TIMEOUT_S = 5.0
CLOCK_PINGS = 3
NETWORK_TIMEOUT_S = 50.0
"""More than the wait for the other side and a probe of it, which end with a reason."""

Value = TypeVar("Value")
Replan = Callable[[Inventory, dict[str, HostFacts], Sequence[MeasuredLink]], Plan]
"""Plans anew by the addresses that were reached, what the hosts say, and what was measured between them."""


class Preflight:
    """One run over the nodes of a plan."""

    def __init__(
        self,
        nodes: Sequence[Checked],
        plan: Plan,
        inventory: Inventory,
        replan: Replan,
        *,
        ignored: frozenset[str] = frozenset(),
        measures_bandwidth: bool = False,
        is_thorough: bool = False,
        checkpoint_bytes: Mapping[str, int] | None = None,
        on_change: Changed | None = None,
        on_reached: Callable[[str], None] | None = None,
        planning: Callable[[], AbstractAsyncContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.board = Board(tuple(node.planned.name for node in nodes), ignored, on_change)
        self._nodes = {node.planned.name: node for node in nodes}
        self._plan = plan
        self._inventory = inventory
        self._replan = replan
        self.over = asyncio.Event()
        """Set once no host is asked any more."""
        self.facts: dict[str, HostFacts] = {}
        """Node → what its host says of itself, of those that have told it."""
        self._reached: dict[str, str] = {}
        """Node → address of the connection to it."""
        self._samples: dict[str, HostSample] = {}
        self._offsets: dict[str, tuple[float, float]] = {}
        """Node → its clock minus ours, and the round trip."""
        self._paths: dict[str, PathsReply] = {}
        self._images: dict[str, ImageReply] = {}
        """Node → what its engine says of the job's image."""
        self._inside: dict[str, PythonFacts] = {}
        """Node → what the interpreter in the job's image says, of those that have told it."""
        self._checkpoint_bytes = checkpoint_bytes or {}
        self._on_reached = on_reached
        self._planning = planning
        """Lets it plan: many at once would take all threads."""
        self._is_thorough = is_thorough
        self._frameworks = FrameworkCheck(is_thorough=is_thorough)
        self._network = Network(
            self.board.names, plan.port_range, plan.master_address, measures_bandwidth=measures_bandwidth
        )
        self._measures_bandwidth = measures_bandwidth
        self._master_address: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    @property
    def master_port(self) -> int | None:
        """The port of the master's range that the nodes were to reach; `None` where none was tried."""
        return self._network.master_port

    def versions(self, name: str) -> dict[str, str]:
        """Return the versions of what the job runs with on a node, by what they are of, as far as they are known."""
        facts = self.facts.get(name)
        return versions_of(self._plan, self._planned(name), facts) if facts is not None else {}

    async def run(self) -> Board:
        """Check everything; return the board, which holds the plan by what the hosts say."""
        tasks = [asyncio.create_task(self._check(node)) for node in self._nodes.values()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.over.set()
            await self._network.close()
        before = self._plan
        links = self._network.links(self._inventory.environments, time.time())
        # It looks through the files to be sent, which may be many and lie on a slow disk.
        async with self._planning():
            plan = self._plan = await asyncio.to_thread(self._replan, self._with_addresses(), dict(self.facts), links)
        if shape_of(plan) != shape_of(before):
            await asyncio.gather(*map(self._ask_framework, self._frameworks.answered))
        address = await self._master_address
        for name in self.board.names:
            if name not in self.board.unreachable:
                self._judge(name)
            if address is not None and self._network.peers[name].to_master is not None:
                # By what the other nodes saw meanwhile.
                self.board.put(name, {Check.MASTER: self._network.judge_master(name, address)})
        await wait_for_room(self.board, self._read_again)
        self.board.drift = (*differences(plan, self.facts), *image_drift(self._images))
        found: list[Finding] = [*map(forbidding, plan.findings), *drift_findings(self.board.drift)]
        failure = record(links)
        found += [failure] if failure is not None else []
        self.board.say(found)
        self.board.plan = plan
        return self.board

    async def _check(self, node: Checked) -> None:
        name = node.planned.name
        peer = self._network.peers[name]
        began = time.monotonic()
        try:
            client = await node.connect()
            self._reached[name] = client.connection.address
            version = client.hello.agent_version if client.hello is not None else ""
            took_s = time.monotonic() - began
            is_command = node.environment.reach is Reach.EXEC
            reached = Judgement(node.environment.short_way if is_command else client.connection.address)
            lacks = age_findings(client.hello, node.planned, self._plan)
            agent = hosts.judge_agent(name, version, lacks)
            self.board.put(name, {Check.REACH: reached, Check.AGENT: agent}, took_s)
            if self._on_reached is not None:
                self._on_reached(name)
            if name == self.board.names[0]:
                self._master_address.set_result(node.environment.address or client.connection.address)
            checks = (
                self._check_clock,
                self._check_facts,
                self._check_paths,
                self._check_network,
                self._check_image,
            )
            results = await asyncio.gather(*(check(node, client) for check in checks), return_exceptions=True)
            for result in results:
                if result is not None:
                    raise result
        except HostError as failure:
            self._give_up(name, failure, time.monotonic() - began)
        finally:
            peer.give_up()
            if name == self.board.names[0] and not self._master_address.done():
                self._master_address.set_result(None)

    def _give_up(self, name: str, failure: HostError, seconds: float) -> None:
        """Write that a node cannot be used; checks that were not made stay unknown."""
        self.board.unreachable[name] = failure
        code, word = "unreachable", _("failed")
        if isinstance(failure, REFUSALS):
            code, word = "refused", _("refused")
        elif isinstance(failure, AgentGoneError):
            code, word = "no-agent", _("no agent")
        found = error(code, name, failure.message, failure.hint)
        row = self.board.rows[name]
        where = Check.REACH if row[Check.REACH].status is CheckStatus.PENDING else Check.SOFTWARE
        self.board.put(name, {where: Judgement(word, (found,))}, seconds)
        open_checks = [check for check, cell in row.items() if cell.status is CheckStatus.PENDING]
        self.board.put(name, dict.fromkeys(open_checks, Judgement(status=CheckStatus.UNKNOWN)))

    async def _check_clock(self, node: Checked, client: AgentClient) -> None:
        name = node.planned.name

        async def measure() -> tuple[float, float]:
            found = []
            for _turn in range(CLOCK_PINGS):
                before, began = time.time(), time.monotonic()
                reply = await client.call("ping", None, dict, PING_TIMEOUT_S)
                trip_s = time.monotonic() - began
                told = reply.get("time")
                if not isinstance(told, (int, float)):
                    raise AgentError(name, _("{host}: the agent does not tell the time").format(host=name))
                found.append((trip_s, told - before - trip_s / 2))
            trip_s, offset_s = min(found)  # The quickest answer says most.
            return offset_s, trip_s

        measured = await self._timed(name, Check.CLOCK, measure(), PING_TIMEOUT_S * CLOCK_PINGS)
        if measured is not None:
            value, seconds = measured
            node.clock_offset_s = value[0]
            self._offsets[name] = value
            self._judge(name, seconds)

    async def _check_facts(self, node: Checked, client: AgentClient) -> None:
        """Ask what the host is and does. Raises HostError where it does not say what it is."""
        name = node.planned.name
        began = time.monotonic()
        request = facts_request(self._plan, node.planned)
        self.facts[name] = facts = await client.call("facts", request, HostFacts, FACTS_TIMEOUT_S)
        took_s = time.monotonic() - began
        self._judge(name, took_s)
        await asyncio.gather(self._check_gpus(node, client, facts), self._check_framework(node, facts))

    async def _check_framework(self, node: Checked, facts: HostFacts) -> None:
        if await self._frameworks.check(node, self._plan, facts):
            self._judge(node.planned.name)

    async def _ask_framework(self, name: str) -> None:
        """Ask again, since the plan is another one by what the hosts say."""
        await self._frameworks.ask(self._nodes[name], self._planned(name), self._plan)
        self._judge(name)

    async def _check_gpus(self, node: Checked, client: AgentClient, facts: HostFacts) -> None:
        name = node.planned.name
        measured = await self._timed(
            name, Check.GPUS, read_sample(client, facts, None), GPU_WAIT_S + SAMPLE_WAIT_S, also=Check.HEALTH
        )
        if measured is not None:
            self._samples[name], seconds = measured
            self._judge(name, seconds)

    async def _check_paths(self, node: Checked, client: AgentClient) -> None:
        name = node.planned.name
        checkpoints = _checkpoints(node.planned)
        wanted = [*node.planned.required_paths, *([checkpoints] if checkpoints else [])]
        programs: tuple[str, ...] = ()
        search_path: str | None = None
        if node.planned.processes:
            process = node.planned.processes[0]
            programs, files = needs_on_host(process)
            wanted += [path for path in files if path not in wanted]
            search_path = process.env.get("PATH")
        request = PathsRequest(wanted, PATHS_S, list(programs), search_path)
        asking = client.call("paths", request, PathsReply, PATHS_TIMEOUT_S)
        measured = await self._timed(name, Check.PATHS, asking, PATHS_TIMEOUT_S, also=Check.ROOM)
        if measured is not None:
            self._paths[name], seconds = measured
            self._judge(name, seconds)

    async def _check_image(self, node: Checked, client: AgentClient) -> None:
        name, container = node.planned.name, self._plan.container
        if container is None:
            return
        asking = client.call("image", ImageRequest(container.engine, container.image), ImageReply, IMAGE_TIMEOUT_S)
        measured = await self._timed(name, Check.SOFTWARE, asking, IMAGE_TIMEOUT_S)
        if measured is not None:
            self._images[name], seconds = measured
            await self._look_inside(node, client)
            self._judge(name, seconds)

    async def _look_inside(self, node: Checked, client: AgentClient) -> None:
        """Ask the interpreter in a job's image for what the script imports; where it does not tell, nothing is said."""
        request = in_container(self._plan, node.planned)
        name = node.planned.name
        if request is None or not self._images[name].has_image:
            return
        with contextlib.suppress(HostError, asyncio.TimeoutError):
            facts = await within(client.call("facts", request, HostFacts, FACTS_TIMEOUT_S), FACTS_TIMEOUT_S)
            if (told := python_inside(self._plan, facts)) is not None:
                self._inside[name] = told

    async def _check_network(self, node: Checked, client: AgentClient) -> None:
        name = node.planned.name
        if len(self.board.names) == 1:
            only = Judgement(_("one node"), status=CheckStatus.NONE)
            self.board.put(name, {Check.PEERS: only})
            await self._probe(name, Check.MASTER, self._network.try_port(name, client), PATHS_TIMEOUT_S)
            return
        usual = node.environment.address or client.connection.address
        opening = self._network.listen(name, client, usual)
        if await self._timed(name, Check.MASTER, opening, PATHS_TIMEOUT_S, also=Check.PEERS) is None:
            self._network.peers[name].give_up()
            return
        address = await asyncio.shield(self._master_address)
        to_master = self._probe(name, Check.MASTER, self._network.reach_master(name, address))
        to_next = self._probe(name, Check.PEERS, self._network.reach_next(name))
        if self._measures_bandwidth:  # A round trip is measured on a quiet network.
            await to_master
            await to_next
        else:
            await asyncio.gather(to_master, to_next)

    async def _probe(
        self, name: str, check: Check, probing: Awaitable[Judgement], limit_s: float = NETWORK_TIMEOUT_S
    ) -> None:
        measured = await self._timed(name, check, probing, limit_s)
        if measured is not None:
            self.board.put(name, {check: measured[0]}, measured[1])

    async def _timed(
        self, name: str, check: Check, asking: Awaitable[Value], limit_s: float, *, also: Check | None = None
    ) -> tuple[Value, float] | None:
        """Await an answer; return it and how long it took, or write why there is none and return `None`."""
        began = time.monotonic()
        try:
            return await within(asking, limit_s), time.monotonic() - began
        except asyncio.TimeoutError:
            reason = _("timed out after {seconds} s").format(seconds=f"{limit_s:g}")
            hint = ""
        except AgentError as failure:
            is_old = failure.code == ErrorCode.UNKNOWN_METHOD
            reason = _("its agent is too old for this check") if is_old else failure.message
            hint = _("Upgrade the agent: dttui agents deploy {host}").format(host=name) if is_old else failure.hint
        except HostError as failure:
            reason, hint = failure.message, failure.hint
        message = _("{host}: {check} could not be checked: {reason}")
        message = message.format(host=name, check=check_name(check), reason=reason)
        found = Judgement(reason, (warning("unchecked", name, message, hint),), CheckStatus.UNKNOWN)
        self.board.put(name, {check: found}, time.monotonic() - began)
        if also is not None:
            self.board.put(name, {also: Judgement(reason, status=CheckStatus.UNKNOWN)}, time.monotonic() - began)
        return None

    def _judge(self, name: str, seconds: float | None = None) -> None:
        """Judge, or judge again, what can be told of a node by the plan as it is now.

        Args:
            name: of the node.
            seconds: how long the checks took that could not be judged before.
        """
        facts, sample, paths = self.facts.get(name), self._samples.get(name), self._paths.get(name)
        planned = self._planned(name)
        room = room_for_checkpoints(self._plan.resumption, planned, self._checkpoint_bytes)
        told = hosts.HostAnswers(planned, self._plan.world_size, _checkpoints(planned), room, facts, sample, paths)
        found = hosts.judge_answers(told)
        if name in self._offsets:
            everyone = [offset_s for offset_s, _trip_s in self._offsets.values()]
            found[Check.CLOCK] = hosts.judge_clock(name, *self._offsets[name], everyone, min_nodes=self._plan.min_nodes)
        if facts is not None and self._plan.container is None:
            found[Check.SOFTWARE] = self._frameworks.add_to(judge_software(self._plan, planned, facts), planned)
        if sample is not None:
            found[Check.GPUS] = judge_gpus(self._plan, self._inventory, planned, sample)
        if self._plan.container is not None and name in self._images:
            judged = judge_image(name, self._plan.container, self._images[name])
            texts = (judged.text, unread(self._plan, thorough=self._is_thorough))
            inside = self._inside.get(name)
            lacks = tuple(missing_modules(self._plan, name, inside)) if inside is not None else ()
            text = joined(" · ", filter(None, texts))
            found[Check.SOFTWARE] = replace(judged, text=text, findings=(*judged.findings, *lacks))
        self.board.put(name, found, seconds)

    async def _read_again(self, name: str) -> None:
        with contextlib.suppress(HostError):  # The first reading stands.
            client = await self._nodes[name].connect()
            after = self._samples[name].seq
            self._samples[name] = await read_sample(client, self.facts[name], after)
            self._judge(name)

    def _planned(self, name: str) -> PlannedNode:
        return next((node for node in self._plan.nodes if node.name == name), self._nodes[name].planned)

    def _with_addresses(self) -> Inventory:
        """Give each environment without an address the one we reached it by: hosts may not know each other's names."""
        environments = tuple(
            item
            if item.address or item.name not in self._reached
            else item.model_copy(update={"address": self._reached[item.name]})
            for item in self._inventory.environments
        )
        return self._inventory.model_copy(update={"environments": environments})


def room_for_checkpoints(resumption: Resumption, node: PlannedNode, measured: Mapping[str, int]) -> int | None:
    """Return what an attempt's checkpoints take on a node; `None` where nobody knows.

    Where each host has a disk of its own, the estimate is of the master's, and the nodes after it hold the copies.

    Args:
        resumption: of the plan.
        node: of the plan.
        measured: node → bytes of one that was seen there in an attempt before.
    """
    is_estimated = resumption.shared or node.node_rank <= resumption.copies
    size = measured.get(node.name) or (max(measured.values(), default=None) if is_estimated else None)
    if size is not None and resumption.is_kept:
        return (resumption.keep + 1) * size
    return resumption.room_bytes if is_estimated else None


def _checkpoints(node: PlannedNode) -> str | None:
    """Return where checkpoints go, where that is known before the start."""
    directory = checkpoint_directory(node)
    return directory if directory and directory.startswith("/") and not holes_in(directory) else None
