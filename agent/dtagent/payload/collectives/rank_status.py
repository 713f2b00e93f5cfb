"""Who of a group is there, and what each does: every process answers that in a thread of its own.

Gloo says at most which neighbour did not answer, and that one may itself be waiting for another. So when a collective
fails its ranks ask each other directly: no store is needed for it, whose host may be the one that has gone. Where
each answers they learn by the group's store or over the group itself, with a secret for each group, without which
nothing is answered.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple

ANSWER_S = 0.6
"""How long answers are waited for after a collective has failed: with the time-out this stays below a second more."""
_NEWS_S = 0.15
_HEARING_S = 0.3
_FIRST_ANSWER_S = 2.0
_LOOK_UP_S = 0.3
_MOST_BYTES = 1 << 20


class Door(NamedTuple):
    """Where a rank answers for one group."""

    host: str
    """An address; empty where the process cannot listen."""
    port: int
    secret: str


class RankAbsence(Enum):
    """How a rank does not answer."""

    GONE = "gone"
    """Its host says that nobody listens there: the process has ended."""
    SILENT = "silent"
    """Nothing comes: it is stopped, or its host is cut off, frozen or dead."""


class RankStanding:
    """What a process knows of one group; it is told to whoever of the group asks.

    Args:
        rank: of this process.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.turn = 0
        """How many collectives it has begun."""
        self.is_inside = False
        """Whether it is in one of them."""
        self.missing: list[int] | None = None
        """Whom it has lost, once one has failed; after that the group is of no use."""
        self.wants = ""
        """Whether it waits for the others to make a new group: `rebuild` or `shrink`."""
        self.decision: dict[str, Any] | None = None
        """The new group, from the rank that makes it."""
        self.doors: dict[int, Door] = {}
        """Of the other ranks, those that can be reached."""
        self.heard: dict[int, list[int]] = {}
        """Other rank → whom it has lost, as it has said by itself."""
        self.door: Door | None = None
        self.is_introduced = False
        """Whether all ranks have said where they answer."""
        self.find: Callable[[float], Mapping[int, Door]] | None = None
        """Returns where others answer that have said so, for all of whom it waits so many seconds."""

    def know(self, doors: Mapping[int, Door], within_s: float = _FIRST_ANSWER_S) -> None:
        """Keep where all others answer, but for those that cannot be reached there: of them nothing will be known.

        Whose process has ended on this very host will not be taken for that.
        """
        answers = ask(doors, max(0.0, min(_FIRST_ANSWER_S, within_s)))
        own = self.door.host if self.door is not None else ""
        here = {rank for rank, door in doors.items() if door.host == own and answers[rank] is RankAbsence.GONE}
        self.doors = {rank: door for rank, door in doors.items() if rank in here or isinstance(answers[rank], dict)}
        self.is_introduced, self.find = True, None

    def look_up(self) -> None:
        """Look where others answer, as long as not all have said so: for a moment, as the store may be lost as well."""
        if self.is_introduced or self.find is None:
            return
        found: list[Mapping[int, Door]] = []
        find = self.find
        thread = threading.Thread(target=lambda: found.append(find(0.0)), name="dttui-doors", daemon=True)
        with suppress(RuntimeError):  # The system refuses a thread.
            thread.start()
            thread.join(_LOOK_UP_S)
        for doors in found:
            self.doors = {**self.doors, **doors}

    def open(self) -> Door:
        """Return where this process answers for the group; it does so from now on."""
        if self.door is None:
            secret = secrets.token_hex(16)
            host, port = _listening()
            _standings[secret] = self
            self.door = Door(host, port, secret)
        return self.door

    def told(self) -> dict[str, Any]:
        """Return what is answered."""
        return {
            "rank": self.rank,
            "turn": self.turn,
            "inside": self.is_inside,
            "missing": self.missing,
            "wants": self.wants,
            "decision": self.decision,
        }


def ask(doors: Mapping[int, Door], within_s: float, news: object = None) -> dict[int, dict[str, Any] | RankAbsence]:
    """Ask ranks how they stand, all at once.

    Args:
        doors: rank → where it answers.
        within_s: seconds that are waited for.
        news: what they are told besides: whom the asking rank has lost.

    Returns:
        Rank → what it told (`RankStanding.told`), or how it does not answer.
    """
    deadline = time.monotonic() + within_s
    found: dict[int, dict[str, Any] | RankAbsence] = dict.fromkeys(doors, RankAbsence.SILENT)
    with selectors.DefaultSelector() as selector:
        for rank, door in doors.items():
            talk = socket.socket(socket.AF_INET6 if ":" in door.host else socket.AF_INET, socket.SOCK_STREAM)
            talk.setblocking(False)
            state = talk.connect_ex((door.host, door.port))
            if state in (0, errno.EINPROGRESS):
                said = json.dumps([door.secret, news]).encode() + b"\n"
                selector.register(talk, selectors.EVENT_WRITE, (rank, said, bytearray()))
            else:
                talk.close()
                found[rank] = RankAbsence.GONE if state == errno.ECONNREFUSED else RankAbsence.SILENT
        while selector.get_map() and deadline > time.monotonic():
            for key, _ready in selector.select(deadline - time.monotonic()):
                answer = _step(selector, key)
                if answer is not None:
                    found[key.data[0]] = answer
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]  # a socket
    return found


