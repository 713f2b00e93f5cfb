"""However many attempts came to nothing, the next goes on from the newest checkpoint there is, a copy too."""

from __future__ import annotations

import functools
import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from dacite import from_dict
from dtagent.checkpoints.__main__ import do
from dtagent.checks import checkpoints
from dtagent.checks.checkpoints import Checkpoints
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import Event, EventKind, JobState
from dtagent.protocol.replication import CopiesRequest, HeldCopy
from dtagent.protocol.rpc import to_wire
from dtagent.replication import kept
from dtagent.replication.manifest import manifest_of
from dtagent.replication.service import Replication

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.checkpoints.replication.replicator import Replicator
from dttui.engine.checkpoints.resuming import find_resume
from dttui.engine.nodes.node_run import NodeRun
from dttui.errors import AuthenticationError, HostError, HostUnreachableError
from dttui.files import write_atomic
from dttui.inventory.models import Environment
from dttui.jobs.aftermath import OUTCOME
from dttui.jobs.event_log import EventLog
from dttui.jobs.outcome import AttemptOutcome, NodeEnd, NodeOutcome, Stage
from dttui.planning.models import Bindings, BoundPlan, Plan
from dttui.planning.resumption import CHECKPOINT_DIR, Resume, Resumption, directory_of, store_of
from dttui.rpc.client import AgentClient
from dttui.transport.base import Nobody
from tests.fake_transport import FakeTransport
from tests.unit.jobs.test_follow import plan_for

FAR = [1, 9, 17]
"""Attempts are asked about eight at a time."""


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search here, and not by a process for each directory, of which these tests would have hundreds."""
    monkeypatch.setattr(checkpoints, "run", lambda text, _seconds, _kind: do(json.loads(text)))


@functools.cache
def _planned(names: tuple[str, ...]) -> Plan:
    return plan_for(*names)


class Host:
    """What an agent does about checkpoints and copies, without the wire."""

    clock_offset_s = 0.0

    def __init__(self) -> None:
        self._checkpoints, self._copies = Checkpoints(), Replication()

    async def call(self, method: str, request: Any, _reply: object, _deadline_s: float = 0.0) -> Any:
        return await (self._copies.copies(request) if method == "copies" else self._checkpoints.newest(request))


class HostOfItsOwn(Host):
    """One that has a disk of its own where others have the same paths."""

    def __init__(self, seen: Path, own: Path) -> None:
        super().__init__()
        self._seen, self._own = str(seen), str(own)

    async def call(self, method: str, request: Any, reply: object, deadline_s: float = 0.0) -> Any:
        told = await super().call(method, _with(request, self._seen, self._own), reply, deadline_s)
        return _with(told, self._own, self._seen)


def _with(message: Any, before: str, after: str) -> Any:
    return from_dict(type(message), json.loads(json.dumps(to_wire(message)).replace(before, after)))


class BrokenLink:
    """A connection that has ended without anybody having looked, or over which nobody is let in."""

    def __init__(self, error: HostError) -> None:
        self._error = error

    async def call(self, *_asked: object) -> Any:
        raise self._error

    async def close(self) -> None:
        pass


def break_link(node: NodeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the link to a node be gone, and another one be had."""

    async def connect(*_asked: object) -> Host:
        return Host()

    monkeypatch.setattr(AgentClient, "connect", connect)
    node.client = BrokenLink(HostUnreachableError(node.name, "the connection was lost"))  # type: ignore[assignment]  # all that is asked of it


