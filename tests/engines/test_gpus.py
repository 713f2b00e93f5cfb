"""What each real engine understands of the GPUs that a job asks for; devices and drivers are stand-ins."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dttui.planning.models import PlannedProcess
from tests.engines.conftest import DEADLINE_S, Engine
from tests.unit.container_plans import SIMULATED, A, B, bound, container, planned, process_of

TELL = 'echo "${NVIDIA_VISIBLE_DEVICES-$GIVEN_1|$GIVEN_2|$GIVEN_3|$GIVEN_all}" "${CUDA_VISIBLE_DEVICES-not set}"'
GIVEN = {
    ("docker", "node"): "2,3 0,1",
    ("docker", "all"): "all 2,3",
    ("podman", "node"): "|yes|yes| 0,1",
    ("podman", "all"): "|||yes 2,3",
    # Here all are seen, and those of the job have the numbers that they have on the host.
    ("apptainer", "node"): "||| 2,3",
    ("apptainer", "all"): "||| 2,3",
}


@pytest.mark.parametrize("gpus", ["node", "all"])
def test_those_of_the_job_are_given_and_numbered_as_they_are_seen_inside(
    engine: Engine, place: Path, gpus: str
) -> None:
    inside = container(engine.name, image=engine.image, options=engine.options, gpus=gpus)
    (place / "work").mkdir()
    process = process_of(bound(planned(B, A, run={"container": inside}), directory=str(place)), 1)
    assert _said(engine, process) == GIVEN[engine.name, gpus]


def test_none_are_given_though_the_host_gives_them_to_all(engine: Engine, place: Path) -> None:
    inside = container(engine.name, image=engine.image, options=engine.options, gpus="none")
    (place / "work").mkdir()
    made = planned("a", inventory=SIMULATED, run={"container": inside})
    said = _said(engine, process_of(bound(made, directory=str(place))))
    assert said == ("||| not set" if engine.name == "apptainer" else "void not set")


def _said(engine: Engine, process: PlannedProcess) -> str:
    """Run a shell in place of the job's own command, and return what it says."""
    argv = [*engine.person.enter, *process.argv[: process.engine_words], "sh", "-c", TELL]
    done = subprocess.run(
        argv, env={**os.environ, **process.env}, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
