"""A job that is started again goes on from the newest complete checkpoint of the attempt before, and writes beside."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from dtagent.protocol.events import EventKind

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