class Job:
    """A job of two nodes, a and b, of which the first alone writes checkpoints."""

    def __init__(
        self,
        place: Path,
        attempt: int,
        resumption: Resumption,
        framework: str = "command",
        names: tuple[str, ...] = ("a", "b"),
    ) -> None:
        self.place, self.attempt, self.resumption, self.framework = place, attempt, resumption, framework
        self.names = names
        self.directory = jobs.create("x")
        self.plan = self._plan(attempt)
        for number in range(attempt):
            bindings = Bindings(job_id=self.directory.job_id, attempt=number, master_port=1, nodes={})
            bound = BoundPlan(plan=self._plan(number), bindings=bindings)
            self.directory.bound_plan(number).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.directory.bound_plan(number), bound.model_dump_json())
        self.log = AttemptLog(EventLog(self.directory.events), attempt)
        self.nodes = [self._node(name) for name in names]

    def _plan(self, attempt: int) -> Plan:
        plan = _planned(self.names)
        told = {CHECKPOINT_DIR: directory_of(str(self.place), attempt)}
        nodes = tuple(
            node.model_copy(
                update={"processes": tuple(item.model_copy(update={"env": told}) for item in node.processes)}
            )
            for node in plan.nodes
        )
        return plan.model_copy(update={"nodes": nodes, "resumption": self.resumption, "framework": self.framework})

    def _node(self, name: str) -> NodeRun:
        planned = next(node for node in self.plan.nodes if node.name == name)
        key = AttemptKey(self.directory.job_id, self.attempt)
        environment = Environment(name=name, host=name)
        node = NodeRun(environment, planned, key, self.directory, FakeTransport({}), Nobody(), lambda: None)
        node.client = Host()  # type: ignore[assignment]  # all that is asked of it
        return node

    async def found(self) -> Resume | None:
        return await find_resume(self.directory, self.log, self.nodes, self.resumption)


def write_checkpoint(directory: Path, step: int) -> Path:
    path = directory / f"step-{step}"
    path.mkdir(parents=True)
    (path / "state").write_text(str(step))
    (path / "COMPLETE").touch()
    return path


def begin(job: Job, attempts: int, at: float) -> None:
    """Have so many attempts have begun, all at once."""
    data = {"state": JobState.LAUNCHING.value}
    events = [Event(number, at, EventKind.JOB_STATE, "", attempt=number, data=data) for number in range(attempts)]
    write_atomic(job.directory.events, "".join(json.dumps(to_wire(event)) + "\n" for event in events))


def keep_copy(job: Job, written: int, held: int, step: int) -> Path:
    """Keep a copy of what rank 0's node wrote in an attempt, in the store of that or of a later one."""
    source = write_checkpoint(job.place.parent / f"lost-{written}-{step}", step)
    manifest = manifest_of(source, form="complete-file", attempt=written, node_rank=0, step=step, time=1.0)
    store = store_of(job.resumption, job.directory.job_id, held)
    assert store is not None
    place = kept.place_of(Path(store), 0)
    place.mkdir(parents=True)
    own = kept.incoming(place, manifest)
    os.rename(source, own / manifest.name)
    return kept.seal(own, manifest)


def kept_in(place: Path) -> Resumption:
    return Resumption(copies=1, place=str(place))


@pytest.mark.parametrize("attempt", FAR)
async def test_a_copy_of_the_first_attempt_is_found_in_any_later_one(attempt: int, tmp_path: Path) -> None:
    job = Job(tmp_path / "kept", attempt, kept_in(tmp_path / "kept"))
    copy = keep_copy(job, 0, 0, 20)
    found = await job.found()
    assert found is not None
    assert (found.checkpoint, found.step, found.attempt) == (str(copy), 20, 0)


@pytest.mark.parametrize("attempt", FAR)
@pytest.mark.parametrize("shared", [True, False])
async def test_a_checkpoint_of_the_first_attempt_is_found_in_any_later_one(
    shared: bool, attempt: int, tmp_path: Path
) -> None:
    job = Job(tmp_path / "kept", attempt, Resumption(shared=shared))
    written = write_checkpoint(job.place, 20)
    found = await job.found()
    assert found is not None
    assert (found.checkpoint, found.step, found.attempt) == (str(written), 20, 0)


async def test_the_newest_is_taken_wherever_it_is_kept(tmp_path: Path) -> None:
    """What the twentieth attempt was given of the third's lies in its own store; the first's own copy is older."""
    job = Job(tmp_path / "kept", 20, kept_in(tmp_path / "kept"))
    keep_copy(job, 0, 0, 20)
    newest = keep_copy(job, 2, 19, 30)
    found = await job.found()
    assert found is not None
    assert (found.checkpoint, found.step, found.attempt) == (str(newest), 30, 2)


@pytest.mark.parametrize("ahead", [1, 7, 8, 50])
async def test_where_one_host_has_written_on_while_another_was_halted_the_newest_of_both_is_taken(
    ahead: int, tmp_path: Path
) -> None:
    job = Job(tmp_path / "kept", 1, Resumption(shared=False))
    job.nodes[1].client = HostOfItsOwn(job.place, tmp_path / "b")  # type: ignore[assignment]  # all that is asked of it
    for step in (10, 20):
        write_checkpoint(tmp_path / "b", step)
    for step in range(10, 21 + 10 * ahead, 10):
        write_checkpoint(job.place, step)
    found = await job.found()
    assert found is not None
    assert (found.checkpoint, found.step) == (str(job.place / "step-20"), 20)


