"""torchrun's elastic rendezvous over a real store that anybody writes to: what is altered is put right, or ends it."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed: pip install .[torch]", allow_module_level=True)

import psutil
from dtagent.payload import listening

from tests.clock import Clock
from tests.ports import held_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from dtagent.payload.sealed_rendezvous import agreed_state, handler, round_store, shared_table
    from dtagent.payload.sealed_rendezvous.agreed_state import SealedBackend, State
    from dtagent.payload.sealed_rendezvous.errors import LeftBehindError, TamperedError
    from dtagent.payload.sealed_rendezvous.handler import Handler
    from dtagent.payload.sealed_rendezvous.round_store import SealedStore
    from dtagent.payload.sealed_rendezvous.seal import Seal
    from dtagent.payload.sealed_rendezvous.shared_table import Table
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # torch's stubs lack them
    from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler
    from torch.distributed.elastic.utils.store import barrier

    from tests.faults.store_attacker import Bomb

pytestmark = pytest.mark.torch
FLOOD_DEADLINE_S = 60.0
KEY = b"k" * 32
RUN = "job-0"
STATE = f"torch.rendezvous.{RUN}"


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Import torch where these tests run, and not in every worker that collects them."""
    global agreed_state, handler, round_store, shared_table
    global Handler, LeftBehindError, Seal, SealedBackend, SealedStore, State, Table, TamperedError
    global PrefixStore, TCPStore, RendezvousConnectionError, RendezvousParameters, create_handler, barrier, Bomb
    from dtagent.payload.sealed_rendezvous import agreed_state, handler, round_store, shared_table
    from dtagent.payload.sealed_rendezvous.agreed_state import SealedBackend, State
    from dtagent.payload.sealed_rendezvous.errors import LeftBehindError, TamperedError
    from dtagent.payload.sealed_rendezvous.handler import Handler
    from dtagent.payload.sealed_rendezvous.round_store import SealedStore
    from dtagent.payload.sealed_rendezvous.seal import Seal
    from dtagent.payload.sealed_rendezvous.shared_table import Table
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # torch's stubs lack them
    from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler
    from torch.distributed.elastic.utils.store import barrier

    from tests.faults.store_attacker import Bomb


@pytest.fixture(autouse=True)
def _short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreed_state, "QUIET_S", 0.2)
    monkeypatch.setattr(agreed_state, "MOST_QUIET_S", 0.4)
    monkeypatch.setattr(agreed_state, "PATIENCE_S", 0.5)
    monkeypatch.setattr(round_store, "PATIENCE_S", 0.5)


class World:
    """A store, whoever attacks it, and nodes."""

    def __init__(self) -> None:
        self.server = shared_table.open_store("127.0.0.1", 0, listening.on_address)
        self.attacker = self.connection()
        self.told: list[tuple[str, str, bool]] = []
        self._stores: list[SealedStore] = []
        """torch's own wrapping keeps no Python object alive."""

    def connection(self) -> TCPStore:
        return TCPStore("127.0.0.1", self.server.port, is_master=False, timeout=timedelta(seconds=5))

    def node(self, *, is_host: bool = False, key: bytes = KEY, run_id: str = RUN) -> SealedBackend:
        return SealedBackend(
            Table(self.connection()), Seal(key, run_id), run_id, is_host=is_host, report=self.report, mend=lambda: None
        )

    def shared(self, key: bytes = KEY, number: tuple[int, int] = (0, 1)) -> SealedStore:
        self._stores.append(SealedStore(Table(self.connection()), Seal(key, RUN), self.report, timedelta(seconds=2)))
        self._stores[-1].number(*number)
        return self._stores[-1]

    def report(self, what: str, how: str, is_mended: bool) -> None:
        self.told.append((what, how, is_mended))

    def overwrite(self, name: str, value: bytes | str) -> None:
        self.attacker.set(name, value)  # type: ignore[arg-type]  # it takes both
        self.attacker.check([name])  # It answers when that is done.

    def values(self) -> dict[str, bytes]:
        """Return all that is there."""
        return {name: bytes(self.attacker.get(name)) for name in self.attacker.list_keys()}

    @property
    def kept(self) -> bytes:
        return bytes(self.attacker.get(STATE))


@pytest.fixture
def world() -> World:
    return World()


def write(node: SealedBackend, content: bytes) -> None:
    found = node.get_state()
    done = node.set_state(content, found[1] if found is not None else None)
    assert done is not None
    assert (done[0], done[2]) == (content, True)


def content(node: SealedBackend) -> bytes | None:
    found = node.get_state()
    return found[0] if found is not None else None


