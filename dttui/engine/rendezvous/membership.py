"""Who takes part in an elastic attempt, as torchrun's own rendezvous has it by now, and whether it can go on."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from dtagent.protocol.events import Event, NodeStanding
from dtagent.protocol.jobs import NodeState
from dtagent.protocol.meeting import Numbering

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.failures import LEFT, FoundFailure, cause_of, ending, is_consequence, rank_failures
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.rendezvous import tampering
from dttui.engine.rendezvous.tampering import CODE
from dttui.engine.restart_report import RoundRestartReport
from dttui.i18n import Message, msg, nmsg
from dttui.jobs import LAUNCHER, JobDirectory
from dttui.jobs.view import NODE_OUT
from dttui.spec.findings import warning
from dttui.words import listed

MOST_NAMES = 3
"""Hosts that a message names."""
HOSTLESS_S = 60.0
"""How long all other ranks may have ended while the rendezvous' host is silent. torchrun itself waits as long as nodes
may take to come together at first."""
_BY_SIGNAL = 128
"""Exit codes from here on are of a launcher that was ended from outside."""


class Membership:
    """Tells whom torchrun has numbered how, and of each node that is out; says when that ends the attempt.

    A node is out for good once its part has failed or is given up, or it is silent and the others run without it.
    torchrun would take back one whose link was only cut: dttui ends it, as it ends any node that it gave up.

    Args:
        directory: of the job.
        nodes: in order of node rank; the rendezvous is on the first.
        log: of the attempt.
        min_nodes: with how many the attempt can go on.
        secrets: values that no event may hold.
        told: what another controller has told of the attempt.
    """

    def __init__(
        self,
        directory: JobDirectory,
        nodes: Sequence[NodeRun],
        log: AttemptLog,
        min_nodes: int,
        secrets: Sequence[str],
        told: Sequence[Event] = (),
    ) -> None:
        self._directory = directory
        self._nodes = nodes
        self._log = log
        self._min_nodes = min_nodes
        self._secrets = secrets
        self._round: tuple[int, int] | None = None
        """Store's port and world size of the newest round that all its nodes have started."""
        self._failed: dict[str, FoundFailure] = {}
        """Node → what failed there first since its ranks were last started."""
        self._hostless_from: float | None = None
        """By this process' own clock, since when it is known that no rank is left but on a silent host: no other clock
        is asked, of which one may be set and the hosts' differ."""
        self._restarts: dict[str, int] = {}
        self._report = RoundRestartReport(log, nodes[0].shared.steps, told)
        self.out: dict[str, str] = {}
        """Node → why it takes part no more, in the order in which that came to be known."""
        self.end: Message | None = None
        """Why the others cannot go on."""

    @property
    def members(self) -> list[NodeRun]:
        """The nodes that are not out."""
        return [node for node in self._nodes if node.name not in self.out]

    @property
    def survived(self) -> set[str]:
        """The nodes that are out, but for the one that ends the attempt."""
        names = list(self.out)
        return set(names if self.end is None else names[:-1])

    @property
    def has_succeeded(self) -> bool:
        """Whether the attempt went on to a good end of all that were left."""
        return self.end is None and all(node.has_succeeded for node in self.members)

    @property
    def wait_s(self) -> float | None:
        """When to look for nodes that are out though nothing changes, from now; `None` for never."""
        if not self._is_hostless:
            self._hostless_from = None
            return None
        now = time.monotonic()
        self._hostless_from = now if self._hostless_from is None else self._hostless_from
        return max(0.0, self._hostless_from + HOSTLESS_S - now)

    def learn(self) -> None:
        """Tell of each node whose ranks torchrun has numbered, or started again."""
        for node in self.members:
            if (numbering := node.numbering) is not None:
                self._tell(node, numbering)
            if (finding := tampering.when_mended(self._nodes, node)) and not self._log.has_told(CODE, node.name):
                self._log.tell(finding)
            if node.status is not None and node.status.failures and node.name not in self._failed:
                failures = rank_failures(self._directory, [node], self._secrets)
                for failure in (item for item in failures[:1] if item.rank is not None):
                    self._failed[failure.node] = failure
                    if not is_consequence(failure.data):
                        self._report.on_failure(cause_of(failure.data), failure.time)

    def new_round(self) -> Message | None:
        """Return what to tell once all nodes of a round run that was not told of yet."""
        rounds: dict[tuple[int, int], list[NodeRun]] = {}
        for node in self.members:
            if node.numbering is not None and node.has_all_ranks:
                rounds.setdefault((node.numbering.port, node.numbering.world_size), []).append(node)
        for key, nodes in rounds.items():
            if key != self._round and sorted(rank for node in nodes for rank in node.ranks) == list(range(key[1])):
                self._round = key
                for node in self.members:
                    if node not in nodes and (node.has_failed or node.silent_since is not None):
                        self._report.on_failure(*self._failure_of(node))
                self._report.on_round(max(node.numbering.restarts for node in nodes if node.numbering is not None))
                return nmsg(
                    "{count} rank runs, on {nodes} of {all} nodes",
                    "{count} ranks run, on {nodes} of {all} nodes",
                    key[1],
                    nodes=len(nodes),
                    all=len(self._nodes),
                )
        return None

    def newly_out(self, broken: Collection[str]) -> list[NodeRun]:
        """Return the nodes that are out since the last look, each told of.

        Args:
            broken: names of nodes that can no longer be followed.
        """
        found = []
        for node in self.members:
            why = self._why_out(node, broken)
            if why is None or self.end is not None:
                continue
            found.append(node)
            self.out[node.name] = why
            self.end = self._why_over(node)
            if self.end is None:
                # Else the others were numbered anew for it, and that is told. Who came later has seen no round yet.
                if self._is_inside(node) or (self._round is None and node.numbering is not None):
                    self._report.on_failure(*self._failure_of(node))
                self._tell_out(node, why)
        return found

    def left_behind(self) -> list[NodeRun]:
        """Return the nodes that did not take part any more when the others ended well: they are out from now on."""
        inside = [node for node in self.members if self._is_inside(node)]
        if self.end is not None or not inside or not all(node.has_succeeded for node in inside):
            return []
        found = [node for node in self.members if node not in inside and not node.has_succeeded]
        for node in found:
            self.out[node.name] = why = msg("the others have ended without {host}", host=node.name)
            self._tell_out(node, why)
        return found

    def outcome(self) -> Message | None:
        """Return how the attempt ended well though nodes are out; `None` where none is."""
        if not self.out:
            return None
        return msg("ended well, without {hosts}", hosts=listed(list(self.out), MOST_NAMES))

    def _tell(self, node: NodeRun, numbering: Numbering) -> None:
        count, ranks, size = len(numbering.ranks), _span(numbering.ranks), numbering.world_size
        message = nmsg("{host}: rank {ranks} of {size}", "{host}: ranks {ranks} of {size}", count,
                        host=node.name, ranks=ranks, size=size)  # fmt: skip
        before = self._restarts.get(node.name, 0)
        if numbering.restarts > before:
            message = nmsg(
                "torchrun started the rank of {host} again: rank {ranks} of {size} now",
                "torchrun started the ranks of {host} again: ranks {ranks} of {size} now",
                count,
                host=node.name,
                ranks=ranks,
                size=size,
            )
            failure = self._failed.pop(node.name, None)
            if failure is not None and not is_consequence(failure.data):
                message = msg("{what}; before that {why}", what=message, why=failure.message)
        self._restarts[node.name] = numbering.restarts
        self._log.number(node.name, message, numbering)

    def _why_out(self, node: NodeRun, broken: Collection[str]) -> str | None:
        if node.name in broken:
            return msg("{host} could not be followed", host=node.name)
        if node.has_failed and node.status is not None:
            is_known = node.status.state not in (NodeState.LOST, NodeState.UNKILLABLE)
            failures = rank_failures(self._directory, [node], self._secrets) if is_known else []
            said = failures[0].message if failures else ending(node.status)
            return said or msg("{host} did not end well", host=node.name)
        if node.is_lost or (node.silent_since is not None and self._round is not None and not self._is_inside(node)):
            return msg("no word from {host}", host=node.name)
        if node is self._nodes[0] and self.wait_s == 0:
            return msg("no word from {host}", host=node.name)
        return None

    def _failure_of(self, node: NodeRun) -> tuple[str | None, float]:
        """Return the cause for which a node is out, and when that happened, by the login node's clock."""
        failures = rank_failures(self._directory, [node], self._secrets) if node.has_failed else []
        if failures:
            return cause_of(failures[0].data), failures[0].time
        return "node-lost", node.silent_since or time.time()

    @property
    def _is_hostless(self) -> bool:
        """Whether the rendezvous' host is silent and the ranks of all other nodes have ended."""
        host, *others = self.members
        is_silent = host is self._nodes[0] and host.silent_since is not None
        return is_silent and bool(others) and all(node.name in self._failed for node in others)

    def _is_inside(self, node: NodeRun) -> bool:
        numbering = node.numbering
        return numbering is not None and (numbering.port, numbering.world_size) == self._round

    def _why_over(self, node: NodeRun) -> Message | None:
        if why := tampering.why_ended(self._nodes):
            return why
        exits = node.status.exits if node.status is not None else ()
        code = next((item.exit_code for item in exits if item.name == LAUNCHER), None)
        if code is not None and code != LEFT and code < _BY_SIGNAL:
            restarts = node.numbering.restarts if node.numbering is not None else 0
            if any(f"--max-restarts={restarts}" in process.argv for process in node.planned.processes):
                return msg(
                    "torchrun has given up on {host}, where max_restarts ({count}) is used up; that closes the "
                    "rendezvous for all",
                    host=node.name,
                    count=restarts,
                )
            return msg("torchrun has given up on {host}, which closes the rendezvous for all", host=node.name)
        if node is self._nodes[0]:
            return msg("the rendezvous was on {host}, and the job ends with it", host=node.name)
        left = len(self.members)
        if left < self._min_nodes and self._nodes[0].silent_since is not None:
            return msg("no word from {host}, where the rendezvous was", host=self._nodes[0].name)
        if left < self._min_nodes:
            return nmsg(
                "{count} node is left, and {least} are needed",
                "{count} nodes are left, and {least} are needed",
                left,
                least=self._min_nodes,
            )
        return None

    def _tell_out(self, node: NodeRun, why: str) -> None:
        message = msg("{host} is out: {why}. The job goes on with {count} of {all} nodes", host=node.name, why=why,
                       count=len(self.members), all=len(self._nodes))  # fmt: skip
        self._log.tell(warning(NODE_OUT, node.name, message))
        if node.silent_since is not None:
            self._log.note(
                node.name, NodeStanding.LOST, msg("out of the job, and out of reach; what runs there is unknown")
            )


def _span(ranks: Sequence[int]) -> str:
    return f"{ranks[0]}–{ranks[-1]}" if len(ranks) > 1 else str(ranks[0])