@pytest.mark.parametrize("ahead", [1, 50])
async def test_where_a_host_has_written_on_after_another_was_lost_the_copy_of_that_ones_counts_with_its_own(
    ahead: int, tmp_path: Path
) -> None:
    job = Job(tmp_path / "kept", 1, kept_in(tmp_path / "kept"))
    job.nodes[1].client = HostOfItsOwn(job.place, tmp_path / "b")  # type: ignore[assignment]  # all that is asked of it
    copy = keep_copy(job, 0, 0, 20)
    for step in range(10, 21 + 10 * ahead, 10):
        write_checkpoint(tmp_path / "b", step)
    found = await job.found()
    assert found is not None
    assert (found.checkpoint, found.step, found.elsewhere) == (str(copy), 20, {"b": str(job.place / "step-20")})


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize(
    ("framework", "wrote", "goes_on"),
    [("pytorch-fsdp", "ab", False), ("pytorch-fsdp", "a", True), ("pytorch-ddp", "ab", True)],
)
async def test_where_a_host_is_gone_with_its_part_the_parts_of_others_are_none_to_go_on_from(
    framework: str, wrote: str, goes_on: bool, copies: bool, tmp_path: Path
) -> None:
    place = tmp_path / "kept"
    job = Job(place, 1, kept_in(place) if copies else Resumption(), framework)
    job.nodes[1].client = HostOfItsOwn(place, tmp_path / "spare")  # type: ignore[assignment]  # all that is asked of it
    written = write_checkpoint(place, 20)
    nodes = {
        name: NodeOutcome(end=NodeEnd.LOST, checkpoint_bytes=8 + (name == "a") if name in wrote else None)
        for name in ("a", "b")
    }
    outcome = AttemptOutcome(attempt=0, state=JobState.FAILED, stage=Stage.RUN, exit_code=100, nodes=nodes)
    data = {"state": JobState.RESTARTING.value, OUTCOME: outcome.model_dump(mode="json")}
    event = Event(0, time.time(), EventKind.JOB_STATE, "", attempt=0, data=data)
    write_atomic(job.directory.events, json.dumps(to_wire(event)) + "\n")
    found = await job.found()
    assert (found.checkpoint if found is not None else None) == (str(written) if goes_on else None)
    told = [event.message for event in job.directory.read_events(EventKind.FINDING)]
    assert told == ([] if goes_on else ["b wrote a part of each checkpoint of attempt 0, which nobody else has"])


@pytest.mark.parametrize("shared", [True, False])
async def test_what_a_job_before_left_where_a_later_attempt_wrote_is_passed_over(shared: bool, tmp_path: Path) -> None:
    job = Job(tmp_path / "kept", 2, Resumption(shared=shared))
    began = time.time()
    begin(job, 2, began)
    left, own = (write_checkpoint(Path(directory_of(str(job.place), 1)), step) for step in (5000, 20))
    for file in left.iterdir():
        os.utime(file, (began - 86400, began - 86400))
    found = await job.found()
    assert found is not None
    assert (found.checkpoint, found.step) == (str(own), 20)
    told = {event.message for event in job.directory.read_events(EventKind.FINDING)}
    assert told == {f"{left} of a is passed over: it was there before the attempt began"}


async def test_what_lay_there_before_the_first_attempt_is_gone_on_from(tmp_path: Path) -> None:
    job = Job(tmp_path / "kept", 1, Resumption(shared=True))
    begin(job, 1, time.time())
    path = write_checkpoint(job.place, 20)
    for file in path.iterdir():
        os.utime(file, (1e9, 1e9))
    found = await job.found()
    assert found is not None
    assert found.checkpoint == str(path)


def change_a_bit(path: Path) -> None:
    """Have a checkpoint hold an archive in which a bit has changed since."""
    with zipfile.ZipFile(path / "state.pt", "w") as archive:
        archive.writestr("archive/data/0", bytes(1000))
    text = bytearray((path / "state.pt").read_bytes())
    text[500] ^= 0x10
    (path / "state.pt").write_bytes(text)


