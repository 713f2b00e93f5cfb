"""Why a job failed of which no rank did: preflights, rendezvous that nodes missed, and ranks that never met."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dtagent.protocol.events import EventKind, JobState

from dttui import jobs
from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.diagnosis_data import document
from dttui.diagnosis.evidence import read_evidence
from dttui.diagnosis.models import AbsentNode, Cause, Evidence, LogLine, Rendezvous
from dttui.jobs.event_log import EventLog
from dttui.jobs.following import JobFollower
from dttui.spec.failure_causes import PREFLIGHT
from tests.unit.diagnosis.test_diagnosis import evidence, failed, node, text_of
from tests.unit.jobs.test_follow import plan_for

REFUSED = "[W1121 TCPStore.cpp:340] [c10d] TCP client failed to connect/validate to host 10.0.0.1:29517 - retrying"
INIT = "torch.distributed.DistStoreError: wait timeout after 8000ms, keys: /default_pg/0//cpu//0/2"


def missed(*absent: AbsentNode, launcher: tuple[LogLine, ...] = ()) -> Evidence:
    nodes = (node("a", 0, 1), node("b", 2, 3, launcher=launcher))
    return evidence(nodes=nodes, rendezvous=Rendezvous(60.0, 60.0, "10.0.0.1", 29517, absent))


def cause(found: Evidence) -> Cause:
    told = diagnose(found).cause
    assert told is not None
    return told


def test_a_missed_rendezvous_says_who_came_who_did_not_and_what_was_last_said() -> None:
    told = cause(missed(AbsentNode("a", True), AbsentNode("b", False, REFUSED)))
    assert told.code == "rendezvous-timeout"
    assert told.words == (
        f"a joined the rendezvous at 10.0.0.1:29517; b did not within 60 s. The launcher of b last said: {REFUSED}"
    )


def test_after_words_about_the_network_a_port_or_a_firewall_is_the_first_reason() -> None:
    told = cause(missed(AbsentNode("b", False, REFUSED)))
    assert told.advice[0].startswith("A port or a firewall: b must reach 10.0.0.1:29517.")
    assert "`dttui logs job-1 --node b`" in told.advice[2]


def test_a_port_that_the_preflight_reached_is_no_reason_to_look_at_first() -> None:
    first, second, *_others = cause(missed(AbsentNode("b", False, REFUSED, has_reached=True))).advice
    assert first.startswith("The wrong network")
    assert "unlikely" in second


def test_nobody_is_sent_to_the_logs_of_a_launcher_that_printed_nothing() -> None:
    told = cause(missed(AbsentNode("b", False)))
    assert told.words.endswith("The launcher of b has printed nothing.")
    assert "run.prefix, and time `/opt/python -c 'import torch'` on b" in told.advice[0]
    assert "dttui logs" not in " ".join(told.advice)


def test_ranks_that_did_not_start_though_all_launchers_came_are_told_apart() -> None:
    assert "but ranks of b did not start within 60 s" in cause(missed(AbsentNode("b", True))).words
    both = missed(AbsentNode("a", False), AbsentNode("b", False))
    assert cause(both).words.startswith("Nobody joined the rendezvous at 10.0.0.1:29517 within 60 s.")


def test_the_last_lines_of_the_launcher_that_did_not_come_are_shown_and_its_log_is_the_one_to_open() -> None:
    last = [LogLine("logs/0/b/launcher.err", 7 + number, f"try {number}") for number in range(2)]
    found = diagnose(missed(AbsentNode("a", True), AbsentNode("b", False, "try 1"), launcher=tuple(last)))
    assert "Its last lines, from logs/0/b/launcher.err:7\ntry 0\ntry 1\n" in text_of(found)
    assert found.log == ("b", "launcher.err")


def test_what_was_last_told_of_a_rendezvous_is_read_from_the_events_also_of_an_older_release() -> None:
    directory = jobs.create("late")
    directory.plan.write_text(plan_for("a", "b").model_dump_json())
    log = EventLog(directory.events)
    log.add(EventKind.JOB_STATE, "waiting", attempt=0, data={"state": "RENDEZVOUS"})
    old = {"waited_s": 10, "missing": {"b": {"has_come": False, "said": "slow"}}}
    log.add(EventKind.PROGRESS, "1 of 2 nodes have joined", attempt=0, data=old)
    reached = {"cells": {"master": {"verdict": "ok", "text": "0.1 ms"}}}
    log.add(EventKind.PREFLIGHT, "", attempt=0, node="b", data=reached)
    log.add(EventKind.JOB_STATE, "b did not join within 60 s", data={"state": "FAILED"})
    log.add(EventKind.OUTCOME, "b did not join within 60 s", data={"state": "FAILED", "exit_code": 100})
    follower = JobFollower(directory)
    while follower.poll():
        pass
    found = read_evidence(directory, follower.view)
    assert found.rendezvous is not None
    assert (found.rendezvous.waited_s, found.rendezvous.port) == (10.0, None)
    assert found.rendezvous.absent == (AbsentNode("b", False, "slow", has_reached=True),)
    assert "b did not within 10 s" in cause(found).words


def test_the_cause_of_a_refused_preflight_is_its_first_finding_and_how_many_more_there_are() -> None:
    findings = (("gpu2 → gpu1:29517 refused", "Open the port."), ("gpu3 has no torch", ""))
    told = cause(evidence(outcome_cause=PREFLIGHT, findings=findings))
    assert (told.code, told.words) == ("preflight", "gpu2 → gpu1:29517 refused (and 1 more error)")
    assert told.advice[0] == "Open the port."
    alone = evidence(outcome_cause=PREFLIGHT, findings=findings[1:], reason="gpu3 has no torch")
    assert cause(alone).words == "gpu3 has no torch"
    assert text_of(diagnose(alone)).splitlines()[:2] == ["gpu3 has no torch", "✗ gpu3 has no torch"], "not thrice"


def test_a_rank_that_never_came_to_init_process_group_is_named_and_its_log_where_it_has_one() -> None:
    printed = {2: LogLine("logs/0/b/2.out", 1, "downloading")}
    told = cause(evidence(failed(0, INIT), absent_ranks={2: "b"}, last_lines=printed))
    assert told.words == (
        "It waited 8 s in init_process_group for rank 2, which did not come there. "
        "Never joined the others: rank 2 on b."
    )
    assert told.advice[0] == "`dttui logs job-1 --rank 2` shows what rank 2 did meanwhile."
    assert "before init_process_group" in told.advice[1]
    silent = cause(evidence(failed(0, INIT)))
    assert silent.advice[0].startswith("Rank 2 has printed nothing.")
    assert silent.words.endswith("Look at what it was doing.")


@pytest.mark.parametrize(
    ("absent", "words"),
    [
        ({2: "b"}, "Others wait for rank 2 on b to join them."),
        ({}, "No rank has printed a line or reported a step in the 60 s since all of them run."),
    ],
)
def test_of_a_job_that_hangs_at_its_start_that_is_said_while_it_runs(absent: dict[int, str], words: str) -> None:
    hanging = replace(evidence(state=JobState.RUNNING, exit_code=None, running_at=140.0), absent_ranks=absent)
    assert words in text_of(diagnose(hanging))
    printed = replace(hanging, absent_ranks={}, last_lines={0: LogLine("x", 1, "step 1")})
    assert "No rank has printed" not in text_of(diagnose(printed))


def test_the_log_of_a_failure_is_the_stream_that_says_it() -> None:
    out, err = LogLine("logs/0/a/0.out", 1, "FATAL"), LogLine("logs/0/a/0.err", 1, "ValueError")
    assert diagnose(evidence(failed(0, lines=(out, err)))).log == ("a", "0.err")
    assert diagnose(evidence(failed(0, lines=(out,)))).log == ("a", "0.out")
    assert diagnose(evidence(failed(None))).log == ("b", None), "it printed nothing: perhaps its ranks did"
    assert diagnose(evidence(state=JobState.SUCCEEDED)).log is None
    assert document(diagnose(evidence(failed(0))))["first_failure"]["rank"] == 0
