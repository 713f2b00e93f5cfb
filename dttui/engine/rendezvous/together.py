"""Whether the ranks of an attempt train together: what they say of the process groups that they have formed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dtagent.protocol.meeting import FormedGroup, GroupNote

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_run import NodeRun
from dttui.frameworks import traits_of
from dttui.frameworks.traits import GroupForming
from dttui.i18n import Message, joined, msg, nmsg
from dttui.jobs.disturbances import APART
from dttui.planning.models import Plan
from dttui.spec.findings import Finding, Severity, info
from dttui.words import rank_names

SETTLE_S = 5.0
"""How long it must have been so before it is told: a script may form a small group first."""
LEAST_REPORTS = 2
"""Of one node, after which a rank without a group is not still on its way to one."""
MOST_NAMED = 4
SUBJECT = "require_process_group"
FAKE = "fake"
"""The backend of torch that only pretends."""


@dataclass(frozen=True)
class Apart:
    """That the ranks do not train together."""

    message: Message
    why: Message
    """What is likely to be the reason, and what to do about it."""
    is_final: bool
    """Whether every rank has formed a group, so that none is still on its way to one."""

    @property
    def whole(self) -> Message:
        """Both in a row."""
        return msg("{message}. {hint}", message=self.message, hint=self.why)


@dataclass
class _Said:
    """What the ranks say, put together."""

    nodes: dict[int, str] = field(default_factory=dict)
    """Rank → its node, of all that are to be in one group."""
    known: set[int] = field(default_factory=set)
    """Ranks of which anything is said."""
    groups: dict[int, dict[str, int]] = field(default_factory=dict)
    """Rank → the groups that it has formed, oldest first, each with the rank's place there."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Group → how many ranks it has by their word."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Group → what it goes by for a rank that could not ask its store, which may have gone already."""
    notes: set[str] = field(default_factory=set)

    @property
    def last(self) -> dict[int, str]:
        """Rank → the group that it has formed last."""
        return {rank: [*groups][-1] for rank, groups in self.groups.items()}

    def take(self, node: str, entry: FormedGroup, own: Sequence[int]) -> None:
        """Take in what some ranks of a node say."""
        is_group = entry.world_size > 0 and entry.backend != FAKE and len(entry.places) == len(entry.ranks)
        kind = f"{entry.backend} {entry.world_size}"
        group = entry.members or kind
        for index, rank in enumerate(entry.ranks):
            if rank in own:
                self.known.add(rank)
                self.notes.update(entry.notes)
                if is_group:
                    self.groups.setdefault(rank, {})[group] = entry.places[index]
                    self.sizes[group], self.kinds[group] = entry.world_size, kind

    def is_whole(self) -> bool:
        """Whether all that have formed any group have one of all ranks in common, which some of them have still."""
        last = set(self.last.values())
        for group in last:
            kind = self.kinds[group]
            places = [groups.get(group, groups.get(kind)) for groups in self.groups.values()]
            # A group without a store says not who is in it; two ranks in one place of it are in two groups.
            if self.sizes[group] >= len(self.nodes) and None not in places and len({*places}) == len(places):
                return True
        return False

    def parties(self) -> list[int]:
        """Return the sizes of the groups that ranks have formed last, the largest first."""
        last, found = self.last, []
        known = {self.kinds[group] for group in last.values() if self.kinds[group] != group}
        for group in set(last.values()) - known:
            places = Counter(self.groups[rank][group] for rank, item in last.items() if item == group)
            found += [self.sizes[group]] * max(places.values())
        return sorted(found, reverse=True)