async def test_a_copy_in_which_bits_have_changed_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    job = Job(tmp_path / "kept", 2, kept_in(tmp_path / "kept"))
    before = keep_copy(job, 0, 0, 20)
    newest = keep_copy(job, 1, 1, 30)
    change_a_bit(newest)
    found = await job.found()
    assert found is not None
    assert (found.checkpoint, found.step) == (str(before), 20)
    told = {event.message for event in job.directory.read_events(EventKind.FINDING)}
    why = "is passed over: state.pt has changed since it was written: its checksum does not hold"
    assert told == {f"{newest} of {name} {why}" for name in ("a", "b")}


@pytest.mark.parametrize("attempt", FAR)
async def test_once_the_job_is_over_no_attempt_has_left_a_copy(attempt: int, tmp_path: Path) -> None:
    job = Job(tmp_path / "kept", attempt, kept_in(tmp_path / "kept"))
    for number in range(attempt):
        keep_copy(job, number, number, 20 + number)
    bindings = Bindings(job_id=job.directory.job_id, attempt=attempt, master_port=1, nodes={})
    replicator = Replicator(job.directory, job.log, job.nodes, BoundPlan(plan=job.plan, bindings=bindings))
    await replicator.drop()
    stores = [store_of(job.resumption, job.directory.job_id, number) for number in range(attempt + 1)]
    left: list[HeldCopy] = []
    for store in stores:
        assert store is not None
        left += (await Replication().copies(CopiesRequest([store]))).held
    assert left == []


@pytest.mark.parametrize("is_copy", [False, True], ids=["own", "copy"])
async def test_a_host_whose_link_breaks_as_it_is_asked_is_asked_anew(
    is_copy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path / "kept", 1, kept_in(tmp_path / "kept") if is_copy else Resumption())
    written = keep_copy(job, 0, 0, 20) if is_copy else write_checkpoint(job.place, 20)
    for node in job.nodes:
        break_link(node, monkeypatch)
    found = await job.found()
    assert found is not None
    assert (found.checkpoint, found.step) == (str(written), 20)
    assert job.directory.read_events(EventKind.FINDING) == []


async def test_what_a_host_has_that_does_not_answer_is_told_to_be_unseen(tmp_path: Path) -> None:
    job = Job(tmp_path / "kept", 1, Resumption())
    written = write_checkpoint(job.place, 20)
    job.nodes[1].client = BrokenLink(AuthenticationError("b", "no more keys"))  # type: ignore[assignment]  # as above
    found = await job.found()
    assert found is not None
    assert found.checkpoint == str(written)
    (event,) = job.directory.read_events(EventKind.FINDING)
    assert (event.data["code"], event.message) == ("checkpoints-unseen", "b: no more keys")


async def test_copies_go_also_where_the_link_has_broken_as_the_job_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path / "kept", 1, kept_in(tmp_path / "kept"))
    copy = keep_copy(job, 0, 0, 20)
    for node in job.nodes:
        break_link(node, monkeypatch)
    bindings = Bindings(job_id=job.directory.job_id, attempt=1, master_port=1, nodes={})
    replicator = Replicator(job.directory, job.log, job.nodes, BoundPlan(plan=job.plan, bindings=bindings))
    await replicator.drop()
    assert not copy.exists()
    assert job.directory.read_events(EventKind.FINDING) == []


async def test_a_host_that_is_silent_as_the_job_ends_lets_its_copies_go_and_one_that_lets_nobody_in_is_named(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path / "kept", 1, kept_in(tmp_path / "kept"))
    copy = keep_copy(job, 0, 0, 20)
    job.nodes[0].silent_since = 1.0
    job.nodes[1].client = BrokenLink(AuthenticationError("b", "no more keys"))  # type: ignore[assignment]  # as above
    bindings = Bindings(job_id=job.directory.job_id, attempt=1, master_port=1, nodes={})
    replicator = Replicator(job.directory, job.log, job.nodes, BoundPlan(plan=job.plan, bindings=bindings))
    await replicator.drop()
    assert not copy.exists()
    (event,) = job.directory.read_events(EventKind.FINDING)
    store = store_of(job.resumption, job.directory.job_id, 1)
    assert event.data["code"] == "copies-left"
    assert event.message == f"b keeps its copies of checkpoints in {store}: no more keys"
