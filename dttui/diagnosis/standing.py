"""Groups ranks by where they stand, from their stacks: whose frame tells that, and who waits for whom. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from dtagent.protocol.stacks import Frame, ProcessStacks, RankStacks

from dttui.agent_words import agent_text
from dttui.i18n import Message, msg, nmsg
from dttui.sanitize import clean
from dttui.words import listed

MOST_NAMES = 4
MOST_SPANS = 8
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3[\d.]*/|^<|/dtagent/|/jobs/[^/]+/\d+/payload/")
_LAUNCHER = re.compile(r"/jobs/[^/]+/\d+/payload/|/dtagent/payload/")
_SENT = re.compile(r"^.*/jobs/[^/]+/\d+/(?:work/)?(?=.)")
_COLLECTIVES = re.compile(
    r"(?:all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|reduce|gather|scatter|barrier|monitored_barrier|"
    r"send|recv|isend|irecv|batch_isend_irecv|allreduce|allgather|alltoall|reducescatter|new_group|"
    r"init_process_group|destroy_process_group)(?:_\w+)?"
)
_COLLECTIVE_FILES = re.compile(r"/torch/distributed/|/horovod/|/deepspeed/comm/|/mpi4py/")
_WRAPPERS = re.compile(
    r"_?wrapper|wrapped|inner|_fn|_call_impl|_wrapped_call_impl|__call__|decorate_\w+|_exception_logger|"
    r"<lambda>|__enter__|__exit__|_time_logger|func_wrapper|_run_code|_run_module_code|run_path|run_module"
)
LOADER = "DataLoader"
_LOADER = re.compile(r"/torch/utils/data/")


class Standing(str, Enum):
    """How a rank stands there."""

    COLLECTIVE = "collective"
    """It waits for others in a collective."""
    CALL = "call"
    """In a library's call."""
    OWN = "own"
    """In the script's own code."""
    STOPPED = "stopped"
    """Stopped by a signal, or by a debugger."""
    KERNEL = "kernel"
    """In a wait of the kernel's that no signal ends."""
    GONE = "gone"
    """Its process is not there any more."""
    ENDED = "ended"
    """It has ended well."""
    UNREADABLE = "unreadable"
    """There is a process, and nothing tells its stack."""


@dataclass(frozen=True)
class RankPlace:
    """Where a process stands: what it has in common with others that stand there."""

    standing: Standing
    call: str = ""
    """Of a library, where it is in one: `all_reduce`."""
    function: str = ""
    """Of the script."""
    file: str = ""
    line: int | None = None
    detail: str = ""
    """Of the kernel's wait; or why there is no stack."""

    @property
    def at(self) -> str:
        """`train.py:88`."""
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line}" if self.line is not None else name


@dataclass(frozen=True)
class RankGroup:
    """Ranks that stand at one place, or the processes below them that do."""

    place: RankPlace
    ranks: tuple[tuple[int, str], ...]
    """Each with its node."""
    below: tuple[tuple[RankPlace, int], ...] = ()
    """Where the processes below them stand, and how many."""


def groups_of(found: Iterable[tuple[str, RankStacks]]) -> tuple[RankGroup, ...]:
    """Return where ranks stand, the largest group first and those that wait for others before those that do not."""
    ranks: dict[RankPlace, list[tuple[int, str]]] = {}
    below: dict[RankPlace, dict[RankPlace, int]] = {}
    for node, rank in found:
        place = place_of_rank(rank)
        ranks.setdefault(place, []).append((rank.rank, node))
        counted = below.setdefault(place, {})
        for child in rank.children:
            # Such as a resource tracker's, or a compiler's: what is not of Python's tells nothing of the script.
            if child.threads or child.state in "TtD":
                where = place_of(child)
                if where.standing is Standing.CALL and where.call == LOADER:
                    continue  # A worker that has nothing to load.
                counted[where] = counted.get(where, 0) + 1
    groups = [RankGroup(place, tuple(sorted(who)), tuple(below[place].items())) for place, who in ranks.items()]
    return tuple(sorted(groups, key=lambda group: (group.place.standing is not Standing.COLLECTIVE, -len(group.ranks))))


def place_of_rank(rank: RankStacks) -> RankPlace:
    """Return where a rank stands."""
    if rank.process is None:
        return RankPlace(Standing.ENDED if rank.has_ended else Standing.GONE)
    return place_of(rank.process)


def place_of(process: ProcessStacks) -> RankPlace:
    """Return where a process stands: in its state what the kernel says, before what its stack does."""
    main = next((thread for thread in process.threads if thread.is_main), None) or next(iter(process.threads), None)
    why_unread = agent_text(process.detail, process.detail_notice)
    place = place_of_frames(main.frames) if main is not None else RankPlace(Standing.UNREADABLE, detail=why_unread)
    special = {"T": Standing.STOPPED, "t": Standing.STOPPED, "D": Standing.KERNEL}.get(process.state)
    if special is None:
        return place
    detail = clean(process.wait_channel) if special is Standing.KERNEL else ""
    return RankPlace(special, place.call, place.function, place.file, place.line, detail)