def test_nodes_see_what_others_have_written_and_only_the_newest_can_be_replaced(world: World) -> None:
    a, b = world.node(is_host=True), world.node()
    assert (a.get_state(), b.get_state()) == (None, None)
    write(a, b"one")
    seen = b.get_state()
    assert seen is not None
    write(a, b"two")
    late = b.set_state(b"mine", seen[1])
    assert late is not None
    assert (late[0], late[2]) == (b"two", False)
    write(b, b"three")
    assert content(a) == b"three"
    assert b.set_state(b"anew") is not None, "there is one already"
    assert content(a) == b"three"
    assert world.told == []


def test_a_state_put_back_by_who_has_an_earlier_one_is_replaced_by_who_has_the_newest_before_anybody_goes_on(
    world: World, clock: Clock
) -> None:
    a, b, c = world.node(is_host=True), world.node(), world.node()
    write(a, b"one")
    assert content(b) == content(c) == b"one"
    write(b, b"two")  # Neither of the others has seen it.
    world.overwrite(STATE, "garbage")
    assert content(a) == b"one"
    late: list[Any] = []
    seen = c.get_state()
    assert seen is not None
    writing = threading.Thread(target=lambda: late.append(c.set_state(b"three", seen[1])))
    writing.start()
    assert content(b) == b"two"
    while writing.is_alive():
        clock.now_s += agreed_state.MOST_QUIET_S
        writing.join(0.05)
    assert (late[0][0], late[0][2]) == (b"two", False)
    clock.now_s += agreed_state.MOST_QUIET_S
    write(c, b"three")
    assert content(a) == content(b) == b"three"
    assert world.told == [("state", "forged", True), ("state", "replayed", True)]


@pytest.mark.parametrize("is_author", [True, False], ids=["by who wrote last", "by another"])
def test_what_is_overwritten_deleted_or_replayed_is_put_back(world: World, is_author: bool) -> None:
    a, b = world.node(is_host=True), world.node()
    write(a, b"one")
    earlier = world.kept
    write(b, b"two")
    assert content(a) == b"two"
    node = b if is_author else a
    forms = ["garbage", "", "\u00ff\u00fe", world.kept.decode()[:-1], world.kept.decode() + "=", "." * 100]
    for form in forms:
        world.overwrite(STATE, form)
        assert content(node) == b"two"
    world.overwrite(STATE, earlier)
    assert content(node) == b"two"
    world.attacker.delete_key(STATE)
    assert content(node) == b"two"
    assert world.told == [("state", how, True) for how in [*["forged"] * len(forms), "replayed", "deleted"]]
    write(node, b"three")
    assert content(a) == content(b) == b"three"


@pytest.mark.parametrize("form", ["as c10d has it", "in an envelope of another key", "of another attempt", "renamed"])
def test_a_pickle_of_somebody_else_is_never_handed_on(world: World, form: str, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(str(tmp_path / "touched")))
    body = State({"x": 99}, bomb).encode()
    charge = {
        "as c10d has it": base64.b64encode(bomb),
        "in an envelope of another key": Seal(b"guessed" * 8, RUN).close(STATE, body),
        "of another attempt": Seal(KEY, "job-1").close(STATE, body),
        "renamed": Seal(KEY, RUN).close(f"{STATE}.1/role", body),
    }[form]
    a, b = world.node(is_host=True), world.node()
    write(a, b"one")
    world.overwrite(STATE, charge)
    with pytest.raises(TamperedError, match="state forged"):
        b.get_state()  # It has seen no state yet, so it waits for one that is good.
    assert content(a) == content(b) == b"one"
    assert not (tmp_path / "touched").exists()


def test_who_wrote_something_that_was_taken_back_knows_though_others_went_on(world: World) -> None:
    a, b = world.node(is_host=True), world.node()
    write(a, b"one")
    assert content(b) == b"one"
    earlier = world.kept
    write(a, b"two")  # b has not seen it.
    world.overwrite(STATE, earlier)
    write(b, b"other")
    with pytest.raises(TamperedError, match="state split"):
        a.get_state()
    assert world.told[-1] == ("state", "split", False)


def test_the_state_of_an_earlier_start_under_the_same_key_is_no_state_of_this_one(world: World) -> None:
    write(world.node(is_host=True), b"earlier")
    earlier = world.kept
    a, b = world.node(is_host=True), world.node()
    write(a, b"one")
    world.overwrite(STATE, earlier)
    with contextlib.suppress(TamperedError):
        write(b, b"from earlier")
    with pytest.raises(TamperedError):
        a.get_state()


def test_a_node_that_comes_to_an_empty_place_waits_for_the_host_and_ends(world: World) -> None:
    with pytest.raises(TamperedError, match="state deleted"):
        world.node().get_state()


