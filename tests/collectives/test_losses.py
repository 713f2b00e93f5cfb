"""Ranks of real gloo groups that lose one of them in the middle of a collective."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import pytest

from tests.collectives.answer_times import ANSWER_S
from tests.collectives.starting import python, started
from tests.lab.hosts import Lab
from tests.lab.interpreter import USER_PYTHON

pytest.importorskip("torch")

from dtagent.payload.collectives import CollectiveError
from dtagent.payload.collectives.rank_status import Door, RankStanding, judge
from dtagent.payload.collectives.regrouping import Regrouping

ROOT = Path(__file__).parents[2]
TRAINS = "tests.collectives.recovering_ranks"
RANKS = "tests.collectives.lost_ranks"
TIMEOUT_S = 6.0
"""Longer than a busy machine holds up a rank that lives."""
NOTICED_S = ANSWER_S + 8.0
"""After that: until one that does not answer is not waited for any more, on a machine under load."""


@pytest.mark.parametrize(
    ("how", "timeout_s", "within_s", "words"),
    [
        ("stop", TIMEOUT_S, TIMEOUT_S + NOTICED_S, "rank 2 did not answer"),
        ("kill", 40.0, NOTICED_S, "rank 2 ended"),
    ],
)
def test_all_others_name_the_rank_that_stops_in_the_middle_of_a_ring(
    how: str, timeout_s: float, within_s: float, words: str, tmp_path: Path
) -> None:
    """Most of its ring wait for ranks that wait themselves; where connections break nobody waits for the time-out."""
    with started([python(RANKS, rank, 5, tmp_path / "store", 2, how, timeout_s) for rank in range(5)]) as ranks:
        for rank in (ranks[0], ranks[1], ranks[3], ranks[4]):
            found = rank.told()
            assert found["missing"] == [2], found
            assert found["notes"] == ["missing: rank 2"]
            assert words in found["message"]
            assert found["took"] < within_s
            assert "this group has lost rank 2; `rebuild` or `shrink` it" in rank.told()["again"]


def test_a_collective_raises_less_than_a_second_after_its_time_out(tmp_path: Path) -> None:
    """As jobs wait, and not as other tests do: a busy machine may hold one of three up, hardly all."""
    with started([python(RANKS, rank, 3, tmp_path / "store", 2, "late", 2.0) for rank in range(3)]) as ranks:
        for rank in ranks[:2]:
            taken = rank.told()["taken"]
            assert len(taken) == 3
            assert 2.0 <= min(taken) < 3.0, taken


def test_who_is_to_blame_is_known_less_than_a_second_after_the_time_out() -> None:
    """However long they say nothing."""
    taken = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = Door("127.0.0.1", listener.getsockname()[1], "secret")
        for _try in range(5):  # A busy machine may hold this up, hardly each time.
            standing = RankStanding(0)
            standing.doors = {1: silent, 2: silent}
            began = time.monotonic()
            loss = judge(standing, [1], is_late=True)
            taken.append(time.monotonic() - began)
            assert (loss.missing, loss.reason) == ([1, 2], "did not answer")
    assert min(taken) < 1.0, taken


def test_where_nobody_has_said_where_to_ask_the_way_on_is_told() -> None:
    with pytest.raises(CollectiveError, match="lost before its ranks had told each other where they answer: start the"):
        Regrouping(RankStanding(0), 3).meet(everyone=True, timeout_s=1.0)


def test_a_host_that_is_cut_off_is_named_though_it_held_the_store(breakable_lab3: Lab) -> None:
    """And the one that is cut off names all the others."""
    hosts = [breakable_lab3["gpu1"], breakable_lab3["gpu2"], breakable_lab3["gpu2"]]
    store = f"{hosts[0].address}:29517"
    commands = [
        [
            *("nsenter", "--target", str(host.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--"),
            *("env", f"--chdir={ROOT}", "GLOO_SOCKET_IFNAME=eth0", USER_PYTHON, "-m", RANKS),
            *map(str, (rank, 3, store, 0, "cut", TIMEOUT_S)),
        ]
        for rank, host in enumerate(hosts)
    ]
    with started(commands) as ranks:
        assert ranks[0].told() == {"here": True}
        hosts[0].cut()
        ranks[0].go_on()
        for rank, missing in zip(ranks, ([1, 2], [0], [0]), strict=True):
            found = rank.told()
            assert found["missing"] == missing, found
            assert found["took"] < TIMEOUT_S + NOTICED_S
            assert "again" in rank.told()
        with_others, alone = [rank.told() for rank in (ranks[1], ranks[2])], ranks[0].told()
        assert [found["rank"] for found in with_others] == [0, 1]
        assert with_others[0]["ranks"] == [1, 2]
        assert "rank 0 cannot go on without ranks 1, 2" in alone["refused"]


def test_two_of_three_train_on_from_equal_state_when_the_third_is_killed_in_the_middle(tmp_path: Path) -> None:
    """It was the lowest one, whose process no other needs; both end with the same parameters."""
    with started([python(TRAINS, rank, 3, tmp_path / "store", 30, "3:0:kill") for rank in range(3)]) as ranks:
        left = ranks[1:]
        assert [rank.told()["missing"] for rank in left] == [[0], [0]]
        for number, rank in enumerate(left):
            found = rank.told()
            assert (found["rank"], found["ranks"]) == (number, [1, 2])
            assert found["took"] < 20
        ends = [rank.told() for rank in left]
        assert ends[0]["step"] == 6
        assert ends[0] == ends[1]


def test_five_go_on_through_three_losses_one_after_another(tmp_path: Path) -> None:
    """Each time ranks have other numbers; a connection that breaks is heard of at once, though none waits for it."""
    losses = {1: [0], 2: [0], 3: [0], 4: [0]}, {1: [3], 2: [3], 3: [3]}, {1: [1], 3: [1]}
    plan = "1:0:kill", "2:4:stop", "3:2:kill"
    with started([python(TRAINS, rank, 5, tmp_path / "store", 8, *plan) for rank in range(5)]) as ranks:
        for number, heard in enumerate(losses):
            for rank, missing in heard.items():
                assert ranks[rank].told()["missing"] == missing
            for rank in heard:
                found = ranks[rank].told()
                assert found["ranks"] == sorted(heard)
                assert found["took"] < (20 if number != 1 else 30)
        ends = [ranks[rank].told() for rank in (1, 3)]
        assert ends[0]["step"] == 6
        assert ends[0] == ends[1]


def test_losses_in_the_very_first_collective_of_a_group_and_of_the_next_one_are_survived(tmp_path: Path) -> None:
    """Nobody has heard anything of anybody over either group."""
    with started([python(TRAINS, rank, 5, tmp_path / "store", 30, "0:1:kill", "then:3") for rank in range(5)]) as ranks:
        left = [ranks[0], ranks[2], ranks[4]]
        assert [rank.told()["missing"] for rank in left] == [[1]] * 3
        ranks[3].told()
        assert [rank.told()["missing"] for rank in left] == [[2]] * 3, "by its number in the new group"
        assert [rank.told()["ranks"] for rank in left] == [[0, 2, 4]] * 3
        ends = [rank.told() for rank in left]
        assert ends[0]["step"] == 3
        assert ends[0] == ends[1] == ends[2]


def test_a_rank_that_was_stopped_trains_on_with_all_others_after_a_rebuild(tmp_path: Path) -> None:
    with started([python(TRAINS, rank, 3, tmp_path / "store", 8, "3:1:slow") for rank in range(3)]) as ranks:
        assert [rank.told()["missing"] for rank in (ranks[0], ranks[2])] == [[1], [1]]
        ranks[1].signal(signal.SIGCONT)
        late = ranks[1].told()
        assert late["missing"] == [0, 2]
        assert "gave this rank up" in late["message"]
        assert [rank.told()["ranks"] for rank in ranks] == [[0, 1, 2]] * 3
        ends = [rank.told() for rank in ranks]
        assert ends[0]["step"] == 6
        assert ends[0] == ends[1] == ends[2]
