"""From what a job left behind to its first cause: order, what was measured, what the other ranks did, and the words."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from dtagent.protocol.events import JobState, Metric, NodeStanding
from dtagent.protocol.telemetry import GpuSample, HostSample, RankSample

from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.diagnosis_data import document
from dttui.diagnosis.exceptions import headline
from dttui.diagnosis.models import Confidence, Diagnosis, Doing, Evidence, Failed, LogLine, NodeEvidence
from dttui.diagnosis.report import sections, short_sections
from dttui.redaction import redact
from dttui.spec.failure_causes import HOST_UNREACHABLE, LAUNCH, PREFLIGHT
from tests.gloo import ABORTED

PEER = (
    "RuntimeError: [/p/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:9122. "
    "This is typically caused by a remote worker crashing."
)
TIMEOUT = (
    "[rank{rank}]:[E816 01:45:40 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank {rank}] Exception (either an "
    "error or timeout) detected by watchdog at work: 80, last enqueued NCCL work: {work}, last completed NCCL work: 79."
)
WATCHDOG = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=80, OpType=ALLREDUCE, Timeout(ms)=6) ran "
    "for 6000 milliseconds"
)


def lines(*texts: str) -> tuple[LogLine, ...]:
    return tuple(LogLine("logs/0/a/0.err", number, text) for number, text in enumerate(texts, 1))


def failed(rank: int | None, error: str | None = None, *, time: float = 100.0, **fields: object) -> Failed:
    node = "a" if rank in (0, 1) else "b"
    given = {"exit_code": 1, "error": error, **fields}
    return Failed(node, rank, f"rank {rank} failed", time, **given)  # type: ignore[arg-type]  # fields of it


def node(name: str, *ranks: int, state: str = "stopped", **fields: object) -> NodeEvidence:
    return NodeEvidence(name, ranks, NodeStanding(state), "", "/opt/python", **fields)  # type: ignore[arg-type]  # fields of it


def evidence(*failures: Failed, **fields: object) -> Evidence:
    made = Evidence(
        "job-1", JobState.FAILED, "it failed", 100, 0, True, 200.0, (node("a", 0, 1), node("b", 2, 3)), failures
    )
    return replace(made, **fields)  # type: ignore[arg-type]  # fields of it


def text_of(found: Diagnosis) -> str:
    parts = sections(found)
    return "\n".join(line for part in parts for line in (part.heading, *(item.text for item in part.lines)) if line)


def cause_of(*failures: Failed, **fields: object) -> tuple[str, str]:
    cause = diagnose(evidence(*failures, **fields)).cause
    assert cause is not None
    return cause.code, cause.words


def reading(
    time: float, *, used_mib: int = 1000, gpu: GpuSample | None = None, ranks: tuple[int, ...] = ()
) -> HostSample:
    own = [RankSample(rank, 7, 99.0, 500) for rank in ranks]
    gpus = [gpu] if gpu is not None else []
    return HostSample(1, time, 40.0, memory_used_mib=used_mib, memory_total_mib=10_000, gpus=gpus, ranks={"job-1": own})


def test_a_cause_goes_before_its_consequences_whatever_the_clocks_say() -> None:
    found = diagnose(
        evidence(
            failed(0, PEER, time=90.0),
            failed(1, None, time=91.0, signal=signal.SIGTERM, exit_code=None),
            failed(2, "ValueError: bad batch", time=95.0),
            failed(3, "KeyError: 'x'", time=96.0),
        )
    )
    assert found.first is not None
    assert found.first.failure.rank == 2
    assert [item.failure.rank for item in found.also] == [3, 0, 1]
    assert [item.cause.code for item in found.also] == ["exception", "peer-gone", "ended-with-others"]
    assert {other.rank: other.doing for other in found.others} == {0: Doing.FAILED, 1: Doing.STOPPED, 3: Doing.FAILED}


def test_a_rank_that_lost_its_peer_while_it_cleaned_up_after_its_own_error_is_a_cause() -> None:
    traceback = (
        'Traceback (most recent call last):\n  File "/w/t.py", line 3, in step\ntorch.OutOfMemoryError: CUDA '
        "out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 8 GiB of which 1.00 GiB is free.\n\n"
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
        f'  File "x"\n{PEER}\n'
    )
    code, words = cause_of(failed(0, PEER, traceback=traceback), failed(2, PEER, time=99.0))
    assert code == "cuda-oom"
    assert "2.15 GB more were asked for" in words


def test_what_could_not_be_cleared_away_is_not_the_first_failure() -> None:
    left = Failed("a", None, "a: these processes cannot be ended: 7 (python)", 50.0, is_aftermath=True)
    found = diagnose(evidence(left, failed(2, "ValueError: bad")))
    assert found.first is not None
    assert found.first.failure.rank == 2
    assert found.also[-1].cause.code == "unkillable"


def test_without_a_record_the_end_of_stderr_is_read_and_its_line_named() -> None:
    printed = lines(
        "step 1",
        "Traceback (most recent call last):",
        '  File "t.py", line 1',
        "ModuleNotFoundError: No module named 'x'",
    )
    found = diagnose(evidence(failed(0, lines=printed)))
    assert found.cause is not None
    assert (found.cause.code, found.cause.confidence) == ("missing-module", Confidence.LIKELY)
    assert "logs/0/a/0.err:4: ModuleNotFoundError" in text_of(found)


def test_what_is_missing_on_several_hosts_is_told_of_all_of_them_and_named_in_the_advice() -> None:
    missing = "ModuleNotFoundError: No module named 'x'"
    found = diagnose(evidence(failed(2, missing), failed(0, missing, time=101.0), failed(1, missing, time=102.0)))
    assert found.cause is not None
    assert found.cause.words == "/opt/python on b, a has no module x."
    assert "pip install x." in found.cause.advice[0]
    assert "on b, a," in found.cause.advice[0]
    others = diagnose(evidence(failed(2, missing), failed(0, "ModuleNotFoundError: No module named 'y'", time=101.0)))
    assert others.cause is not None
    assert others.cause.words == "/opt/python on b has no module x."


def test_an_exception_that_was_logged_long_before_the_end_is_no_cause() -> None:
    printed = lines("Traceback (most recent call last):", "OSError: [Errno 28] No space left on device", *["step"] * 30)
    assert cause_of(failed(0, "SystemExit: 3", exit_code=3, lines=printed))[0] == "exit-code"


def test_what_a_script_says_when_it_exits_is_its_cause() -> None:
    assert cause_of(failed(0, "SystemExit: no such preset: xl", exit_code=1))[1].endswith("no such preset: xl")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"signal": signal.SIGSEGV, "exit_code": None}, "segfault"),
        ({"exit_code": 139}, "segfault"),
        ({"exit_code": 137}, "killed"),
        ({"signal": signal.SIGBUS, "exit_code": None}, "bus-error"),
        ({"signal": signal.SIGTERM, "exit_code": None}, "terminated"),
        ({"signal": 40, "exit_code": None}, "signal"),
        ({"exit_code": 3}, "exit-code"),
        ({"exit_code": 128}, "exit-code"),
    ],
)
def test_an_end_without_words_is_told_by_its_signal_or_exit_code(fields: dict[str, object], code: str) -> None:
    assert cause_of(failed(0, None, **fields))[0] == code  # type: ignore[arg-type]  # fields of it


def test_a_rank_that_gloo_aborts_as_its_script_is_over_is_told_as_that() -> None:
    ended = failed(0, None, signal=signal.SIGABRT, exit_code=None, lines=lines("step 9", ABORTED))
    code, words = cause_of(ended)[:2]
    assert (code, "as gloo's do now and then" in words) == ("aborted", True)
    assert "gloo" not in cause_of(failed(0, None, signal=signal.SIGABRT, exit_code=None, lines=lines("step 9")))[1]


def test_a_rank_killed_on_a_full_host_ran_out_of_memory_and_on_an_empty_one_perhaps_not() -> None:
    killed = failed(0, None, signal=signal.SIGKILL, exit_code=None)
    full = (node("a", 0, 1, readings=(reading(80.0, used_mib=5000), reading(99.0, used_mib=9800))), node("b", 2))
    assert cause_of(killed, nodes=full)[0] == "host-oom"
    empty = (node("a", 0, 1, readings=(reading(99.0, used_mib=900),)), node("b", 2))
    assert cause_of(killed, nodes=empty)[0] == "killed"
    late = (node("a", 0, 1, readings=(reading(20.0, used_mib=9900), reading(99.0, used_mib=900))), node("b", 2))
    assert cause_of(killed, nodes=late)[0] == "killed", "what was full a minute before is not the reason"


def test_a_memory_error_on_a_host_with_room_speaks_of_a_limit() -> None:
    roomy = (node("a", 0, 1, readings=(reading(99.0, used_mib=900),)),)
    assert "a limit stood in the way" in cause_of(failed(0, "MemoryError"), nodes=roomy)[1]


def test_the_gpu_in_the_seconds_before_is_told_and_an_xid_explains_a_crash() -> None:
    def gpu(**fields: object) -> GpuSample:
        return GpuSample(5, 97, 70_000, 81_920, 86, 402.0, 700.0, **fields)  # type: ignore[arg-type]  # fields of it

    readings = (
        reading(90.0, gpu=gpu(xid_count=0, ecc_uncorrected=0)),
        reading(99.0, gpu=gpu(xid_count=1, xid_last=79, ecc_uncorrected=2, throttle_reasons=["power cap"])),
        reading(101.0, gpu=GpuSample(5, 0, 0, 81_920, 40)),
    )
    nodes = (node("a", 0, 1, gpu_ids=(4, 5), readings=readings),)
    found = diagnose(evidence(failed(1, "RuntimeError: CUDA error: unspecified launch failure"), nodes=nodes))
    assert found.cause is not None
    assert found.cause.code == "gpu-xid"
    assert found.cause.words == "GPU 5 of a reported Xid 79: the GPU fell off the bus."
    text = text_of(found)
    assert "GPU 5  busy 97% · holds up to 73.4 of 85.9 GB · up to 86 °C · 402 of 700 W · held back: power cap" in text
    assert "2 uncorrected memory errors · Xid 79" in text
    assert "2 readings, the last 1.0 s before it" in text


def test_of_the_gpus_that_one_rank_drives_the_one_that_failed_is_told() -> None:
    sick, well = GpuSample(5, 97, xid_count=1, xid_last=79), GpuSample(4, 97, 80_000, 81_920, xid_count=0)
    readings = (
        reading(90.0, gpu=GpuSample(5, 97, xid_count=0)),
        replace(reading(99.0, gpu=sick), gpus=[well, sick]),
    )
    nodes = (node("a", 0, gpu_ids=(4, 5), readings=readings),)
    code, words = cause_of(failed(0, "RuntimeError: CUDA error: unspecified launch failure"), nodes=nodes)
    assert (code, words) == ("gpu-xid", "GPU 5 of a reported Xid 79: the GPU fell off the bus.")


def test_an_xid_that_a_program_causes_does_not_accuse_the_gpu() -> None:
    readings = tuple(reading(90.0 + n, gpu=GpuSample(0, 97, xid_count=n, xid_last=31)) for n in range(2))
    nodes = (node("a", 0, gpu_ids=(0,), readings=readings),)
    code, words = cause_of(failed(0, "RuntimeError: CUDA error: an illegal memory access was encountered"), nodes=nodes)
    assert code == "cuda-fault"
    assert "Xid 31: a kernel used an address that is not mapped" in words


def test_where_all_timed_out_the_rank_that_had_begun_fewer_collectives_is_named() -> None:
    ranks = [
        failed(
            rank,
            None,
            exit_code=None,
            signal=signal.SIGABRT,
            lines=lines(WATCHDOG, TIMEOUT.format(rank=rank, work=work)),
        )
        for rank, work in ((0, 82), (1, 82), (2, 80), (3, 82))
    ]
    code, words = cause_of(*ranks)
    assert code == "collective-timeout"
    assert words.endswith("Behind by 2 collectives: rank 2 on b. Look at what it was doing.")


def test_what_horovod_printed_of_the_rank_that_it_missed_says_why_it_shut_down() -> None:
    error = "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by …"
    told = lines(
        "[2026-11-28 12:00:00.7: E horovod/common/stall_inspector.cc:110] One or more tensors were submitted to be "
        "reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 1 "
        "seconds. ",
        "Missing ranks:",
        "3!: [allreduce.head.bias, allreduce.head.weight]",
        'One or more rank (marked by "!") is stalled for longer than 5 seconds. Will shutdown.',
    )
    code, words = cause_of(failed(0, error, lines=told), failed(1, error))
    assert code == "collective-timeout"
    assert words.startswith("It waited in a collective of Horovod (allreduce.head.bias) for rank 3, which did not come")


def test_where_all_others_timed_out_the_rank_that_did_not_fail_is_named() -> None:
    error = "RuntimeError: [x/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete"
    metrics = {2: Metric(2, 118), 3: Metric(3, 117)}
    _code, words = cause_of(failed(0, error), failed(1, error), metrics=metrics)
    assert words.endswith("Waited for, and not failed itself: rank 3 on b. Look at what it was doing.")


def test_a_peer_that_had_ended_well_before_is_named() -> None:
    readings = (reading(80.0, ranks=(2, 3)), reading(99.0, ranks=(3,)))
    nodes = (node("a", 0, 1), node("b", 2, 3, readings=readings))
    _code, words = cause_of(failed(0, PEER), nodes=nodes)
    assert "Already ended, and well: rank 2 on b." in words


def test_a_node_of_which_nothing_is_heard_is_the_cause_of_lost_peers() -> None:
    lost = replace(node("b", 2, 3, state="lost", readings=(reading(97.0),)), message="could not be reached")
    found = diagnose(evidence(failed(0, PEER), nodes=(node("a", 0, 1), lost)))
    assert found.first is not None
    assert (found.cause.code if found.cause else None) == "node-lost"
    assert (found.first.failure.node, found.first.failure.time) == ("b", 97.0)
    assert [other.doing for other in found.others] == [Doing.FAILED, Doing.STOPPED, Doing.LOST, Doing.LOST]


def test_a_rank_that_ended_with_0_before_the_failure_is_told_as_such_and_one_that_did_when_asked_is_not() -> None:
    exits = {"1": 0, "2": 0, "3": 0, "launcher": -9}
    ended = node("b", 2, 3, exits=exits, ended_at={"2": 99.0, "3": 101.0})
    found = diagnose(evidence(failed(0, "ValueError: bad"), nodes=(node("a", 0, 1, exits=exits), ended)))
    assert [other.doing for other in found.others] == [Doing.ENDED, Doing.ENDED, Doing.STOPPED]
    assert "rank 2 on b  had ended with 0\nrank 3 on b  ran until it was stopped" in text_of(found)


def test_of_a_host_that_answers_and_was_cleared_nobody_is_told_to_log_in_or_clear_it() -> None:
    lost = Failed("b", None, "b: the supervisor on this host died", 100.0, is_lost=True, is_cleared=True)
    readings = (reading(98.0, ranks=(2, 3)), reading(99.0))
    found = diagnose(evidence(lost, nodes=(node("a", 0, 1), node("b", 2, 3, state="lost", readings=readings))))
    assert found.advice[0] == "b answers, and nothing of the job is left there."
    assert "dttui stop" not in text_of(found)
    assert {other.doing for other in found.others} == {Doing.STOPPED}


def test_the_advice_to_stop_names_its_job_since_without_a_name_another_one_that_runs_is_stopped() -> None:
    lost = Failed("b", None, "b: could not be reached", 100.0, is_lost=True)
    found = evidence(lost, nodes=())
    (unheard,) = diagnose(found).advice[1:]
    assert unheard == f"`dttui stop {found.job_id}` clears the host once it answers again."


CRASHED = (
    "Fatal Python error: Segmentation fault",
    "",
    "Thread 0x00007f01 (most recent call first):",
    '  File "/usr/lib/python3.11/threading.py", line 331 in wait',
    '  File "/w/loader.py", line 3 in fill',
    "",
    "Current thread 0x00007f02 (most recent call first):",
    '  File "/v/lib/python3.11/site-packages/torch/nn/functional.py", line 7 in linear',
    '  File "/w/train.py", line 12 in step',
    '  File "/w/train.py", line 20 in <module>',
    "",
    "Extension modules: numpy.core (total: 1)",
)


def test_where_python_told_where_it_crashed_that_is_said_and_not_asked_for() -> None:
    crash = failed(0, exit_code=None, signal=signal.SIGSEGV)
    found = diagnose(evidence(replace(crash, lines=lines(*CRASHED))))
    assert found.cause is not None
    assert found.cause.words.endswith("Python was in train.py, line 12, function step.")
    assert "PYTHONFAULTHANDLER" not in text_of(found)
    assert "look at that call" in found.advice[0]
    assert "PYTHONFAULTHANDLER" in diagnose(evidence(crash)).advice[0]


CURRENT = "Current thread 0x00007f (most recent call first):"


def test_a_message_without_a_full_stop_is_told_apart_from_where_it_crashed() -> None:
    printed = lines("Fatal Python error: Segmentation fault", "", CURRENT, '  File "/w/a.py", line 3 in f')
    crashed = failed(0, "ValueError: x", lines=printed, signal=signal.SIGSEGV, exit_code=None)
    assert cause_of(crashed)[1].endswith("function f: x. Python was in a.py, line 3, function f.")


def test_ranks_that_never_started_are_named_at_a_rendezvous_that_timed_out() -> None:
    error = "torch.distributed.DistStoreError: Timed out after 31 seconds waiting for clients. 2/4 clients joined."
    nodes = (node("a", 0, 1, ranks_started=(0, 1)), node("b", 2, 3, ranks_started=()))
    _code, words = cause_of(failed(0, error), nodes=nodes)
    assert words == "Only 2 of 4 ranks came to the rendezvous within 31 s. Never started: rank 2 on b, rank 3 on b."


@pytest.mark.parametrize(
    ("outcome_cause", "code"),
    [(PREFLIGHT, PREFLIGHT), (HOST_UNREACHABLE, HOST_UNREACHABLE), (LAUNCH, LAUNCH), (None, "unknown")],
)
def test_a_job_that_failed_before_any_rank_tells_why_and_what_to_try(outcome_cause: str | None, code: str) -> None:
    found = diagnose(evidence(outcome_cause=outcome_cause, findings=(("lab2 has no torch", "install it"),)))
    assert found.cause is not None
    assert found.cause.code == code
    assert found.advice
    assert "✗ lab2 has no torch\n  → install it" in text_of(found)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (JobState.SUCCEEDED, "Nothing has failed."),
        (JobState.CANCELLED, "Nothing has failed: the job was cancelled."),
        (JobState.RUNNING, "Nothing has failed so far: the job is not over (RUNNING)."),
        (JobState.UNKNOWN, "No controller watches this job"),
    ],
)
def test_a_job_that_did_not_fail_says_so_and_how_it_stands(state: JobState, words: str) -> None:
    metrics = {0: Metric(0, 12, 1.5, time=190.0)}
    nodes = (node("a", 0, 1, state="running"), node("b", 2, state="unknown"))
    found = diagnose(evidence(state=state, exit_code=None, metrics=metrics, nodes=nodes))
    text = text_of(found)
    assert words in text
    assert "step 12 · loss 1.5000" in text
    assert ("came 10 s ago" in text) == (state is JobState.RUNNING)
    assert short_sections(found) == ()


@pytest.mark.parametrize(("failures", "is_known"), [((), False), ((failed(0, "ValueError: bad"),), True)])
def test_a_job_that_is_being_stopped_tells_why_and_what_failed_so_far(
    failures: tuple[Failed, ...], is_known: bool
) -> None:
    stopping = evidence(*failures, state=JobState.STOPPING, reason="a failure on a ends all", exit_code=None)
    text = text_of(diagnose(stopping))
    assert "Nothing has failed" not in text
    assert "The job is being stopped: a failure on a ends all" in text
    assert ("is told once it has ended" in text) != is_known
    assert ("rank 0 failed" in text) == is_known
    running = text_of(diagnose(replace(stopping, state=JobState.RUNNING)))
    assert ("Nothing has failed so far" in running) != is_known


def test_a_diagnosis_is_data_too_and_its_short_form_ends_with_what_to_try() -> None:
    found = diagnose(evidence(failed(0, "ValueError: bad"), failed(2, PEER)))
    data = document(found)
    assert data["first_failure"]["rank"] == 0
    assert data["cause"]["confidence"] == "certain"
    assert data["failed_after"][0]["cause"]["is_consequence"] is True
    assert {item["rank"]: item["doing"] for item in data["ranks"]} == {1: "stopped", 2: "failed", 3: "stopped"}
    assert short_sections(found)[-1].heading == "What to try"


def test_a_syntax_error_s_headline_is_its_message_and_place() -> None:
    error = 'File "train.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax'
    assert headline(error) == "SyntaxError: invalid syntax (file train.py, line 3)"
    raised = 'File "cfg.py", line 3, in check\n    raise SyntaxError(text)\nSyntaxError: no such key'
    assert headline(raised) == "SyntaxError: no such key"
    assert cause_of(failed(0, headline(raised)))[0] == "exception"
    assert headline("ValueError: one\ntwo") == "ValueError: one"
    assert headline("") == ""


def test_of_a_command_that_trains_itself_no_rank_is_said_to_have_never_started() -> None:
    alone = (node("a", 0, state="failed", starts_own_ranks=True, ranks_started=(), exits={"launcher": 1}),)
    metrics = {0: Metric(0, 3, 2.0)}
    assert diagnose(evidence(replace(failed(None), node="a"), nodes=alone)).others == ()
    assert diagnose(evidence(replace(failed(None), node="a"), nodes=alone, metrics=metrics)).others == ()
    stopped = (replace(alone[0], state=NodeStanding.STOPPED),)
    (told,) = diagnose(evidence(nodes=stopped, metrics=metrics, state=JobState.CANCELLED)).others
    assert (told.doing, told.step) == (Doing.STOPPED, 3)


def test_secrets_and_tokens_are_taken_out() -> None:
    text = redact(
        "key=s3cret-value hf_abcdefghijklmnopqrstuvwxyz https://me:pw@host/x the cat", ["s3cret-value", "cat"]
    )
    assert text == "key=••• ••• https://•••@host/x the cat"


@pytest.mark.parametrize("code", [HOST_UNREACHABLE, PREFLIGHT])
def test_where_nothing_was_started_no_rank_is_said_to_have_run(code: str) -> None:
    nodes = (node("a", 0, 1, state="failed"), node("b", 2, 3, state="connected"))
    found = diagnose(evidence(outcome_cause=code, nodes=nodes))
    assert found.others == ()
    assert "rank" not in text_of(found)
    assert document(found)["ranks"] == []


def test_after_a_launch_that_failed_only_ranks_that_were_seen_to_start_are_said_to_have_run() -> None:
    nodes = (node("a", 0, 1, state="stopped", ranks_started=(0,)), node("b", 2, 3, state="failed"))
    found = diagnose(evidence(outcome_cause=LAUNCH, nodes=nodes))
    assert {other.rank: other.doing for other in found.others} == {
        0: Doing.STOPPED,
        1: Doing.ABSENT,
        2: Doing.ABSENT,
        3: Doing.ABSENT,
    }


def test_of_a_good_end_without_a_group_it_is_not_said_that_nothing_has_failed() -> None:
    fields = {"state": JobState.SUCCEEDED, "exit_code": 0}
    assert "Nothing has failed." in text_of(diagnose(evidence(**fields)))
    apart = ("the 4 ranks have formed no process group", "Call init_process_group.")
    said = text_of(diagnose(evidence(**fields, apart=apart)))
    assert "Nothing has failed." not in said
    assert apart[0] in said


def test_a_rank_of_a_job_that_is_over_ended_and_had_not_ended_before_anything() -> None:
    over = evidence(state=JobState.SUCCEEDED, exit_code=0)
    said = text_of(diagnose(over))
    assert "rank 0 on a  ended with 0" in said
    assert "had ended" not in said