def _step(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> dict[str, Any] | RankAbsence | None:
    """Go on with one talk; return its outcome at its end."""
    talk: socket.socket = key.fileobj  # type: ignore[assignment]  # what was registered
    _rank, said, heard = key.data
    outcome: dict[str, Any] | RankAbsence | None = None
    try:
        if key.events == selectors.EVENT_WRITE:
            failed = talk.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                raise OSError(failed, os.strerror(failed))
            talk.send(said)  # Short, and the first that is sent: it goes whole.
            selector.modify(talk, selectors.EVENT_READ, key.data)
            return None
        part = talk.recv(1 << 16)
        heard += part
        if part and len(heard) < _MOST_BYTES:
            return None
        outcome = _answer_of(heard)
    except ConnectionRefusedError:
        outcome = RankAbsence.GONE
    except OSError:
        outcome = RankAbsence.SILENT
    selector.unregister(talk)
    talk.close()
    return outcome


def _answer_of(heard: bytes) -> dict[str, Any] | RankAbsence:
    try:
        answer = json.loads(heard)
    except ValueError:
        # Closed without a word: another process has got the port, and does not know the secret.
        return RankAbsence.SILENT if heard else RankAbsence.GONE
    is_one = isinstance(answer, dict) and {"turn", "inside", "missing", "wants", "decision"} <= answer.keys()
    return answer if is_one else RankAbsence.SILENT


def own_address() -> str:
    """Return the address at which other ranks reach this process: of the interface that gloo takes, or the route."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    if interface:
        found = _address_of(interface)
        if found:
            return found
    target = os.environ.get("MASTER_ADDR", "")
    try:
        name = target or socket.gethostname()
        family, kind, _protocol, _name, place = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as way:
            way.connect(place)  # Of datagrams: nothing is sent, and the kernel says by which address it would be.
            return str(way.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _address_of(interface: str) -> str:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            packed = fcntl.ioctl(any_socket, 0x8915, struct.pack("256s", interface.encode()[:15]))  # SIOCGIFADDR
        except OSError:
            return ""
    return socket.inet_ntoa(packed[20:24])


_standings: dict[str, RankStanding] = {}
"""Secret → the group that it is of."""
_opening = threading.Lock()
_listener: list[socket.socket] = []
"""The one of this process, once there is one."""


def _listening() -> tuple[str, int]:
    """Return where this process listens, which it begins where it does not yet; no host where it cannot."""
    with _opening:
        if not _listener:
            host = own_address()
            made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
            try:
                made.bind((host, 0))
                made.listen(4096)
            except OSError:
                made.close()
                return "", 0
            _listener.append(made)
            threading.Thread(target=_answer_all, args=(made,), name="dttui-roll-call", daemon=True).start()
        host, port = _listener[0].getsockname()[:2]
        return str(host), int(port)


def _answer_all(listener: socket.socket) -> None:
    while True:
        try:
            talk, _who = listener.accept()
        except OSError as error:
            if error.errno in (errno.EBADF, errno.EINVAL):
                return
            time.sleep(0.01)  # Out of descriptors, for instance: that may pass.
            continue
        with talk:
            try:
                talk.settimeout(_HEARING_S)
                _answer(talk)
            except (OSError, ValueError, TypeError):
                continue  # Whoever it was went away, stopped, or is not of ours.


def _answer(talk: socket.socket) -> None:
    heard = b""
    while not heard.endswith(b"\n") and len(heard) < _MOST_BYTES:
        part = talk.recv(1 << 16)
        if not part:
            return
        heard += part
    secret, news = json.loads(heard)
    standing = _standings.get(secret)
    if standing is None:
        return
    if news:
        rank, missing = news
        standing.heard[int(rank)] = [int(item) for item in missing]
    talk.sendall(json.dumps(standing.told()).encode())


def _forget_in_child() -> None:
    """Let a forked child, a data loader's worker for instance, not hold the port of a rank that may die."""
    for listener in _listener:
        listener.close()
    _listener.clear()
    _standings.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class RankLoss(NamedTuple):
    """Why a collective failed."""

    missing: Sequence[int]
    reason: str
    """In words, `has gone` for instance."""


def judge(standing: RankStanding, suspects: Iterable[int], *, is_late: bool) -> RankLoss:
    """Ask all ranks of a group, and return who is to blame that a collective did not come to its end.

    Args:
        standing: of this process; its collective has failed.
        suspects: whom gloo waited for; they are named where nothing better is known.
        is_late: whether the time was over: then ranks that have not called are named, too.
    """
    standing.look_up()
    unknown = set() if standing.is_introduced else set(suspects) - set(standing.doors)
    told = ask(standing.doors, ANSWER_S)
    gone = {rank for rank, answer in told.items() if isinstance(answer, RankAbsence)}
    answers = {rank: answer for rank, answer in told.items() if not isinstance(answer, RankAbsence)}
    # Whoever has lost others, said so and ended is not what it was lost for.
    heard = {**standing.heard, **{rank: answer["missing"] for rank, answer in answers.items() if answer["missing"]}}
    first = gone - set(heard)
    behind = {
        rank
        for rank, answer in answers.items()
        if is_late and answer["turn"] < standing.turn and not answer["inside"] and answer["missing"] is None
    }
    behind |= unknown if is_late and behind else set()
    others = {item for missing in heard.values() for item in missing} - {standing.rank}
    if first:
        all_gone = all(told[rank] is RankAbsence.GONE for rank in first)
        loss = RankLoss(sorted(first | behind), "ended" if all_gone and not behind else "did not answer")
    else:
        ways = ((behind, "did not call"), (others, "did not answer"), (heard, "gave this rank up"))
        who, reason = next((way for way in ways if way[0]), (suspects, "did not answer"))
        loss = RankLoss(sorted(set(who)), reason)
    standing.missing = list(loss.missing)
    ask({rank: standing.doors[rank] for rank in answers}, _NEWS_S, [standing.rank, standing.missing])
    return loss