class TogetherWatch:
    """Tells once, and takes back, that ranks do not train together; says so at the end as well.

    Ranks of which nothing is known, since an older agent tells nothing of them, are not judged.

    Args:
        plan: what runs.
        nodes: returns those whose ranks are to be together, in order of node rank.
        log: of the attempt.
    """

    def __init__(self, plan: Plan, nodes: Callable[[], Sequence[NodeRun]], log: AttemptLog) -> None:
        self._nodes = nodes
        self._log = log
        self._group = traits_of(plan.framework).process_group
        self.is_required = plan.require_process_group is True
        is_seen = self._group.forming is GroupForming.EXPECTED or any(node.starts_own_ranks for node in plan.nodes)
        is_usual = plan.require_process_group == "auto" and is_seen
        is_expected = self.is_required or is_usual
        self._is_judged = is_expected and plan.world_size > 1
        self._since: float | None = None
        self._rounds: set[tuple[int, int]] = set()
        """Store's port and world size of what torchrun has numbered last."""
        self._reports: dict[str, int] = {}
        """Node → how many reports it had when its ranks were numbered last."""
        self._told: Apart | None = None
        self._is_settled = False
        """Whether there is one group of all."""

    @property
    def wait_s(self) -> float | None:
        """When to look again though no host says anything new; `None` for never."""
        return SETTLE_S if self._is_judged and self._told is None and not self._is_settled else None

    def look(self) -> Apart | None:
        """Tell what is plain by now; return it where the ranks do not train together."""
        said = self._said()
        apart = self._apart(said) if said is not None else None
        self._is_settled = said is not None and bool(said.groups) and apart is None
        if apart is None:
            self._since = None
            if self._is_settled:
                self._take_back(msg("all ranks are in one process group now"))
            return None
        now = asyncio.get_running_loop().time()
        if not (apart.is_final or self._has_reported()):
            self._since = None
            return None
        self._since = now if self._since is None else self._since
        if now - self._since < SETTLE_S and self._told is None:
            return None
        self._tell(apart)
        return apart

    def end(self) -> Apart | None:
        """Tell, once all ranks have ended well, that they have not trained together; return it where that is so."""
        said = self._said()
        apart = self._apart(said) if said is not None else None
        if apart is None and self.is_required and self._is_judged and (said is None or not said.groups):
            message = msg("whether the ranks have formed a process group is not known")
            why = msg("An agent too old does not tell: `dttui agents upgrade`.")
            if any(node.planned.starts_own_ranks for node in self._nodes()):
                why = msg("Of what the command has started no Python was seen as a rank: it has to keep PYTHONPATH.")
            apart = Apart(message, why, is_final=True)
        if apart is not None:
            self._tell(apart)
        elif said is not None and said.groups:
            self._take_back(msg("all ranks are in one process group now"))
        else:
            self._take_back(msg("whether the ranks have formed a process group is not known"))
        return apart

    def _has_reported(self) -> bool:
        """Whether the ranks of a node make steps, those that torchrun has started last."""
        return any(node.record.reports - self._reports.get(node.name, 0) >= LEAST_REPORTS for node in self._nodes())

    def _take_back(self, message: Message) -> None:
        if self._told is not None:
            self._told = None
            self._log.tell(info(APART, SUBJECT, message))

    def _tell(self, apart: Apart) -> None:
        self._told = apart
        severity = Severity.ERROR if self.is_required else Severity.WARNING
        way_out = msg("{why} Where ranks are to train apart, write require_process_group: false.", why=apart.why)
        hint = apart.why if self.is_required else way_out
        self._log.tell(Finding(code=APART, severity=severity, subject=SUBJECT, message=apart.message, hint=hint))

    def _said(self) -> _Said | None:
        """Return what the ranks say; `None` where torchrun is just numbering them, or nobody asks."""
        if not self._is_judged:
            return None
        nodes = [node for node in self._nodes() if not node.serves_only]
        rounds = {(node.numbering.port, node.numbering.world_size) for node in nodes if node.numbering is not None}
        if rounds != self._rounds:
            self._rounds = rounds
            self._reports = {node.name: node.record.reports for node in nodes}
        if len(rounds) > 1:
            return None
        said = _Said()
        for node in nodes:
            own = node.ranks
            said.nodes.update(dict.fromkeys(own, node.name))
            groups = node.status.groups if node.status is not None else None
            for entry in sorted(groups or (), key=lambda item: item.turn):
                if GroupNote.UNSEEN not in entry.notes:
                    said.take(node.name, entry, own)
        return said

    def _apart(self, said: _Said) -> Apart | None:
        count = len(said.nodes)
        if count < 2 or not said.known or said.is_whole():
            return None
        alone = [(rank, said.nodes[rank]) for rank in sorted(said.known - said.groups.keys())]
        if not said.groups:
            if len(said.known) < count:
                return None
            message = nmsg(
                "the rank has formed no process group",
                "the {count} ranks have formed no process group: each seems to train by itself",
                count,
            )
            if GroupNote.LAUNCHER in said.notes or GroupNote.TORCH not in said.notes:
                message = nmsg(
                    "the rank has formed no process group itself",
                    "the {count} ranks have formed no process group themselves",
                    count,
                )
            return Apart(message, self._why_none(said.notes), is_final=False)
        sizes = said.parties()
        if sizes == [count]:
            return None  # Not all members of it could ask its store, and who they are does not fit together.
        if len(sizes) > 1:
            shown = joined(", ", [str(size) for size in sizes[:MOST_NAMED]]) + (", …" if sizes[MOST_NAMED:] else "")
            message = msg(
                "the {count} ranks have formed {groups} process groups, of {sizes}: they do not train together",
                count=count,
                groups=len(sizes),
                sizes=shown,
            )
        else:
            message = nmsg(
                "{size} of {count} ranks is in the process group",
                "{size} of {count} ranks are in the process group",
                sizes[0],
                size=sizes[0],
                count=count,
            )
            if alone:
                message = msg("{what}; none: {who}", what=message, who=rank_names(alone, MOST_NAMED))
        return Apart(message, self._why_several(said.notes), is_final=said.known == {*said.nodes} and not alone)

    def _why_none(self, notes: set[str]) -> Message:
        if self._group.why_none is not None:
            why = msg(self._group.why_none)
        elif GroupNote.LAUNCHER in notes:
            why = msg(
                "The script starts processes of its own, which are not looked into. Where it is those that train, "
                "leave that to dttui, which has started one a GPU already."
            )
        elif GroupNote.ACCELERATE in notes:
            why = msg(
                "accelerate has chosen no distribution, as it does where it sees no GPU; ACCELERATE_USE_CPU=true makes "
                "it distribute on CPUs."
            )
        elif GroupNote.TORCH in notes:
            why = msg("The script never calls init_process_group, nor anything that does so for it.")
        else:
            why = msg(
                "The process that was started does not import torch.distributed: it is a launcher of others, or a "
                "script for one process."
            )
        return why

    def _why_several(self, notes: set[str]) -> Message:
        if self._group.why_several is not None:
            why = msg(self._group.why_several)
        elif GroupNote.WORLD_SIZE in notes:
            why = msg("The script has changed WORLD_SIZE: leave it, RANK and MASTER_ADDR as they are when it starts.")
        else:
            why = msg(
                "init_process_group was given a world_size, a store or an init_method of the script's own; without "
                "them it takes those of the job."
            )
        return why