def test_whoever_overwrites_all_the_time_is_borne_or_named(world: World) -> None:
    node = world.node(is_host=True)
    write(node, b"one")
    over = threading.Event()

    def flood() -> None:
        while not over.is_set():
            world.overwrite(STATE, "garbage")

    attacker = threading.Thread(target=flood)
    attacker.start()
    try:
        deadline = time.monotonic() + FLOOD_DEADLINE_S
        while not world.told and time.monotonic() < deadline:
            with contextlib.suppress(TamperedError):
                write(node, b"more")
    finally:
        over.set()
        attacker.join()
    assert ("state", "forged") in {item[:2] for item in world.told}
    write(node, b"after")
    assert content(node) == b"after"


def test_what_nodes_tell_each_other_is_sealed_and_comes_through_torchs_own_wrapping(world: World) -> None:
    one, other = (PrefixStore("1", world.shared(number=(rank, 2))) for rank in range(2))
    one.set("role", b"\xff\x00")  # type: ignore[arg-type]  # it takes both
    assert other.get("role") == b"\xff\x00"
    one.multi_set(["a", "b"], ["1", "2"])  # type: ignore[attr-defined]  # torch's stubs lack it
    assert list(other.multi_get(["a", "b"])) == [b"1", b"2"]
    assert [store.add("count", 1) for store in (one, other, one)] == [1, 2, 3]
    other.wait(["a"], timedelta(seconds=1))
    with pytest.raises(Exception, match="no node has told never in time"):
        other.wait(["1/never"[2:]], timedelta(milliseconds=100))
    assert b"\xff" not in world.attacker.get("1/role")
    assert world.told == []


def test_a_word_of_another_round_or_of_a_stranger_is_not_taken(world: World) -> None:
    first, second = (PrefixStore(f"{number}", world.shared()) for number in (1, 2))
    first.set("place", "here")
    world.overwrite("2/place", world.attacker.get("1/place"))
    with pytest.raises(TamperedError, match="place forged"):
        second.get("place")
    world.overwrite("2/count/0", "41")
    assert second.add("count", 1) == 1


def test_what_a_node_has_told_is_put_back_until_it_is_over(world: World) -> None:
    node, other = world.shared(), world.shared()
    node.set("1/place", "here")
    node.set("1/role", "worker")
    world.overwrite("1/place", "there")
    world.attacker.delete_key("1/role")
    node.mend()
    assert (other.get("1/place"), other.get("1/role")) == (b"here", b"worker")
    assert world.told == [("place", "forged", True), ("role", "deleted", True)]
    node.forget()
    world.attacker.delete_key("1/role")
    node.mend()
    assert world.told[2:] == []


@pytest.mark.parametrize("deed", ["deleted", "overwritten", "put back", "overwritten before"])
def test_a_barrier_ends_once_the_last_node_has_come_whatever_became_of_the_words_of_the_others(
    deed: str, world: World
) -> None:
    """Within 20 s: torch itself waits 300 s for a count that nobody has."""
    ends: list[str] = []

    def come(rank: int) -> None:
        try:
            barrier(PrefixStore("1", world.shared(number=(rank, 3))), 3, "end", barrier_timeout=20.0)
            ends.append("all came")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no good end
            ends.append(str(error))

    threads = [threading.Thread(target=come, args=[rank]) for rank in range(3)]
    if deed == "overwritten before":
        for name in ("1/end/num_members", "1/end/num_members/2", "1/end/last_member"):
            world.overwrite(name, "garbage")
    kept: list[dict[str, bytes]] = [world.values()]
    for thread in threads[:2]:
        thread.start()
        wait_until(lambda: world.values() != kept[-1], "a node at the barrier")
        kept.append(world.values())
    for name in kept[-1].keys() if deed != "overwritten before" else ():
        if deed == "overwritten":
            world.overwrite(name, "garbage")
        elif deed == "put back" and name in kept[1]:
            world.overwrite(name, kept[1][name])
        else:
            world.attacker.delete_key(name)
    threads[2].start()
    for thread in threads:
        thread.join(30.0)
    assert ends == ["all came"] * 3


def test_a_store_that_is_gone_is_a_rendezvous_that_is_gone(world: World) -> None:
    node, shared = world.node(is_host=True), world.shared()
    del world.attacker, world.server
    for act in (node.get_state, lambda: shared.add("a", 1), lambda: shared.get("a")):
        with pytest.raises(RendezvousConnectionError):
            act()


def handlers(port: int, count: int, least: int | None = None) -> Iterator[Handler]:
    for index in range(count):
        parameters = RendezvousParameters(
            "dttui", f"127.0.0.1:{port}", RUN, least or count, count, f"127.0.0.{index + 1}",
            is_host=int(index == 0), join_timeout=20, last_call_timeout=1, read_timeout=10, keep_alive_interval=1,
        )  # fmt: skip
        store = shared_table.connect(parameters, listening.on_address)
        told: Any = lambda *_: None  # noqa: E731 - nothing is told here
        agreed, seal = Table(store), Seal(KEY, RUN)
        shared = SealedStore(agreed, seal, told, timedelta(seconds=10))
        backend = SealedBackend(agreed, seal, RUN, is_host=index == 0, report=told, mend=shared.mend)
        inner, address = create_handler(shared, backend, parameters), f"127.0.0.{index + 1}"
        yield Handler(inner, backend, shared, address, listening.on_address, is_host=index == 0)


