"""Where ranks stood when they failed, compared; where compiled code crashed; and ports that siblings took.

The texts are what torch 2.13 and CPython 3.11 printed in ranks over gloo that were made to fail so.
"""

from __future__ import annotations

import signal
from dataclasses import replace

from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.diagnosis_data import document
from dttui.diagnosis.models import Confidence, Diagnosis, Failed
from tests.unit.diagnosis.test_diagnosis import evidence, failed, lines, node, text_of

TIMED_OUT = (
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting "
    "8000ms for recv operation to complete"
)
SENT = "/var/tmp/dtagent-0/jobs/odd-1129-210901-a4f2/0/work/odd.py"
TORCH = "/opt/lib/python3.11/site-packages/torch"
IN_BACKWARD = f"""Traceback (most recent call last):
  File "{SENT}", line 17, in <module>
    train(3 if rank < 3 else 2)
  File "{SENT}", line 12, in train
    loss.backward()
  File "{TORCH}/_tensor.py", line 623, in backward
    torch.autograd.backward(
  File "{TORCH}/autograd/__init__.py", line 395, in backward
    _engine_run_backward(
  File "{TORCH}/autograd/graph.py", line 979, in _engine_run_backward
    return Variable._execution_engine.run_backward(  # Calls into the C++ engine to run the backward pass
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
{TIMED_OUT}
"""
IN_BARRIER = f"""Traceback (most recent call last):
  File "{SENT}", line 18, in <module>
    finish()
  File "{SENT}", line 15, in finish
    dist.barrier()
  File "{TORCH}/distributed/c10d_logger.py", line 83, in wrapper
    return func(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^
  File "{TORCH}/distributed/distributed_c10d.py", line 5356, in barrier
    work.wait()
{TIMED_OUT}
"""
ENFORCE = (
    "[enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= "
    "op.nbytes. 8 vs 4. Received data size doesn't match expected size. Is there a distributed collective mismatch in "
    "your code?"
)
GLOO_ABORTS = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    f"  what():  {ENFORCE}",
    "Fatal Python error: Aborted",
    "",
    "Thread 0x00007f5700e56b80 (most recent call first):",
    f'  File "{TORCH}/distributed/distributed_c10d.py", line 3252 in all_reduce',
    f'  File "{TORCH}/distributed/c10d_logger.py", line 83 in wrapper',
    f'  File "{SENT}", line 7 in <module>',
    "",
    "Extension modules: numpy._core._multiarray_umath, torch._C (total: 13)",
)


def waiting(rank: int, traceback: str, *, time: float = 100.0) -> Failed:
    return failed(rank, TIMED_OUT, traceback=traceback, time=time)


def three_in_backward_and_one_in_a_barrier() -> Diagnosis:
    return diagnose(evidence(*(waiting(rank, IN_BACKWARD) for rank in (0, 1, 2)), waiting(3, IN_BARRIER, time=99.0)))


def test_where_all_waited_for_each_other_it_is_told_who_waited_elsewhere() -> None:
    found = three_in_backward_and_one_in_a_barrier()
    assert found.cause is not None
    assert found.cause.code == "collective-timeout"
    assert found.cause.words == (
        "It waited 8 s for another rank's data, which never came. They did not stand at one place: 3 of 4 ranks (0–2) "
        "are in backward at odd.py:12 (train); rank 3 on b waits in barrier at odd.py:15 (finish)."
    )
    assert "what only some ranks do" in found.advice[0]
    assert not any("the rank that did not come" in text for text in found.advice)
    told = text_of(found)
    assert "Where the ranks stood when they failed\n3 of 4 ranks (0–2) are in backward at odd.py:12 (train)\n" in told


def test_places_are_data_too() -> None:
    first, second = document(three_in_backward_and_one_in_a_barrier())["places"]
    assert (first["ranks"], first["standing"], first["call"], first["line"]) == ([0, 1, 2], "call", "backward", 12)
    assert (second["ranks"], second["standing"], second["function"]) == ([3], "collective", "finish")


def test_ranks_that_stood_at_one_place_are_not_said_to_have_been_apart() -> None:
    found = diagnose(evidence(*(waiting(rank, IN_BACKWARD) for rank in range(4))))
    assert found.places == ()
    assert found.cause is not None
    assert found.cause.words == "It waited 8 s for another rank's data, which never came."


