"""Jobs that go on without nodes that are lost, as they run: who takes part, what is told, and how they end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from dtagent.payload import torchrun
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import Event, EventKind
from dtagent.protocol.jobs import NodeState, NodeStatus, ProcessExit
from dtagent.protocol.meeting import Disturbance, Numbering

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.failures import LEFT, TAMPERED
from dttui.engine.nodes.node_record import Shared
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.rendezvous.membership import Membership
from dttui.i18n import retell, set_language
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.view import JobView
from tests.torch_forkserver import TorchStem
from tests.unit.jobs.test_follow import plan_for

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
KEY = AttemptKey("job", 0)
OUT = [ProcessExit("launcher", 5.0, signal=9)]
WELL = [ProcessExit("launcher", 5.0, exit_code=0)]


@pytest.fixture
def directory() -> JobDirectory:
    return jobs.create("x")


class Attempt:
    """Three nodes of an elastic attempt that needs two of them."""

    def __init__(self, directory: JobDirectory, told: Sequence[Event] = ()) -> None:
        self.directory = directory
        shared = Shared(world_size=3, is_elastic=True)
        plan = plan_for("a", "b", "c")
        self.nodes = [
            NodeRun(None, node, KEY, directory, None, None, lambda: None, shared)  # type: ignore[arg-type]  # nothing is connected to
            for node in plan.nodes
        ]
        self.view = JobView("job")
        self.view.set_plan(plan)
        self.members = Membership(directory, self.nodes, AttemptLog(EventLog(directory.events), 0), 2, (), told)

    def say(
        self, index: int, rank: int | None, size: int = 3, restarts: int = 0, port: int = 4000, **more: Any
    ) -> None:
        """Have a node tell of its one rank."""
        told = Numbering([rank], size, restarts, port) if rank is not None else None
        state = more.pop("state", NodeState.RUNNING)
        started = [rank] if rank is not None else []
        self.nodes[index].status = NodeStatus(KEY, index, state, ranks_started=started, numbering=told, **more)

    def all_run(self) -> None:
        for index, rank in enumerate((1, 2, 0)):
            self.say(index, rank)
        self.members.learn()
        assert self.members.new_round() == "3 ranks run, on 3 of 3 nodes"

    def events(self, kind: EventKind) -> list[Event]:
        return [event for event in self.directory.read_events() if event.kind is kind]


@pytest.fixture
def attempt(directory: JobDirectory) -> Attempt:
    return Attempt(directory)


def test_ranks_are_those_that_torchrun_gave_and_each_numbering_is_told_once(attempt: Attempt) -> None:
    attempt.all_run()
    attempt.members.learn()
    assert attempt.members.new_round() is None
    assert [node.ranks for node in attempt.nodes] == [(1,), (2,), (0,)]
    assert [event.message for event in attempt.events(EventKind.RANKS)] == [
        "a: rank 1 of 3",
        "b: rank 2 of 3",
        "c: rank 0 of 3",
    ]
    for event in attempt.events(EventKind.RANKS):
        attempt.view.apply(event)
    assert [node.ranks for node in attempt.view.nodes.values()] == [(1,), (2,), (0,)]
    again = AttemptLog(EventLog(attempt.directory.events), 0)
    again.resume(attempt.events(EventKind.RANKS))
    Membership(attempt.directory, attempt.nodes, again, 2, ()).learn()
    assert len(attempt.events(EventKind.RANKS)) == 3


def test_a_round_counts_once_all_its_nodes_run(attempt: Attempt) -> None:
    attempt.say(0, 0, size=2)
    attempt.say(2, None)
    assert attempt.members.new_round() is None
    attempt.say(1, 1, size=2)
    assert attempt.members.new_round() == "2 ranks run, on 2 of 3 nodes"
    attempt.say(0, 0, port=4001)
    attempt.say(2, 2, port=4001)
    assert attempt.members.new_round() is None
    attempt.say(1, 1, port=4001)
    assert attempt.members.new_round() == "3 ranks run, on 3 of 3 nodes"


def test_the_others_go_on_without_a_node_that_died_and_succeed(attempt: Attempt) -> None:
    attempt.all_run()
    attempt.say(1, 2, exits=OUT)
    assert [node.name for node in attempt.members.newly_out(())] == ["b"]
    assert attempt.members.newly_out(()) == []
    assert attempt.members.end is None
    (told,) = attempt.events(EventKind.FINDING)
    expected = "b is out: the launcher on b was ended by signal SIGKILL. The job goes on with 2 of 3 nodes"
    assert (told.data["code"], told.data["subject"], told.message) == ("node-out", "b", expected)
    attempt.view.apply(told)
    assert attempt.view.nodes["b"].ranks == ()
    attempt.say(0, 0, size=2, restarts=1, port=4001)
    attempt.say(2, 1, size=2, restarts=1, port=4001)
    attempt.members.learn()
    assert attempt.members.new_round() == "2 ranks run, on 2 of 3 nodes"
    again = "torchrun started the rank of a again: rank 0 of 2 now"
    assert again in [event.message for event in attempt.events(EventKind.RANKS)]
    assert not attempt.members.has_succeeded
    for index, rank in ((0, 0), (2, 1)):
        attempt.say(index, rank, size=2, restarts=1, port=4001, state=NodeState.ENDED, exits=WELL)
    assert attempt.members.has_succeeded
    assert attempt.members.outcome() == "ended well, without b"


def go_on_without_b(attempt: Attempt) -> None:
    attempt.say(1, 2, exits=OUT)
    attempt.members.newly_out(())
    attempt.say(0, 0, size=2, restarts=1, port=4001)
    attempt.say(2, 1, size=2, restarts=1, port=4001)
    attempt.members.learn()
    assert attempt.members.new_round()


def test_a_restart_of_torchruns_own_is_told_at_its_first_step_with_what_it_was_for_and_has_cost(
    attempt: Attempt,
) -> None:
    attempt.all_run()
    steps = attempt.nodes[0].shared.steps
    for step in range(1, 18):
        steps.take(step)
    go_on_without_b(attempt)
    assert attempt.events(EventKind.RESTARTED) == []
    for step in (11, 12):
        steps.take(step)
    (told,) = attempt.events(EventKind.RESTARTED)
    assert told.data.pop("seconds") > 0
    assert told.data == {"cause": "killed", "lost_steps": 7, "round": 1}
    assert "torchrun goes on at step 11, " in told.message
    assert told.message.endswith("; 7 steps are made again")
    again = Attempt(attempt.directory, attempt.events(EventKind.RESTARTED))
    again.all_run()
    go_on_without_b(again)
    assert len(attempt.events(EventKind.RESTARTED)) == 1, "another controller tells it no second time"


def test_a_controller_that_came_after_a_node_had_died_tells_that_the_others_go_on(attempt: Attempt) -> None:
    """It has seen no round in which the node was."""
    attempt.all_run()
    again = Attempt(attempt.directory)
    again.say(1, 2, exits=OUT)  # The first that answers it.
    assert [node.name for node in again.members.newly_out(())] == ["b"]
    for index, rank in ((0, 0), (2, 1)):
        again.say(index, rank, size=2, restarts=1, port=4001)
    again.members.learn()
    assert again.members.new_round() == "2 ranks run, on 2 of 3 nodes"
    (told,) = again.events(EventKind.RESTARTED)
    assert told.message.startswith("torchrun runs all ranks again, ")


def test_a_restart_of_ranks_that_report_no_step_is_told_when_they_run(attempt: Attempt) -> None:
    attempt.all_run()
    attempt.nodes[1].silent_since = time.time() - 20
    attempt.say(0, 0, size=2, restarts=1, port=4001)
    attempt.say(2, 1, size=2, restarts=1, port=4001)
    attempt.members.learn()
    assert attempt.members.new_round()
    assert [node.name for node in attempt.members.newly_out(())] == ["b"]
    (told,) = attempt.events(EventKind.RESTARTED)
    assert (told.data["cause"], told.data["round"]) == ("node-lost", 1)
    assert told.data["seconds"] >= 20
    assert "lost_steps" not in told.data


@pytest.mark.parametrize(
    ("exits", "words"),
    [
        ({0: OUT}, "the rendezvous was on a, and the job ends with it"),
        ({1: OUT, 2: OUT}, "1 node is left, and 2 are needed"),
        (
            {1: [ProcessExit("launcher", 5.0, exit_code=1)]},
            "torchrun has given up on b, which closes the rendezvous for all",
        ),
    ],
    ids=["the master", "too few", "failures of its own"],
)
def test_the_attempt_ends_with(attempt: Attempt, exits: dict[int, list[ProcessExit]], words: str) -> None:
    attempt.all_run()
    for index, told in exits.items():
        attempt.say(index, attempt.nodes[index].ranks[0], exits=told)
    attempt.members.newly_out(())
    assert attempt.members.end == words
    assert len(attempt.members.survived) == len(exits) - 1


def test_a_node_whose_supervisor_died_is_out_too(attempt: Attempt) -> None:
    attempt.all_run()
    attempt.say(1, 2, state=NodeState.LOST, reason="the supervisor on this host died")
    assert attempt.members.newly_out(()) == [attempt.nodes[1]]
    assert attempt.members.out["b"] == "the supervisor on this host died"


def test_the_exit_codes_of_a_rendezvous_are_those_of_the_payload() -> None:
    assert (torchrun.LEFT, torchrun.TAMPERED) == (LEFT, TAMPERED)


@pytest.mark.parametrize(
    ("backend", "code"), [("dttui", LEFT), ("static", 1)], ids=["of an elastic job", "of one that needs all its nodes"]
)
def test_torchrun_that_has_no_rendezvous_exits_with(
    backend: str, code: int, tmp_path: Path, torch_forkserver: TorchStem
) -> None:
    torch_ends = (
        "import sys, torch.distributed.run as r\n"
        "from torch.distributed.elastic.rendezvous import RendezvousError as E\n"
        "def run(arguments): raise E('gone')\n"
        "r.run = run\n"
        f"sys.path.insert(0, {str(Path(torchrun.__file__).parent)!r}); import torchrun\n"
        "sys.exit(torchrun.main(sys.argv[1:]))"
    )
    done = run_torchrun(torch_forkserver, torch_ends, tmp_path, backend, "k" * 64)
    assert done.returncode == code, done.stderr
    assert "RendezvousError: gone" in done.stderr
    assert (tmp_path / "rendezvous.key").exists() is (backend == "static"), "read once by whom it is for"


def run_torchrun(
    stem: TorchStem, code: str, directory: Path, backend: str, key: str
) -> subprocess.CompletedProcess[str]:
    (directory / "rendezvous.key").write_text(key)
    argv = ["-c", f"--rdzv-backend={backend}", "--node-rank=1", "train.py"]
    env = {**os.environ, "DTTUI_LOGS": str(directory / "logs")}
    return stem.run(code, argv, cwd=directory, env=env)


@pytest.mark.parametrize(
    ("backend", "key", "why"),
    [
        ("c10d", "k" * 64, "a rendezvous by c10d runs anybody's code: upgrade dttui on the login node"),
        ("dttui", "", "rendezvous.key is missing"),
        ("dttui", "short", "rendezvous.key is too short"),
    ],
    ids=["c10d itself", "no key", "a short key"],
)
def test_no_elastic_rendezvous_is_run_that_takes_anybodys_word(
    backend: str, key: str, why: str, tmp_path: Path, torch_forkserver: TorchStem
) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(torchrun.__file__).parent)!r}); import torchrun\n"
        "sys.exit(torchrun.main(sys.argv[1:]))"
    )
    done = run_torchrun(torch_forkserver, code, tmp_path, backend, key)
    assert done.returncode == torchrun.UNSAFE
    assert why in done.stderr


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (LEFT, "the launcher on b lost its way to the rendezvous"),
        (143, "the launcher on b exited with code 143"),
    ],
    ids=["lost its way to the rendezvous", "terminated from outside"],
)
def test_a_launcher_that_did_not_fail_by_its_ranks_ends_nothing_for_the_others(
    attempt: Attempt, code: int, why: str
) -> None:
    attempt.all_run()
    attempt.say(1, 2, exits=[ProcessExit("launcher", 5.0, exit_code=code)])
    assert [node.name for node in attempt.members.newly_out(())] == ["b"]
    assert attempt.members.out["b"] == why
    assert attempt.members.end is None


def test_a_silent_node_is_out_once_the_others_run_without_it(attempt: Attempt) -> None:
    attempt.all_run()
    attempt.nodes[1].silent_since = 7.0
    assert attempt.members.newly_out(()) == []
    attempt.say(0, 0, size=2, restarts=1, port=4001)
    attempt.say(2, 1, size=2, restarts=1, port=4001)
    assert attempt.members.new_round()
    assert [node.name for node in attempt.members.newly_out(())] == ["b"]
    (state,) = attempt.events(EventKind.NODE_STATE)
    assert (state.node, state.data["state"]) == ("b", "lost")


def test_a_node_that_is_not_among_those_that_ended_well_is_left_behind(attempt: Attempt) -> None:
    attempt.say(0, 0, size=2)
    attempt.say(1, 1, size=2)
    attempt.say(2, None)
    assert attempt.members.new_round()
    assert attempt.members.left_behind() == []
    for index in (0, 1):
        attempt.say(index, index, size=2, state=NodeState.ENDED, exits=WELL)
    assert [node.name for node in attempt.members.left_behind()] == ["c"]
    assert attempt.members.has_succeeded


@pytest.mark.parametrize(
    "told", [Numbering([0, 1], 3, 0, 4000), Numbering([7], 9, 0, 4000), Numbering([0], 4, 0, 4000)]
)
def test_a_numbering_that_does_not_go_with_the_plan_is_not_believed(attempt: Attempt, told: Numbering) -> None:
    attempt.nodes[1].status = NodeStatus(KEY, 1, NodeState.RUNNING, numbering=told)
    assert attempt.nodes[1].ranks == attempt.nodes[1].planned.ranks


def test_a_job_that_is_not_elastic_believes_no_numbering(attempt: Attempt) -> None:
    attempt.nodes[1].shared.is_elastic = False
    attempt.nodes[1].status = NodeStatus(KEY, 1, NodeState.RUNNING, numbering=Numbering([0], 3, 0, 4000))
    assert attempt.nodes[1].ranks == attempt.nodes[1].planned.ranks == (1,)


@pytest.mark.parametrize("ranks", [[], [1, 1], [3], [-1]])
def test_a_numbering_that_no_ranks_can_have_is_refused(ranks: list[int]) -> None:
    with pytest.raises(ValueError, match="rank"):
        Numbering(ranks, 3, 0, 4000)


def test_nodes_that_tell_of_the_same_rank_are_no_round(attempt: Attempt) -> None:
    for index, rank in enumerate((0, 0, 2)):
        attempt.say(index, rank)
    attempt.members.learn()
    assert attempt.members.new_round() is None
    attempt.say(1, 1)
    assert attempt.members.new_round() == "3 ranks run, on 3 of 3 nodes"


def test_logs_of_every_rank_that_a_node_has_had_are_offered(attempt: Attempt) -> None:
    log = AttemptLog(EventLog(attempt.directory.events), 0)
    log.number("b", "", Numbering([2], 3, 0, 4000))
    log.number("b", "", Numbering([0], 2, 1, 4001))
    for event in attempt.events(EventKind.RANKS):
        attempt.view.apply(event)
    assert attempt.view.nodes["b"].ranks == (0,)
    assert attempt.view.nodes["b"].logged_ranks == (0, 2)


def disturbed(how: str, *, mended: bool, what: str = "state") -> list[Disturbance]:
    return [Disturbance(what, how, mended)]


def test_what_was_altered_and_put_right_is_told_once_and_the_job_goes_on(attempt: Attempt) -> None:
    attempt.all_run()
    for count in range(3):
        attempt.say(1, 2, disturbances=[Disturbance("state", "forged", True, count + 1)])
        attempt.members.learn()
        assert attempt.members.newly_out(()) == []
    (told,) = attempt.events(EventKind.FINDING)
    assert (told.data["code"], told.data["subject"]) == ("rendezvous-tampered", "b")
    assert told.message == (
        "the rendezvous was tampered with: on b its state was found overwritten by somebody who is no node of the job; "
        "that was put right, and the job goes on"
    )
    address = attempt.nodes[0].planned.address
    assert told.data["hint"].startswith(f"Let nobody but the nodes reach {address}: ")


@pytest.mark.parametrize(
    ("how", "what", "words"),
    [
        ("forged", "state", "on b its state was found overwritten by somebody who is no node of the job"),
        ("replayed", "state", "on b its state was found replaced by an earlier one"),
        ("deleted", "dttui/store", "on b what the nodes tell each other (dttui/store) was found deleted"),
        ("split", "state", "on b its state was found replaced by an earlier one, from which others had gone on"),
    ],
)
def test_a_rendezvous_that_was_tampered_with_ends_the_attempt_though_enough_nodes_are_left(
    attempt: Attempt, how: str, what: str, words: str
) -> None:
    attempt.all_run()
    given_up = [ProcessExit("launcher", 5.0, exit_code=TAMPERED)]
    attempt.say(1, 2, exits=given_up, disturbances=disturbed(how, mended=False, what=what))
    attempt.members.newly_out(())
    assert attempt.members.out["b"] == "the launcher on b gave the rendezvous up"
    assert attempt.members.end is not None
    assert attempt.members.end.startswith(f"the rendezvous was tampered with: {words}. Let nobody but the nodes reach ")
    set_language("zh")
    zh = retell(attempt.members.end.recipe)
    set_language("en")
    assert "汇合点遭到篡改" in zh
    assert "请只让各节点能访问" in zh


def test_another_node_that_is_out_first_hides_no_tampering(attempt: Attempt) -> None:
    attempt.all_run()
    attempt.say(2, 0, disturbances=disturbed("replayed", mended=False))
    attempt.say(1, 2, exits=[ProcessExit("launcher", 5.0, exit_code=LEFT)])
    attempt.members.newly_out(())
    assert attempt.members.end is not None
    assert "tampered" in attempt.members.end