def meet(nodes: Sequence[Handler]) -> dict[int, Any]:
    """Return what each of some nodes has found that comes to the next round, by its place among them."""
    found: dict[int, Any] = {}

    def come(index: int, node: Handler) -> None:
        with contextlib.suppress(SystemExit):
            found[index] = node.next_rendezvous()

    threads = [threading.Thread(target=come, args=item) for item in enumerate(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90.0)
    return found


def test_nodes_meet_in_rounds_whose_ranks_have_a_store_each_on_the_first_nodes_address_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    with held_port() as port:
        nodes = list(handlers(port, 2))
    places = []
    for _round in range(2):
        found = meet(nodes)
        assert sorted(item.rank for item in found.values()) == [0, 1]
        (place,) = {
            (item.bootstrap_store_info.master_addr, item.bootstrap_store_info.master_port) for item in found.values()
        }
        places.append(place)
        first = next(index for index, item in found.items() if item.rank == 0)
        assert place[0] == f"127.0.0.{first + 1}"
        links = psutil.Process().net_connections("tcp")
        assert {link.laddr.ip for link in links if link.status == "LISTEN" and link.laddr.port == place[1]} == {
            place[0]
        }
        TCPStore(*place, is_master=False, timeout=timedelta(seconds=5)).set("a", "b")
    assert places[0] != places[1]
    monkeypatch.setattr(handler, "PARTING_S", 20.0)
    over: list[int] = []

    def end(index: int, node: Handler) -> None:
        barrier(found[index].store, 2, "end", barrier_timeout=20.0)
        if index != 0:
            # What it still asks of the store, the host waits for.
            wait_until(nodes[0].is_closed, "the host's own end")
            over.append(index)
            node.shutdown()
        elif node.shutdown():
            over.append(index)

    threads = [threading.Thread(target=end, args=item) for item in enumerate(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert over == [1, 0]


@pytest.mark.parametrize("gone", [0, 2], ids=["first", "last"])
def test_where_a_node_goes_as_a_round_begins_the_others_gather_anew_without_it(
    gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 90 s. The rendezvous itself stays, whoever is the first node of a round."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    monkeypatch.setattr(handler, "PRESENT_S", 8.0)
    with held_port() as port:
        nodes = list(handlers(port, 3, 2))

    def end(_found: object) -> None:
        nodes[gone]._inner._stop_heartbeats()  # noqa: SLF001 - as of a process that is no more
        raise SystemExit

    monkeypatch.setattr(nodes[gone], "_place", end)
    found = meet(nodes)
    assert sorted(item.rank for item in found.values()) == [0, 1]
    assert {item.world_size for item in found.values()} == {2}
    assert gone not in found
    (place,) = {
        (item.bootstrap_store_info.master_addr, item.bootstrap_store_info.master_port) for item in found.values()
    }
    TCPStore(*place, is_master=False, timeout=timedelta(seconds=5)).set("a", "b")


@pytest.mark.parametrize(
    ("silent_s", "members", "is_left"),
    [(60.0, "host", True), (60.0, "both", False), (60.0, "", False), (60.0, "forged", False), (10.0, "host", False)],
)
def test_a_node_that_was_cut_off_while_others_went_on_without_it_leaves_by_itself(
    silent_s: float, members: str, is_left: bool, world: World, clock: Clock
) -> None:
    host, node = world.node(is_host=True), world.node()
    write(host, b"1")
    write(node, b"2")
    if members == "forged":
        world.overwrite(f"{STATE}.members", b"[]")
    elif members:
        host.tell_members([host.me, *([node.me] if members == "both" else [])])
    clock.now_s += silent_s
    for _look in range(2):  # Once it has left, it stays away.
        if is_left:
            with pytest.raises(LeftBehindError, match="cut off from the rendezvous for 60 s"):
                node.get_state()
        else:
            assert content(node) == b"2"
    assert content(host) == b"2"


def test_what_is_just_being_told_is_not_taken_for_forged_by_the_thread_that_mends(world: World) -> None:
    node = world.shared()
    over = threading.Event()

    def mend() -> None:
        while not over.is_set():
            node.mend()

    mending = threading.Thread(target=mend)
    mending.start()
    try:
        for number in range(500):
            node.set("1/place", str(number))
    finally:
        over.set()
        mending.join()
    assert world.told == []
    assert world.shared().get("1/place") == b"499"