def place_of_frames(frames: Sequence[Frame]) -> RankPlace:
    """Return where a thread stands by its calls, the innermost first."""
    own = next((number for number, frame in enumerate(frames) if not _LIBRARY.search(frame.file)), None)
    inner = [frame for frame in frames[: len(frames) if own is None else own] if not _WRAPPERS.fullmatch(_plain(frame))]
    standing, called = _called(inner)
    call = ""
    if called is not None:
        call = LOADER if _LOADER.search(called.file) and standing is Standing.CALL else _plain(called)
    if own is None:
        at = called or (frames[0] if frames else Frame("", ""))
        return RankPlace(standing if frames else Standing.UNREADABLE, clean(call), "", in_job(at.file), at.line)
    frame = frames[own]
    return RankPlace(standing, clean(call), clean(_plain(frame)), in_job(frame.file), frame.line)


def _called(inner: Sequence[Frame]) -> tuple[Standing, Frame | None]:
    """Return in what kind of call a thread is below the script, and in which: the one nearest to it."""
    if not inner:
        return Standing.OWN, None
    nearest = list(reversed(inner))
    for frame in nearest:
        if _is_collective(frame):
            return Standing.COLLECTIVE, frame
    return Standing.CALL, next((frame for frame in nearest if _LOADER.search(frame.file)), inner[-1])


def in_job(file: str) -> str:
    """Return a path as all nodes have it: what was sent along lies in another directory on each."""
    return _SENT.sub("", clean(file))


def is_launcher(frame: Frame) -> bool:
    """Whether it is one of those that run the script, which are the same everywhere."""
    return bool(_LAUNCHER.search(frame.file))


def _plain(frame: Frame) -> str:
    """Return the name of a function without its class's, which only py-spy tells."""
    return frame.name.rpartition(".")[2]


def _is_collective(frame: Frame) -> bool:
    return bool(_COLLECTIVE_FILES.search(frame.file)) and bool(_COLLECTIVES.fullmatch(_plain(frame)))


def sentences(groups: Sequence[RankGroup]) -> tuple[Message, ...]:
    """Return what there is to say of each group, in words."""
    total = sum(len(group.ranks) for group in groups)
    told: list[Message] = []
    for group in groups:
        told.append(_sentence(group.place, _who(group, total), len(group.ranks)))
        told += [_below(place, count) for place, count in group.below]
    return tuple(told)


def _who(group: RankGroup, total: int) -> Message:
    if len(group.ranks) == 1:
        rank, node = group.ranks[0]
        return msg("rank {rank} on {host}", rank=rank, host=node)
    who = spans([rank for rank, _node in group.ranks])
    return msg("{count} of {total} ranks ({ranks})", count=len(group.ranks), total=total, ranks=who)


def spans(ranks: Sequence[int]) -> str:
    """Return `0–3, 5` for ranks in order."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return listed([str(first) if first == last else f"{first}–{last}" for first, last in parts], MOST_SPANS)


def _sentence(place: RankPlace, who: Message, count: int) -> Message:
    at = place.at
    if place.standing is Standing.GONE:
        return nmsg("{who}: its process is gone", "{who}: their processes are gone", count, who=who)
    if place.standing is Standing.ENDED:
        return nmsg("{who} has ended well", "{who} have ended well", count, who=who)
    if place.standing is Standing.UNREADABLE:
        why = place.detail or msg("nothing on the host can read it")
        return msg("{who}: no stack could be read ({why})", who=who, why=why)
    if place.standing is Standing.STOPPED:
        text = nmsg("{who} is stopped by a signal (SIGSTOP) or a debugger",
                    "{who} are stopped by a signal (SIGSTOP) or a debugger", count, who=who)  # fmt: skip
        return msg("{what}, at {place}", what=text, place=_where(place)) if at else text
    if place.standing is Standing.KERNEL:
        text = nmsg("{who} waits in the kernel, where no signal reaches it",
                    "{who} wait in the kernel, where no signal reaches them", count, who=who)  # fmt: skip
        if place.detail:
            text = msg("{what} ({channel})", what=text, channel=place.detail)
        return msg("{what}, at {place}", what=text, place=_where(place)) if at else text
    if place.standing is Standing.COLLECTIVE:
        return nmsg("{who} waits in {call} at {place}", "{who} wait in {call} at {place}", count,
                    who=who, call=place.call, place=_own(place))  # fmt: skip
    if place.standing is Standing.CALL:
        return nmsg("{who} is in {call} at {place}", "{who} are in {call} at {place}", count,
                    who=who, call=place.call, place=_own(place))  # fmt: skip
    return nmsg("{who} is at {place}", "{who} are at {place}", count, who=who, place=_own(place))


def _where(place: RankPlace) -> str:
    return msg("{call}, called at {place}", call=place.call, place=_own(place)) if place.call else _own(place)


def _own(place: RankPlace) -> str:
    return f"{place.at} ({place.function})" if place.function and place.function != "<module>" else place.at


def _below(place: RankPlace, count: int) -> Message:
    who = nmsg("{count} child process", "{count} child processes", count)
    return _sentence(place, who, count)