def test_where_one_failed_by_itself_its_cause_stays_and_the_places_are_told_below() -> None:
    own = f'Traceback (most recent call last):\n  File "{SENT}", line 30, in load\n    raise x\nValueError: bad\n'
    found = diagnose(evidence(failed(2, "ValueError: bad", traceback=own), waiting(0, IN_BACKWARD, time=99.0)))
    assert found.cause is not None
    assert found.cause.words == "The script raised ValueError in odd.py, line 30, function load: bad"
    assert "rank 2 on b is at odd.py:30 (load)" in text_of(found)


def test_a_thread_of_gloo_that_aborts_a_rank_is_told_with_the_line_of_the_script() -> None:
    found = diagnose(evidence(failed(0, exit_code=None, signal=signal.SIGABRT, lines=lines(*GLOO_ABORTS))))
    assert found.cause is not None
    assert found.cause.code == "collective-mismatch"
    assert "brought 8 bytes by another rank where 4 were expected" in found.cause.words
    assert found.cause.words.endswith("Python was in odd.py, line 7, function <module>.")


def test_what_compiled_code_threw_and_nobody_caught_is_told_with_its_words_and_place() -> None:
    thrown = (
        "terminate called after throwing an instance of 'std::runtime_error'",
        "  what():  no kernel for 7 heads",
        *GLOO_ABORTS[2:],
    )
    found = diagnose(evidence(failed(0, exit_code=None, signal=signal.SIGABRT, lines=lines(*thrown))))
    assert found.cause is not None
    assert found.cause.code == "aborted"
    assert found.cause.words == (
        "Compiled code threw std::runtime_error (no kernel for 7 heads), which nothing caught (SIGABRT). Python was in "
        "odd.py, line 7, function <module>."
    )


def test_why_it_crashed_is_found_before_all_that_python_tells_of_its_threads() -> None:
    threads = [
        text
        for number in range(20)
        for text in (
            f"Thread 0x{number:08x} (most recent call first):",
            '  File "/opt/lib/python3.11/threading.py", line 324 in wait',
            "",
        )
    ]
    many = (*GLOO_ABORTS[:4], *threads, *GLOO_ABORTS[4:])
    found = diagnose(evidence(failed(0, exit_code=None, signal=signal.SIGABRT, lines=lines(*many))))
    assert found.cause is not None
    assert found.cause.code == "collective-mismatch"
    assert "odd.py, line 7" in found.cause.words


def test_threads_that_were_told_at_another_time_are_no_place_of_a_crash() -> None:
    dumped = ("Timeout (0:00:30)!", *GLOO_ABORTS[4:9])
    found = diagnose(evidence(failed(0, exit_code=None, signal=signal.SIGSEGV, lines=lines(*dumped))))
    assert found.cause is not None
    assert "Python was in" not in found.cause.words


TAKEN = "OSError: [Errno 98] Address already in use"


def port(*failures: Failed) -> tuple[str, Confidence]:
    nodes = (node("a", 0, 1), node("b", 2))
    cause = diagnose(evidence(*failures, nodes=nodes)).cause
    assert cause is not None
    assert cause.code == "port-in-use"
    return cause.words, cause.confidence


def test_a_port_that_one_of_a_host_s_ranks_found_taken_is_most_likely_with_the_other() -> None:
    killed = failed(0, exit_code=None, signal=signal.SIGTERM)
    assert port(failed(1, TAKEN), replace(killed, time=101.0)) == (
        "A port that the script wanted on a was taken, most likely by another rank of the job there.",
        Confidence.LIKELY,
    )
    named = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29511, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    )
    assert port(failed(1, named))[0] == "Port 29511 of a was taken, most likely by another rank of the job there."


def test_a_port_that_all_ranks_of_a_host_found_taken_is_a_stranger_s() -> None:
    words = "A port that the script wanted on a was taken by another process."
    assert port(failed(0, TAKEN), failed(1, TAKEN, time=101.0)) == (words, Confidence.CERTAIN)
    assert port(failed(2, TAKEN))[0] == words.replace("on a", "on b")
