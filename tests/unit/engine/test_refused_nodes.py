"""Whom a preflight refuses: who failed a check, and between two nodes the one that has come since."""

from __future__ import annotations

import pytest

from dttui.engine.refused_nodes import NodeRefusal, refused_nodes
from dttui.errors import HostUnreachableError
from dttui.jobs.board import Board, Judgement, drift_of
from dttui.jobs.checks import Check
from dttui.jobs.outcome import TAKEN, UNFIT, UNREACHABLE
from dttui.preflight.software import drift_findings
from dttui.spec.findings import error, warning


def board(*names: str) -> Board:
    return Board(names)


def without_master(told: Board, *names: str) -> Board:
    for name in names:
        told.put(name, {Check.MASTER: Judgement("", (error("master-unreachable", name, "no answer"),))})
    return told


def with_nccl(told: Board, **versions: str) -> Board:
    told.drift = (drift_of("NCCL", versions),)
    told.say(drift_findings(told.drift))
    return told


def test_who_is_out_of_reach_or_fails_a_check_is_refused_and_who_is_only_warned_of_is_not() -> None:
    told = board("a", "b", "c")
    told.unreachable["a"] = HostUnreachableError("a", "no route")
    told.put("b", {Check.GPUS: Judgement("", (error("disk-low", "b", "full"),))})
    told.put("c", {Check.CLOCK: Judgement("", (warning("clock-skew", "c", "off"),))})
    assert refused_nodes(told) == {"a": NodeRefusal(UNREACHABLE), "b": NodeRefusal(UNFIT)}


def test_each_is_refused_in_its_own_words_and_one_whose_gpus_alone_are_in_use_is_not_unfit() -> None:
    told = board("a", "b", "c")
    taken = {name: error("gpus-taken", name, f"{name} is in use") for name in ("a", "b")}
    told.put("a", {Check.GPUS: Judgement("", (taken["a"],))})
    told.put(
        "b", {Check.GPUS: Judgement("", (taken["b"],)), Check.ROOM: Judgement("", (error("disk-low", "b", "full"),))}
    )
    told.unreachable["c"] = HostUnreachableError("c", "no route")
    found = refused_nodes(told)
    assert found == {"a": NodeRefusal(TAKEN), "b": NodeRefusal(UNFIT), "c": NodeRefusal(UNREACHABLE)}
    assert [item.reason for item in found.values()] == ["a is in use", "full", "no route"]


def test_a_new_master_that_the_others_cannot_reach_is_refused_instead_of_them() -> None:
    assert refused_nodes(without_master(board("s", "b"), "b"), ["a", "b"]) == {"s": NodeRefusal(UNFIT)}
    assert refused_nodes(without_master(board("a", "s"), "s"), ["a", "b"]) == {"s": NodeRefusal(UNFIT)}
    assert refused_nodes(without_master(board("a", "b"), "b"), ["a", "b"]) == {"b": NodeRefusal(UNFIT)}
    assert refused_nodes(without_master(board("a", "b"), "b")) == {"b": NodeRefusal(UNFIT)}


@pytest.mark.parametrize("master", ["2.27", "2.28"])
def test_of_different_versions_of_nccl_that_of_the_new_node_is_refused(master: str) -> None:
    spare = "2.28" if master == "2.27" else "2.27"
    assert refused_nodes(with_nccl(board("a", "s"), a=master, s=spare), ["a", "b"]) == {"s": NodeRefusal(UNFIT)}
    assert refused_nodes(with_nccl(board("s", "a"), s=spare, a=master), ["a", "b"]) == {"s": NodeRefusal(UNFIT)}
    assert refused_nodes(with_nccl(board("a", "b"), a=master, b=spare), ["a", "b"]) == {}
    assert refused_nodes(with_nccl(board("s", "t"), s=master, t=spare), ["a", "b"]) == {}
