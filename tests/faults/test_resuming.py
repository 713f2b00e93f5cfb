"""A job that is started again goes on from the newest complete checkpoint of the attempt before, and writes beside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from dtagent.protocol.events import EventKind

from dttui.jobs.outcome import AttemptOutcome
from tests.agent.conversation import processes_with
from tests.faults.restarting import begun, ended
from tests.faults.test_restarts import ONE, TWO, demo
from tests.integration.headless import shell_job
from tests.processes import ended_agents as ended_agents

SAVES_AND_FAILS_ONCE = """
echo "from=$DTTUI_RESUME_FROM" "into=$DTTUI_CHECKPOINT_DIR" "given=$*"
[ "$DTTUI_ATTEMPT" = 1 ] && exit 0
if [ "$RANK" = 0 ]; then
  for step in 10 20; do
    mkdir -p "$DTTUI_CHECKPOINT_DIR/step-$step"; echo "$step" > "$DTTUI_CHECKPOINT_DIR/step-$step/state"
    touch "$DTTUI_CHECKPOINT_DIR/step-$step/COMPLETE"
  done
  mkdir -p "$DTTUI_CHECKPOINT_DIR/step-30"; echo half > "$DTTUI_CHECKPOINT_DIR/step-30/state"
  exit 3
fi
sleep 60
"""


@pytest.mark.parametrize("is_named", [True, False], ids=["in a directory of the job", "in a directory of the attempt"])
def test_the_next_attempt_is_told_the_newest_complete_checkpoint(
    is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over within 120 s; nothing of it is left, and of the half checkpoint nothing is said to be complete."""
    shared = tmp_path / "shared"
    file = shell_job(tmp_path, {ONE: 1, TWO: 1}, SAVES_AND_FAILS_ONCE)
    document = yaml.safe_load(file.read_text())
    job = document["distributed_training"]
    if is_named:
        words = ["word0", "--load={checkpoint}", "--step={step}"]
        job["recovery"] = {"checkpoint": {"dir": str(shared), "shared": True, "resume_args": words}}
    file.write_text(yaml.safe_dump(document))
    directory, first = begun(file, demo(), monkeypatch, 0)
    events = ended(directory, first)
    assert events[-1].data["state"] == "SUCCEEDED", directory.controller_log.read_text()
    (told,) = (event for event in events if event.data.get("resume_from"))
    assert (told.attempt, told.data["step"]) == (1, 20)
    found = Path(told.data["resume_from"])
    assert (found / "state").read_text() == "20\n"
    said = [(directory.logs(1, name) / f"{rank}.out").read_text() for rank, name in enumerate((ONE, TWO))]
    if is_named:
        assert found == shared / "step-20"
        line = f"from={found} into={shared}/attempt-1 given=--load={found} --step=20\n"
        assert said == [line, line]
    else:
        assert all(line.startswith(f"from={found} into=") for line in said)
        assert all(f"into={found.parent} " not in line for line in said)
    assert [event.kind for event in events].count(EventKind.OUTCOME) == 1
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []


SAVES_TWO_AND_FAILS_TWICE = """
[ "$RANK" = 0 ] || [ "$DTTUI_ATTEMPT" = 2 ] || { sleep 60; exit 0; }
[ "$RANK" = 0 ] && for step in 10 20; do
  place=$DTTUI_CHECKPOINT_DIR/step-$DTTUI_ATTEMPT$step
  mkdir -p "$place"; echo "$step" > "$place/state"; touch "$place/COMPLETE"
done
mkdir -p "$DTTUI_CHECKPOINT_DIR/step-${DTTUI_ATTEMPT}30"
[ "$DTTUI_ATTEMPT" = 2 ] || exit 3
for _ in $(seq 600); do
  ls -d "$SHARED"/step-01* "$SHARED"/attempt-1/step-11* > /dev/null 2>&1 || { sleep 8; exit 0; }  # Until it is told.
  sleep 0.1
done
exit 4
"""


def test_after_three_attempts_those_that_are_to_stay_are_left_and_what_others_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over within 120 s; two of the last attempt are left, what it went on from, half ones, and what is of others."""
    shared = tmp_path / "shared"
    foreign = [shared / "step-5", shared / "attempt-1" / "step-7", shared / "attempt-9" / "step-9"]
    for path in foreign:
        path.mkdir(parents=True)
        for name in ("state", "COMPLETE"):
            (path / name).touch()
            os.utime(path / name, (1e9, 1e9))
    file = shell_job(tmp_path, {ONE: 1, TWO: 1}, SAVES_TWO_AND_FAILS_TWICE, env={"SHARED": str(shared)})
    document = yaml.safe_load(file.read_text())
    checkpoint = {"dir": str(shared), "shared": True, "keep": 2, "interval": "1s"}
    document["distributed_training"]["recovery"] = {"checkpoint": checkpoint}
    file.write_text(yaml.safe_dump(document))
    directory, first = begun(file, demo(), monkeypatch, 0)
    events = ended(directory, first)
    assert events[-1].data["state"] == "SUCCEEDED", directory.controller_log.read_text()
    complete = {str(mark.parent.relative_to(shared)) for mark in shared.rglob("COMPLETE")}
    own = {"attempt-1/step-120", "attempt-2/step-210", "attempt-2/step-220"}
    assert complete == own | {str(path.relative_to(shared)) for path in foreign}
    assert (shared / "step-030").is_dir()
    (told,) = (event for event in events if "removed" in event.data)
    assert (told.attempt, told.data["removed"]) == (2, 3)
    last = [event for event in events if event.data.get("attempt_outcome")][-1]
    outcome = AttemptOutcome.model_validate(last.data["attempt_outcome"])
    assert outcome.nodes[ONE].checkpoint_bytes == len("20\n")
